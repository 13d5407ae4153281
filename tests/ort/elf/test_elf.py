import ctypes
import io
import struct
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection
from elftools.elf.segments import Segment

from redpebble.lowering.cpu_target import CpuTarget
from redpebble.ort.elf.linker import Code, Data, Pointer, link
from redpebble.ort.elf.object_file import ElfError
from redpebble.runtime.jit import emit_object

COUNTER = """
@table = external hidden constant [4 x i64]
@counter = global i64 5
@zeros = global [100 x i64] zeroinitializer
@numbers = internal constant [3 x i64] [i64 100, i64 200, i64 400]
@addresses = internal constant [2 x ptr] [ptr @numbers, ptr @step]
@far = external constant [2 x i64]
define i64 @step(i64 %i) {
  %entry = getelementptr i64, ptr @table, i64 %i
  %a = load i64, ptr %entry
  %numbers = load ptr, ptr @addresses
  %b = load i64, ptr %numbers
  %c = load i64, ptr @counter
  %d = load i64, ptr @far
  %ab = add i64 %a, %b
  %cd = add i64 %c, %d
  %sum = add i64 %ab, %cd
  store i64 %sum, ptr @counter
  %last = getelementptr i64, ptr @zeros, i64 99
  store i64 %sum, ptr %last
  ret i64 %sum
}
"""

CALLER = """
declare i64 @step(i64)
define i64 @twice(i64 %i) {
  %a = call i64 @step(i64 %i)
  %b = call i64 @step(i64 %i)
  ret i64 %b
}
"""

TABLE = Data("table", struct.pack("<4q", 10, 20, 30, 40))
FAR = Data("far", struct.pack("<2q", 1000, 0))
POINTERS = Data("pointers", bytes(16), {0: Pointer("step"), 8: Pointer("table", 8)})


def compiled(text: str) -> bytes:
    return emit_object(text, CpuTarget.generic())


def library() -> bytes:
    parts = (Code(compiled(COUNTER)), Code(compiled(CALLER)), TABLE, FAR, POINTERS)
    return link(parts, ["twice", "step", "counter", "pointers"], "libcounter.so")


def loaded(image: bytes, folder: Path) -> ctypes.CDLL:
    path = folder / "library.so"
    path.write_bytes(image)
    return ctypes.CDLL(str(path))


def test_a_linked_library_runs(tmp_path: Path) -> None:
    code = loaded(library(), tmp_path)
    assert code.step(1) == 5 + 20 + 100 + 1000
    assert code.twice(3) == 1125 + 2 * (40 + 100 + 1000)
    assert ctypes.c_int64.in_dll(code, "counter").value == 1125 + 2 * 1140


def test_addresses_in_tables_are_those_of_their_symbols(tmp_path: Path) -> None:
    code = loaded(library(), tmp_path)
    step, second = (ctypes.c_uint64 * 2).in_dll(code, "pointers")
    assert step == ctypes.cast(code.step, ctypes.c_void_p).value
    assert ctypes.c_int64.from_address(second).value == 20


def test_only_exports_can_be_looked_up(tmp_path: Path) -> None:
    code = loaded(library(), tmp_path)
    with pytest.raises(AttributeError):
        code.zeros  # noqa: B018


def segments(image: bytes) -> list[Segment]:
    return list(ELFFile(io.BytesIO(image)).iter_segments())


def test_nothing_is_writable_and_executable() -> None:
    flags = [segment["p_flags"] for segment in segments(library()) if segment["p_type"] == "PT_LOAD"]
    assert sorted(flags) == [4, 5, 6]
    (stack,) = (segment for segment in segments(library()) if segment["p_type"] == "PT_GNU_STACK")
    assert stack["p_flags"] == 6


def test_segments_are_congruent_and_do_not_share_pages() -> None:
    loads = [segment for segment in segments(library()) if segment["p_type"] == "PT_LOAD"]
    for segment in loads:
        assert segment["p_offset"] % 4096 == segment["p_vaddr"] % 4096 == 0
        assert segment["p_filesz"] <= segment["p_memsz"]
    for first, second in pairwise(loads):
        assert first["p_vaddr"] + first["p_memsz"] <= second["p_vaddr"]


def test_what_the_loader_patches_becomes_read_only() -> None:
    elf = ELFFile(io.BytesIO(library()))
    (relro,) = (segment for segment in elf.iter_segments() if segment["p_type"] == "PT_GNU_RELRO")
    relocations = elf.get_section_by_name(".rela.dyn")
    assert isinstance(relocations, RelocationSection)
    places = [(entry["r_offset"], entry["r_info_type"]) for entry in relocations.iter_relocations()]
    assert places
    for place, kind in places:
        assert kind == 8
        assert relro["p_vaddr"] <= place < relro["p_vaddr"] + relro["p_memsz"]


def test_the_dynamic_section_names_the_tables() -> None:
    elf = ELFFile(io.BytesIO(library()))
    dynamic = elf.get_section_by_name(".dynamic")
    assert isinstance(dynamic, DynamicSection)
    tags = {tag.entry.d_tag: tag.entry.d_val for tag in dynamic.iter_tags()}
    assert "DT_TEXTREL" not in tags
    assert "DT_NEEDED" not in tags
    for tag, section in (("DT_SYMTAB", ".dynsym"), ("DT_STRTAB", ".dynstr"), ("DT_HASH", ".hash")):
        named = elf.get_section_by_name(section)
        assert named is not None
        assert tags[tag] == named["sh_addr"]
    symbols = elf.get_section_by_name(".dynsym")
    assert isinstance(symbols, SymbolTableSection)
    assert [symbol.name for symbol in symbols.iter_symbols()][1:] == ["counter", "pointers", "step", "twice"]


def test_data_starts_at_cache_lines(tmp_path: Path) -> None:
    many = [Data(f"d{index}", bytes([index]) * (index + 1)) for index in range(5)]
    code = loaded(link([Code(compiled(CALLER)), Code(compiled(COUNTER)), TABLE, FAR, *many], ["d4"], "x"), tmp_path)
    address = ctypes.addressof(ctypes.c_char.in_dll(code, "d4"))
    assert address % 64 == 0
    assert ctypes.string_at(address, 5) == bytes([4]) * 5


def test_a_prefix_keeps_equal_names_apart(tmp_path: Path) -> None:
    one, two = ("define i64 @f() {\n ret i64 1\n}", "define i64 @f() {\n ret i64 2\n}")
    parts = [Code(compiled(one), "a_"), Code(compiled(two), "b_")]
    code = loaded(link(parts, ["a_f", "b_f"], "x"), tmp_path)
    assert (code.a_f(), code.b_f()) == (1, 2)


def test_a_file_cut_off_is_refused_by_the_loader(tmp_path: Path) -> None:
    image = library()
    for size in (0, 10, 63, 200):
        with pytest.raises(OSError, match="library"):
            loaded(image[:size], tmp_path)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([Code(compiled(CALLER))], "symbol step is undefined"),
        ([Code(compiled(COUNTER)), Code(compiled(COUNTER)), TABLE, FAR], "symbol step is defined twice"),
        ([Code(compiled(COUNTER)), TABLE, TABLE], "symbol table is defined twice"),
        ([Code(b"MZ")], "object is no little-endian ELF64 file"),
        ([Code(compiled(CALLER)[:200])], "object is cut off after 200 bytes"),
        ([Code(library())], "expected an object of ELF type 1 (relocatable), got 3"),
        ([TABLE], "expected objects for 1 machine, got 0"),
        (
            [Code(compiled(CALLER)[:18] + struct.pack("<H", 243) + compiled(CALLER)[20:])],
            "ELF machine: expected one of 62, 183, got 243",
        ),
        (
            [Code(compiled("@t = thread_local global i64 1"))],
            "section .tdata: expected code or data, got another kind",
        ),
        (
            [Code(compiled("@c = common global i64 0"))],
            "symbol c: expected a place in a section, got a common symbol",
        ),
    ],
)
def test_what_cannot_be_linked_is_refused_in_one_line(parts: list[Code | Data], message: str) -> None:
    with pytest.raises(ElfError) as error:
        link(parts, [], "x")
    assert str(error.value) == message


def test_an_export_must_exist() -> None:
    with pytest.raises(ElfError, match=r"^symbol nobody is undefined$"):
        link([Code(compiled(COUNTER)), TABLE, FAR], ["nobody"], "x")


def test_readelf_finds_nothing_wrong(tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(library())
    try:
        shown = subprocess.run(["readelf", "-aW", path], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("there is no readelf")
    assert not shown.stderr
    assert "libcounter.so" in shown.stdout


def test_code_for_arm_becomes_a_shared_object_for_arm_with_pages_of_64_kib() -> None:
    parts = [Code(emit_object(text, CpuTarget.arm64())) for text in (COUNTER, CALLER)]
    file = ELFFile(io.BytesIO(link([*parts, TABLE, FAR], ["step", "twice", "counter"], "libarm.so")))
    assert file["e_machine"] == "EM_AARCH64"
    loads = [segment for segment in file.iter_segments() if segment["p_type"] == "PT_LOAD"]
    assert all(segment["p_align"] == 1 << 16 and segment["p_offset"] == segment["p_vaddr"] for segment in loads)
    assert all(before["p_vaddr"] >> 16 < after["p_vaddr"] >> 16 for before, after in pairwise(loads))
    relocations = file.get_section_by_name(".rela.dyn")
    assert isinstance(relocations, RelocationSection)
    assert {one["r_info_type"] for one in relocations.iter_relocations()} == {1027}

"""Relocations: what is written, and the distances that they can hold."""

import struct

import pytest

from redpebble.ort.elf.object_file import EM_AARCH64, EM_X86_64, ElfError, Patch, machine_of

AT = 0x12345

LEAST, MOST = -(1 << 31), (1 << 31) - 1


@pytest.mark.parametrize("distance", [LEAST, -1, 0, MOST])
def test_a_distance_of_32_bits_is_written_where_it_belongs(distance: int) -> None:
    data = bytearray(b"\xaa" * 12)
    machine_of(EM_X86_64).apply(Patch(data, 4, 2, AT), AT + distance)
    assert struct.unpack("<4si4s", data) == (b"\xaa" * 4, distance, b"\xaa" * 4)


@pytest.mark.parametrize("distance", [LEAST - 1, MOST + 1, 4 << 30, -(8 << 30), 1 << 40])
def test_a_farther_distance_is_refused(distance: int) -> None:
    data = bytearray(8)
    expected = f"expected less than 2 GB of code and data, got a distance of {distance}, more than 32 bits"
    with pytest.raises(ElfError, match=f"^{expected}$"):
        machine_of(EM_X86_64).apply(Patch(data, 0, 2, AT), AT + distance)
    assert data == bytes(8)


# words as `llvm-mc -triple aarch64` writes them
ARM = [
    ("bl #-4", 283, 0x94000000, -4, 0x97FFFFFF),
    ("b #134217724", 282, 0x14000000, (1 << 27) - 4, 0x15FFFFFF),
    ("adrp x3, #0", 275, 0x90000003, 0, 0x90000003),
    ("adrp x3, #-4096", 275, 0x90000003, -4096, 0xF0FFFFE3),
    ("adrp x0, #20480", 311, 0x90000000, 20480, 0xB0000020),
]


@pytest.mark.parametrize("text, kind, before, distance, after", ARM)
def test_instructions_of_arm_get_their_distance(text: str, kind: int, before: int, distance: int, after: int) -> None:
    data = bytearray(struct.pack("<II", 0, before))
    machine_of(EM_AARCH64).apply(Patch(data, 4, kind, 1 << 30), (1 << 30) + distance)
    assert struct.unpack("<II", data) == (0, after), text


LOW = [
    ("add x0, x0, #0x678", 277, 0x91000000, 0x9119E000),
    ("ldrb w1, [x0, #0x678]", 278, 0x39400001, 0x3959E001),
    ("ldrh w1, [x0, #0x678]", 284, 0x79400001, 0x794CF001),
    ("ldr s1, [x0, #0x678]", 285, 0xBD400001, 0xBD467801),
    ("ldr x1, [x0, #0x678]", 286, 0xF9400001, 0xF9433C01),
    ("ldr x1, [x0, #0x678]", 312, 0xF9400001, 0xF9433C01),
]


@pytest.mark.parametrize("text, kind, before, after", LOW)
def test_instructions_of_arm_get_the_place_in_a_page(text: str, kind: int, before: int, after: int) -> None:
    data = bytearray(struct.pack("<I", before))
    machine_of(EM_AARCH64).apply(Patch(data, 0, kind, 0), 0x12345678)
    assert struct.unpack("<I", data) == (after,), text


@pytest.mark.parametrize(
    "kind, target, message",
    [
        (283, 1 << 27, "expected less than 128 MB of code and data, got a distance of 134217728, more than 28 bits"),
        (299, 8, "expected an address that is a multiple of 16, got 8"),
    ],
)
def test_what_an_instruction_of_arm_cannot_hold_is_refused(kind: int, target: int, message: str) -> None:
    with pytest.raises(ElfError, match=f"^{message}$"):
        machine_of(EM_AARCH64).apply(Patch(bytearray(4), 0, kind, 0), target)

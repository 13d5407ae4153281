"""Blocks of instructions: the cycles of each by llvm-mca, and how often each one runs.

A block of LLVM IR keeps its name in the assembly text, as a comment; that of an edge has none, and takes no time here.
"""

import ctypes
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...lowering.cpu_target import CpuTarget
from ...runtime.jit import MachineCode, emit_assembly, emit_object, host_target, load_object

ITERATIONS: Final = 100

COUNTS: Final = "block_counts"

OF_ARM: Final = "llvm.aarch64."
"""The begin of the names of intrinsics that no other CPU has code for."""

Block = tuple[str, str]
"""A function and a block of it."""


class Model(NamedTuple):
    """A scheduling model of LLVM, by the name of a CPU."""

    triple: str
    cpu: str
    features: str = ""


def cycles_of(llvm_ir: str, target: CpuTarget, model: Model, mca: str) -> dict[Block, float]:
    """Return the cycles of each block of a module, again and again, its loads from the first-level cache.

    Raises:
        subprocess.CalledProcessError: llvm-mca refuses an instruction, or does not know the CPU.
    """
    blocks: dict[str, Block] = {}
    text = "\n".join(marked(emit_assembly(llvm_ir, target), blocks))
    found: dict[Block, float] = {}
    for name, cycles in cycles_of_regions(text, model, mca).items():
        found[blocks[name]] = found.get(blocks[name], 0.0) + cycles
    return found


def cycles_of_regions(text: str, model: Model, mca: str) -> dict[str, float]:
    """Return the cycles of each region of assembly text, which lines with `LLVM-MCA-BEGIN NAME` and `-END` enclose.

    Raises:
        subprocess.CalledProcessError: see `cycles_of`.
    """
    words = [mca, f"-mtriple={model.triple}", f"-mcpu={model.cpu}", f"-iterations={ITERATIONS}", "--json"]
    options = ["--skip-unsupported-instructions=any", f"-mattr={model.features}"]
    done = subprocess.run([*words, *options], input=text, capture_output=True, text=True, check=True)
    regions = json.loads(done.stdout)["CodeRegions"]
    return {region["Name"]: region["SummaryView"]["TotalCycles"] / ITERATIONS for region in regions}


_FUNCTION: Final = re.compile(r"^(\w+):\s+(//|#) @\1")
_BLOCK: Final = re.compile(r"^(?:\.LBB\d+_\d+:|(?://|#) %bb\.\d+:)\s*(?:(?://|#) %(\S+))?")
_END: Final = re.compile(r"^\.Lfunc_end")


def marked(assembly: str, blocks: dict[str, Block]) -> Iterator[str]:
    """Yield the lines with the borders of blocks; `blocks` gets the name of each."""
    function, comment, inside = "", "#", False
    for line in assembly.splitlines():
        begin, head = _FUNCTION.match(line), _BLOCK.match(line)
        if inside and (begin or head or _END.match(line)):
            yield f"{comment} LLVM-MCA-END"
            inside = False
        yield line
        if begin:
            function, comment = begin[1], begin[2]
        elif head and head[1]:
            name = f"region{len(blocks)}"
            blocks[name] = function, head[1]
            yield f"{comment} LLVM-MCA-BEGIN {name}"
            inside = True


def _without_instructions_of_arm(llvm_ir: str) -> str:
    """Return a module whose instructions of ARM are functions that return their first operand: sums count no blocks."""
    text = llvm_ir.replace(f'@"{OF_ARM}', '@"of_arm.')
    return _DECLARED.sub(r"define \1\2 {\n  ret \1 \3\n}", text)


_DECLARED: Final = re.compile(r'^declare (.*?)( @"of_arm[^"]*"\(<[^>]*> (%"[^"]*").*\))$', re.MULTILINE)


class CountedCode:
    """Functions of a module, which count how often their blocks run, as code for this machine."""

    def __init__(self, llvm_ir: str, arities: Mapping[str, tuple[int, int]]) -> None:
        """Compile a module, of whatever target, and note the number of its blocks."""
        self.blocks: list[Block] = []
        text = "\n".join(self._counting(llvm_ir))
        own = f'@"{COUNTS}" = internal global [{len(self.blocks)} x i64] zeroinitializer'
        reader = f'define ptr @"read_{COUNTS}"() {{\n  ret ptr @"{COUNTS}"\n}}'
        image = emit_object("\n".join((text, own, reader)), host_target())
        self._code: MachineCode = load_object(image, {**arities, f"read_{COUNTS}": (0, 0)})
        address = ctypes.CFUNCTYPE(ctypes.c_void_p)(self._code.addresses[f"read_{COUNTS}"])()
        counters = ctypes.cast(address or 0, ctypes.POINTER(ctypes.c_int64))
        self._counts: NDArray[np.int64] = np.ctypeslib.as_array(counters, (len(self.blocks),))

    def counts(self, function: str, *arguments: int) -> NDArray[np.int64]:
        """Return how often each of `blocks` runs in a call."""
        self._counts[:] = 0
        self._code.functions[function](*arguments)
        return self._counts.copy()

    def _counting(self, llvm_ir: str) -> Iterator[str]:
        function, waiting = "", ""
        for line in _without_instructions_of_arm(llvm_ir).splitlines():
            if waiting and "= phi" not in line:
                yield from self._one_more(function, waiting)
                waiting = ""
            yield line
            if line.startswith("define"):
                function = line.partition("@")[2].partition("(")[0].strip('"')
            elif re.match(r'^"?[\w.\-]+"?:$', line):
                waiting = line[:-1].strip('"')

    def _one_more(self, function: str, block: str) -> Iterator[str]:
        number = len(self.blocks)
        self.blocks.append((function, block))
        place = f'getelementptr (i64, ptr @"{COUNTS}", i64 {number})'
        yield f'  %"count.before.{number}" = load i64, ptr {place}'
        yield f'  %"count.after.{number}" = add i64 %"count.before.{number}", 1'
        yield f'  store i64 %"count.after.{number}", ptr {place}'

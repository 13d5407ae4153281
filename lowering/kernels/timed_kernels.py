"""Kernels to be measured: each in a loop over copies of what it reads, so that a call can take long enough to time.

A layer of a network finds its weights where the layers between two uses of it have left them. Copies that together are
as large as the network's weights bring that about for one layer alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

from llvmlite import ir

from ...kernels.families import FAMILIES
from ..cpu_target import CpuTarget
from ..llvm.builder import Code
from ..llvm.flow import call, loop
from ..llvm.values import POINTER, Number, Pointers
from .kernel_form import LinearForm
from .table import code_of


class RepeatedKernel(NamedTuple):
    """A kernel family for tiles of `width` batch columns."""

    family: str
    width: int

    @property
    def symbol(self) -> str:
        """The name of its function `void (tables, i64 copies, i64 inputs, i64 outputs)`.

        tables [copies, pointers] holds what the kernel takes: x, y and the packed arrays.
        """
        return f"repeat_{self.family}_{self.width}"


def repeated_kernels(kernels: Sequence[RepeatedKernel], target: CpuTarget) -> str:
    """Return the LLVM IR of a module with a function for each of `kernels`, without activations."""
    code = Code(target, ir.Module("kernels"))
    for kernel in kernels:
        _emit(code, kernel)
    return str(code.module)


def _emit(code: Code, kernel: RepeatedKernel) -> None:
    function = code_of(FAMILIES[kernel.family]).emit(code, LinearForm(kernel.width, None))
    pointers = sum(1 for argument in function.args if argument.type == POINTER)

    @code.kernel(kernel.symbol, exported=True)
    def _(tables: Pointers, copies: Number, inputs: Number, outputs: Number) -> None:
        with loop(copies) as copy:
            first = copy * pointers
            arguments = [tables[first + index] for index in range(pointers)]
            call(function, *arguments, inputs, outputs)

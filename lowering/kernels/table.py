"""The code of kernel families: that of a family is the module of its name beside this one."""

from importlib import import_module
from typing import NamedTuple, Protocol, cast

from llvmlite import ir

from ...dialect.attributes.kernels import KernelAttr
from ...kernels.families import FAMILIES
from ...kernels.family import KernelFamily
from ..llvm.builder import Code
from .kernel_form import LinearForm


class KernelCode(Protocol):
    """The module of a family."""

    def emit(self, code: Code, form: LinearForm) -> ir.Function:
        """Return the kernel `void (x, y, packed arrays..., inputs, outputs)` for tiles of `form.width` columns."""
        ...


class AnyRowsCode(KernelCode, Protocol):
    """The module of a family for any number of rows."""

    def emit_rows(self, code: Code, form: LinearForm) -> ir.Function:
        """Return the same with a last argument, the number of rows; the columns behind them repeat the last one."""
        ...

    def emit_leaving(self, code: Code, form: LinearForm) -> ir.Function:
        """Return the same with another argument, the values between rows of y: that is no tile but rows."""
        ...


class RowMajorCode(KernelCode, Protocol):
    """The module of a family whose tiles are rows."""

    def emit_apart(self, code: Code, form: LinearForm) -> ir.Function:
        """Return the same with three more arguments: the rows, and the values from one to the next in x and in y."""
        ...


def code_of(family: KernelFamily) -> KernelCode:
    """Return the code of a family."""
    return cast("KernelCode", import_module(f"{__package__}.{family.name}"))


def any_rows_code_of(family: KernelFamily) -> AnyRowsCode:
    """Return the code of a family for any number of rows."""
    return cast("AnyRowsCode", code_of(family))


def row_major_code_of(family: KernelFamily) -> RowMajorCode:
    """Return the code of a family whose tiles are rows."""
    return cast("RowMajorCode", code_of(family))


class PackedFormat(NamedTuple):
    """The family whose arrays a layer is packed into, and over how many blocks of inputs, if it has some."""

    family: str
    blocks: int | None


class ChosenKernel(NamedTuple):
    """A family, and the blocks of inputs over which it is to run, if it has some."""

    family: KernelFamily
    blocks: int | None

    @property
    def format(self) -> PackedFormat:
        """The form that its layer is packed into: kernels of the same format share the arrays."""
        return PackedFormat(self.family.format, self.blocks)


def kernel_at(kernel: KernelAttr | None, width: int) -> ChosenKernel:
    """Return what a layer's kernel is for tiles of `width` columns.

    Raises:
        ValueError: there is no kernel of ours.
    """
    if kernel is None:
        raise ValueError("pebble.linear has no kernel: run pebble-choose-kernels before, or pebble-compile")
    name = kernel.family_at(width)
    if name not in FAMILIES:
        raise ValueError(f"expected a kernel of {', '.join(sorted(FAMILIES))}, got {name!r}")
    return ChosenKernel(FAMILIES[name], kernel.blocks.get(name))

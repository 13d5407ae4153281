"""Text of dense floats: numbers where these read back bit by bit, else the bytes in hexadecimal.

xDSL prints NaN, infinities and long whole numbers as the hexadecimal number of their bits, and reads that as an
integer; it prints zeros of both signs as one zero.
"""

from io import StringIO
from typing import IO, Final

import numpy as np
from typing_extensions import override
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, Float32Type, ModuleOp
from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.hints import isa

from ..tensors import floats_of

MOST_PRINTED: Final = 16
"""Elements of a constant up to which it is printed where its values are hardly of interest."""


class ElidingPrinter(Printer):
    """A printer that writes large constants as MLIR does: `dense_resource<__elided__> : tensor<1024x1024xf32>`.

    Such text cannot be read back, and its first line says so.
    """

    def __init__(self, stream: IO[str], most: int = MOST_PRINTED, *, generic: bool = False) -> None:
        """Write constants of up to `most` elements whole; with `generic` all ops in MLIR's generic form.

        Raises:
            ValueError: `most` is negative.
        """
        if most < 0:
            raise ValueError(f"expected 0 or more elements of a constant to print, got {most}")
        super().__init__(stream, print_generic_format=generic)
        self._most = most

    def print_module(self, module: ModuleOp) -> None:
        """Print a module behind a line that says what is left out."""
        self.print_string(f"// constants of more than {self._most} elements are left out: this cannot be read back\n")
        self.print_op(module)
        self.print_string("\n")

    @override
    def print_attribute(self, attribute: Attribute) -> None:
        if isa(attribute, DenseIntOrFPElementsAttr) and len(attribute) > self._most:
            self.print_string(f"dense_resource<__elided__> : {attribute.type}")
        else:
            super().print_attribute(attribute)


def parse_floats(parser: Parser) -> DenseIntOrFPElementsAttr[Float32Type]:
    """Parse dense f32 elements and their type."""
    value = parser.parse_attribute()
    if not isa(value, DenseIntOrFPElementsAttr[Float32Type]):
        parser.raise_error("expected dense f32 elements")
    return value


def print_floats(printer: Printer, value: DenseIntOrFPElementsAttr[Float32Type]) -> None:
    """Print dense elements and their type such that they read back bit by bit, if the printer prints them at all."""
    if isinstance(printer, ElidingPrinter):
        printer.print_attribute(value)
        return
    stream = StringIO()
    Printer(stream).print_attribute(value)
    text, floats = stream.getvalue(), floats_of(value)
    elements = text.partition(">")[0]
    has_bits = "0x" in elements and not elements.startswith('dense<"')
    has_both_zeros = not np.any(floats) and np.any(np.signbit(floats)) and not np.all(np.signbit(floats))
    if has_bits or has_both_zeros:
        text = f'dense<"0x{value.data.data.hex().upper()}"> : {value.type}'
    printer.print_string(text)


@irdl_custom_directive
class Floats(CustomDirective):
    """`custom<Floats>($values)` in an assembly format: dense f32 elements that read back bit by bit."""

    values: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.values.set(state, parse_floats(parser))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        value = self.values.get(op)
        assert isa(value, DenseIntOrFPElementsAttr[Float32Type])
        print_floats(printer, value)

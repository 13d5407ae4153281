"""Attributes that passes write for those that come later: I/O bounds and schedules."""

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException


@irdl_attr_definition
class IoBoundsAttr(ParametrizedAttribute):
    """Fewest and most transfers of a good order, in values for a batch of one.

    ```mlir
    #pebble.io_bounds<reads = 9 to 12, writes = 2 to 4>
    ```
    """

    name = "pebble.io_bounds"

    fewest_reads: IntAttr
    most_reads: IntAttr
    fewest_writes: IntAttr
    most_writes: IntAttr

    @staticmethod
    def of(reads: tuple[int, int], writes: tuple[int, int]) -> "IoBoundsAttr":
        """Return the bounds; each pair is (lower, upper)."""
        return IoBoundsAttr(IntAttr(reads[0]), IntAttr(reads[1]), IntAttr(writes[0]), IntAttr(writes[1]))

    def verify(self) -> None:
        for name, low, high in (
            ("reads", self.fewest_reads.data, self.most_reads.data),
            ("writes", self.fewest_writes.data, self.most_writes.data),
        ):
            if not 0 <= low <= high:
                raise VerifyException(f"{name} from {low} to {high}, expected 0 <= lower <= upper")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            reads = _parse_range(parser, "reads")
            parser.parse_punctuation(",")
            writes = _parse_range(parser, "writes")
        return (*reads, *writes)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"reads = {self.fewest_reads.data} to {self.most_reads.data}, ")
            printer.print_string(f"writes = {self.fewest_writes.data} to {self.most_writes.data}")


def _parse_range(parser: AttrParser, word: str) -> tuple[IntAttr, IntAttr]:
    parser.parse_keyword(word)
    parser.parse_punctuation("=")
    low = parser.parse_integer()
    parser.parse_keyword("to")
    return IntAttr(low), IntAttr(parser.parse_integer())


@irdl_attr_definition
class ScheduleAttr(ParametrizedAttribute):
    """The order of work inside a tile and the tile's widths: `#pebble.schedule<layer_by_layer, widths = [16, 64]>`.

    `widths` are batch columns, ascending; code exists for each, and a batch is cut into as few tiles as they allow.
    """

    name = "pebble.schedule"
    ORDERS: ClassVar = ("layer_by_layer",)

    order: StringAttr
    widths: ArrayAttr[IntAttr]

    @staticmethod
    def of(order: str, widths: Sequence[int]) -> "ScheduleAttr":
        """Return the schedule `order` for tiles of `widths` batch columns."""
        return ScheduleAttr(StringAttr(order), ArrayAttr([IntAttr(width) for width in widths]))

    @property
    def tile_widths(self) -> tuple[int, ...]:
        """The widths as Python integers, in batch columns."""
        return tuple(width.data for width in self.widths)

    def verify(self) -> None:
        if self.order.data not in self.ORDERS:
            raise VerifyException(f"unknown schedule {self.order.data!r}, accepted are {', '.join(self.ORDERS)}")
        widths = self.tile_widths
        if not widths or list(widths) != sorted(set(widths)) or widths[0] < 1:
            raise VerifyException(f"tile widths {list(widths)}, expected ascending positive numbers")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            order = parser.parse_identifier()
            parser.parse_punctuation(",")
            parser.parse_keyword("widths")
            parser.parse_punctuation("=")
            widths = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        return (StringAttr(order), ArrayAttr([IntAttr(width) for width in widths]))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            widths = ", ".join(str(width) for width in self.tile_widths)
            printer.print_string(f"{self.order.data}, widths = [{widths}]")

"""Attributes that passes write for those that come later: I/O bounds and schedules."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from redpebble.dialect.attributes.latencies import TimesAttr


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
    """The order of work inside a tile, the tile's widths, and how threads share it.

    ```mlir
    #pebble.schedule<layer_by_layer, widths = [1, 16, 64], pieces = 2, alone [1: 9.1, 16: 95.3, 64: 241.0],
        together [16: 61.0, 64: 160.2]>
    ```

    `widths` are batch columns, ascending; code exists for each, and a batch is cut into as few tiles as they allow.
    With several `pieces`, ops are cut into so many. Tiles of the widths in `together` may be done by as many threads,
    each its piece of every op; otherwise a thread does a tile alone, one piece after the other. The numbers are
    estimates of the microseconds of a tile; from them follows for each batch how threads do its tiles.
    """

    name = "pebble.schedule"
    ORDERS: ClassVar = ("layer_by_layer",)

    order: StringAttr
    widths: ArrayAttr[IntAttr]
    pieces: IntAttr
    alone: TimesAttr
    together: TimesAttr

    @staticmethod
    def of(order: str, widths: Sequence[int], sharing: "Sharing | None" = None) -> "ScheduleAttr":
        """Return the schedule `order` for tiles of `widths` batch columns, which threads share as `sharing` says."""
        widths_attr = ArrayAttr([IntAttr(width) for width in widths])
        pieces, alone, together = sharing or Sharing(1, {}, {})
        return ScheduleAttr(
            StringAttr(order), widths_attr, IntAttr(pieces), TimesAttr.of(alone), TimesAttr.of(together)
        )

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
        if self.pieces.data < 1 or (self.pieces.data == 1 and self.together.by_width):
            raise VerifyException(f"{self.pieces.data} pieces, expected 1 or more, and several to do together")
        for width in self.alone.by_width:
            if width not in widths:
                raise VerifyException(f"a time at width {width}, expected one of {list(widths)}")
        together = tuple(self.together.by_width)
        if together != widths[len(widths) - len(together) :]:
            raise VerifyException(f"times together at widths {list(together)}, expected the widest of {list(widths)}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        pieces, times = 1, {"alone": TimesAttr.of({}), "together": TimesAttr.of({})}
        with parser.in_angle_brackets():
            order = parser.parse_identifier()
            parser.parse_punctuation(",")
            parser.parse_keyword("widths")
            parser.parse_punctuation("=")
            widths = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            while parser.parse_optional_punctuation(",") is not None:
                if parser.parse_optional_keyword("pieces") is not None:
                    parser.parse_punctuation("=")
                    pieces = parser.parse_integer()
                    continue
                word = "alone" if parser.parse_optional_keyword("alone") is not None else "together"
                if word == "together":
                    parser.parse_keyword(word)
                times[word] = TimesAttr.parse_times(parser)
        widths_attr = ArrayAttr([IntAttr(width) for width in widths])
        return (StringAttr(order), widths_attr, IntAttr(pieces), times["alone"], times["together"])

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            widths = ", ".join(str(width) for width in self.tile_widths)
            printer.print_string(f"{self.order.data}, widths = [{widths}]")
            if self.pieces.data > 1:
                printer.print_string(f", pieces = {self.pieces.data}")
            for word, times in (("alone", self.alone), ("together", self.together)):
                if times.by_width:
                    printer.print_string(f", {word} {times.text}")


class Sharing(NamedTuple):
    """How threads share a tile: pieces of its ops, and microseconds by width of one thread and of all together."""

    pieces: int
    alone: Mapping[int, float]
    together: Mapping[int, float]

"""The widths of tiles, and how threads share them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from redpebble.dialect.attributes.latencies import TimesAttr


class Sharing(NamedTuple):
    """How threads share a tile: pieces of its ops, and microseconds by width of one thread and of all together."""

    pieces: int
    alone: Mapping[int, float]
    together: Mapping[int, float]


@irdl_attr_definition
class ScheduleAttr(ParametrizedAttribute):
    """The widths of a tile, and how threads share it.

    ```mlir
    #pebble.schedule<widths = [1, 16, 64], pieces = 2, alone [1: 9.1, 16: 95.3, 64: 241.0],
        together [16: 61.0, 64: 160.2]>
    ```

    `widths` are batch columns, ascending; code exists for each, and a batch is cut into as few tiles as they allow.
    With several `pieces`, ops are cut into so many. Tiles of the widths in `together` may be done by as many threads,
    each its piece of every op; otherwise a thread does a tile alone, one piece after the other. The numbers are
    estimates of the microseconds of a tile; from them follows for each batch how threads do its tiles.
    """

    name = "pebble.schedule"

    widths: ArrayAttr[IntAttr]
    pieces: IntAttr
    alone: TimesAttr
    together: TimesAttr

    @staticmethod
    def of(widths: Sequence[int], sharing: Sharing | None = None) -> "ScheduleAttr":
        """Return the schedule for tiles of `widths` batch columns, which threads share as `sharing` says."""
        widths_attr = ArrayAttr([IntAttr(width) for width in widths])
        pieces, alone, together = sharing or Sharing(1, {}, {})
        return ScheduleAttr(widths_attr, IntAttr(pieces), TimesAttr.of(alone), TimesAttr.of(together))

    @property
    def tile_widths(self) -> tuple[int, ...]:
        """The widths as Python integers, in batch columns."""
        return tuple(width.data for width in self.widths)

    def verify(self) -> None:
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
        return (widths_attr, IntAttr(pieces), times["alone"], times["together"])

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            widths = ", ".join(str(width) for width in self.tile_widths)
            printer.print_string(f"widths = [{widths}]")
            if self.pieces.data > 1:
                printer.print_string(f", pieces = {self.pieces.data}")
            for word, times in (("alone", self.alone), ("together", self.together)):
                if times.by_width:
                    printer.print_string(f", {word} {times.text}")

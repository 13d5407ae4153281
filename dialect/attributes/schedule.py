"""The widths of tiles, and how threads share them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ...kernels.tile_widths import least_rows
from .latencies import TimesAttr


class Sharing(NamedTuple):
    """Schedule of a tile on threads: shares of its ops, and microseconds by width of one thread and of all of them."""

    shares: int
    serial_us: Mapping[int, float]
    shared_us: Mapping[int, float]


@irdl_attr_definition
class ScheduleAttr(ParametrizedAttribute):
    """The widths of a tile, and how threads share it.

    ```mlir
    #pebble.schedule<widths = [1, 16, 64], shares = 2, serial [1: 9.1, 16: 95.3, 64: 241.0],
        shared [16: 61.0, 64: 160.2]>
    ```

    `widths` are batch columns, ascending; code exists for each, and a batch is cut into as few tiles as they allow.
    With several `shares`, ops are cut into so many. Tiles of the widths in `shared` may be done by as many threads,
    each its share of every op; otherwise one thread does a tile, share after share. The numbers are
    estimates of the microseconds of a tile; from them follows for each batch how threads do its tiles.
    """

    name = "pebble.schedule"

    widths: ArrayAttr[IntAttr]
    shares: IntAttr
    serial: TimesAttr
    shared: TimesAttr

    @staticmethod
    def of(widths: Sequence[int], sharing: Sharing | None = None) -> "ScheduleAttr":
        """Return the schedule for tiles of `widths` batch columns, which threads share as `sharing` says."""
        widths_attr = ArrayAttr([IntAttr(width) for width in widths])
        shares, serial_us, shared_us = sharing or Sharing(1, {}, {})
        return ScheduleAttr(widths_attr, IntAttr(shares), TimesAttr.of(serial_us), TimesAttr.of(shared_us))

    @property
    def tile_widths(self) -> tuple[int, ...]:
        """The widths as Python integers, in batch columns."""
        return tuple(width.data for width in self.widths)

    @property
    def least_rows(self) -> dict[int, int]:
        """The rows from which a tile of each width is used, ascending.

        Where there are times, a wider tile is used as soon as it takes no longer than the best that narrower ones can
        do; otherwise when more than the middle between it and the next narrower one is left.
        """
        widths, serial_us = self.tile_widths, self.serial.by_width
        if not all(width in serial_us for width in widths):
            pairs = zip((0, *widths), widths, strict=False)
            return {width: less + (width - less) // 2 + 1 if less else 1 for less, width in pairs}
        return least_rows({width: serial_us[width] for width in widths})

    def verify(self) -> None:
        widths = self.tile_widths
        if not widths or list(widths) != sorted(set(widths)) or widths[0] < 1:
            raise VerifyException(f"tile widths {list(widths)}, expected ascending positive numbers")
        if self.shares.data < 1 or (self.shares.data == 1 and self.shared.by_width):
            raise VerifyException(f"{self.shares.data} shares, expected 1 or more, and several for shared times")
        for width in self.serial.by_width:
            if width not in widths:
                raise VerifyException(f"a time at width {width}, expected one of {list(widths)}")
        shared = tuple(self.shared.by_width)
        if shared != widths[len(widths) - len(shared) :]:
            raise VerifyException(f"shared times at widths {list(shared)}, expected the widest of {list(widths)}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        shares, times = 1, {"serial": TimesAttr.of({}), "shared": TimesAttr.of({})}
        with parser.in_angle_brackets():
            parser.parse_keyword("widths")
            parser.parse_punctuation("=")
            widths = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            while parser.parse_optional_punctuation(",") is not None:
                if parser.parse_optional_keyword("shares") is not None:
                    parser.parse_punctuation("=")
                    shares = parser.parse_integer()
                    continue
                word = "serial" if parser.parse_optional_keyword("serial") is not None else "shared"
                if word == "shared":
                    parser.parse_keyword(word)
                times[word] = TimesAttr.parse_times(parser)
        widths_attr = ArrayAttr([IntAttr(width) for width in widths])
        return (widths_attr, IntAttr(shares), times["serial"], times["shared"])

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            widths = ", ".join(str(width) for width in self.tile_widths)
            printer.print_string(f"widths = [{widths}]")
            if self.shares.data > 1:
                printer.print_string(f", shares = {self.shares.data}")
            for word, times in (("serial", self.serial), ("shared", self.shared)):
                if times.by_width:
                    printer.print_string(f", {word} {times.text}")

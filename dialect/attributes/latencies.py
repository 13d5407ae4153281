"""Times of a layer by the width of the batch tile, as the cost model predicts them or a clock has found them."""

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntAttr, f64
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException


@irdl_attr_definition
class TimesAttr(ParametrizedAttribute):
    """Microseconds of a tile by its width in batch columns: `#pebble.times<[1: 6.8, 64: 113.0]>`."""

    name = "pebble.times"

    widths: ArrayAttr[IntAttr]
    microseconds: ArrayAttr[FloatAttr]

    @staticmethod
    def of(times: Mapping[int, float]) -> "TimesAttr":
        """Return times in microseconds, kept to four digits: a clock has no more to say, and the text stays short."""
        widths = ArrayAttr([IntAttr(width) for width in times])
        return TimesAttr(widths, ArrayAttr([FloatAttr(float(f"{time:.4g}"), f64) for time in times.values()]))

    @property
    def by_width(self) -> dict[int, float]:
        """The microseconds by width."""
        times = (time.value.data for time in self.microseconds)
        return {width.data: time for width, time in zip(self.widths, times, strict=True)}

    def verify(self) -> None:
        widths = [width.data for width in self.widths]
        if len(widths) != len(self.microseconds) or widths != sorted(set(widths)) or min(widths, default=1) < 1:
            raise VerifyException(f"times at widths {widths}, expected ascending positive ones with a time each")
        for width, time in self.by_width.items():
            if not time >= 0:
                raise VerifyException(f"a time of {time} us at width {width}, expected 0 or more")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            times = cls.parse_times(parser)
        return times.parameters

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.text)

    @property
    def text(self) -> str:
        """The times as they are printed."""
        return "[" + ", ".join(f"{width}: {time!r}" for width, time in self.by_width.items()) + "]"

    @staticmethod
    def parse_times(parser: AttrParser) -> "TimesAttr":
        """Parse what `text` is."""

        def entry() -> tuple[int, float]:
            width = parser.parse_integer()
            parser.parse_punctuation(":")
            return width, float(parser.parse_number(allow_boolean=False))

        entries = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, entry)
        return TimesAttr(
            ArrayAttr([IntAttr(width) for width, _ in entries]),
            ArrayAttr([FloatAttr(time, f64) for _, time in entries]),
        )

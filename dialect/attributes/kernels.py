"""The kernel families chosen for a layer."""

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from .input_blocks import InputBlocksAttr
from .latencies import TimesAttr


@irdl_attr_definition
class KernelAttr(ParametrizedAttribute):
    """The kernel families that execute a layer, by the width of the batch tile, its times, and why.

    ```mlir
    #pebble.kernel<permute_lookup from 1, count_blocks from 8, blocks [count_blocks: 4], predicted [1: 6.8, 8: 16.2],
        "density 0.050, stored sparse">
    ```

    The first family is from 1. `blocks` are the numbers of blocks of inputs that families work through one after the
    other: a family over blocks that is not named there has the fewest that its code can have. `predicted` are the
    microseconds of tiles of some widths by the cost model, `measured` those by the clock. All three may be missing.
    """

    name = "pebble.kernel"

    families: ArrayAttr[StringAttr]
    widths: ArrayAttr[IntAttr]
    blocks: InputBlocksAttr
    predicted: TimesAttr
    measured: TimesAttr
    reason: StringAttr

    @staticmethod
    def of(
        family: str | Mapping[int, str],
        reason: str,
        predicted: Mapping[int, float] | None = None,
        measured: Mapping[int, float] | None = None,
    ) -> "KernelAttr":
        """Return the choice of one family, or of families by the width from which they are used, with its reason."""
        choices = {1: family} if isinstance(family, str) else family
        return KernelAttr(
            ArrayAttr([StringAttr(name) for name in choices.values()]),
            ArrayAttr([IntAttr(width) for width in choices]),
            InputBlocksAttr.of({}),
            TimesAttr.of(predicted or {}),
            TimesAttr.of(measured or {}),
            StringAttr(reason),
        )

    def with_blocks(self, blocks: Mapping[str, int]) -> "KernelAttr":
        """Return the same choice with numbers of blocks of inputs by family."""
        return KernelAttr(
            self.families, self.widths, InputBlocksAttr.of(blocks), self.predicted, self.measured, self.reason
        )

    @property
    def choices(self) -> dict[int, str]:
        """The families by the width in batch columns from which each is used."""
        widths = (width.data for width in self.widths)
        return {width: family.data for width, family in zip(widths, self.families, strict=True)}

    def family_at(self, width: int) -> str:
        """Return the family for tiles of `width` batch columns."""
        return self.choices[max(start for start in self.choices if start <= width)]

    def verify(self) -> None:
        widths = [width.data for width in self.widths]
        if len(widths) != len(self.families) or widths != sorted(set(widths)) or widths[:1] != [1]:
            raise VerifyException(f"families from widths {widths}, expected ascending ones that start at 1")
        families = list(dict.fromkeys(self.choices.values()))
        for family in self.blocks.by_family:
            if family not in families:
                raise VerifyException(f"blocks of {family}, accepted are the families {', '.join(families)}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        families: list[StringAttr] = []
        widths: list[IntAttr] = []
        times = {"predicted": TimesAttr.of({}), "measured": TimesAttr.of({})}
        blocks = InputBlocksAttr.of({})
        with parser.in_angle_brackets():
            while (word := parser.parse_optional_identifier()) is not None:
                if word in times:
                    times[word] = TimesAttr.parse_times(parser)
                elif word == "blocks":
                    blocks = InputBlocksAttr.parse_blocks(parser)
                else:
                    families.append(StringAttr(word))
                    from_width = parser.parse_optional_keyword("from") is not None
                    widths.append(IntAttr(parser.parse_integer() if from_width else 1))
                parser.parse_punctuation(",")
            reason = parser.parse_str_literal()
        decided = (ArrayAttr(families), ArrayAttr(widths), blocks)
        return (*decided, times["predicted"], times["measured"], StringAttr(reason))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            only = len(self.families) == 1
            for width, family in self.choices.items():
                printer.print_string(f"{family}, " if only else f"{family} from {width}, ")
            if self.blocks.by_family:
                printer.print_string(f"blocks {self.blocks.text}, ")
            for word, times in (("predicted", self.predicted), ("measured", self.measured)):
                if times.by_width:
                    printer.print_string(f"{word} {times.text}, ")
            printer.print_string_literal(self.reason.data)

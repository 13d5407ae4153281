"""Numbers of blocks that kernels cut the inputs of a layer into, by the kernel family."""

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException


@irdl_attr_definition
class InputBlocksAttr(ParametrizedAttribute):
    """The number of blocks of inputs by family: `#pebble.input_blocks<[count_blocks: 4, narrow_blocks: 1]>`.

    Blocks have about equally many inputs. A family over blocks that is not named has the fewest that its code can have.
    """

    name = "pebble.input_blocks"

    families: ArrayAttr[StringAttr]
    counts: ArrayAttr[IntAttr]

    @staticmethod
    def of(blocks: Mapping[str, int]) -> "InputBlocksAttr":
        """Return numbers of blocks by family."""
        families = ArrayAttr([StringAttr(family) for family in blocks])
        return InputBlocksAttr(families, ArrayAttr([IntAttr(count) for count in blocks.values()]))

    @property
    def by_family(self) -> dict[str, int]:
        """The number of blocks by family."""
        return {family.data: count.data for family, count in zip(self.families, self.counts, strict=True)}

    def verify(self) -> None:
        families = [family.data for family in self.families]
        if len(families) != len(self.counts) or len(set(families)) != len(families):
            raise VerifyException(f"blocks of {', '.join(families)}, expected different families with a number each")
        for family, count in self.by_family.items():
            if count < 1:
                raise VerifyException(f"{family} has {count} blocks, expected 1 or more")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            blocks = cls.parse_blocks(parser)
        return blocks.parameters

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.text)

    @property
    def text(self) -> str:
        """The numbers as they are printed."""
        return "[" + ", ".join(f"{family}: {count}" for family, count in self.by_family.items()) + "]"

    @staticmethod
    def parse_blocks(parser: AttrParser) -> "InputBlocksAttr":
        """Parse what `text` is."""

        def entry() -> tuple[str, int]:
            family = parser.parse_identifier()
            parser.parse_punctuation(":")
            return family, parser.parse_integer()

        entries = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, entry)
        return InputBlocksAttr(
            ArrayAttr([StringAttr(family) for family, _ in entries]),
            ArrayAttr([IntAttr(count) for _, count in entries]),
        )

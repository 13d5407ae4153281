"""Bounds on what a layer must move between memories."""

from collections.abc import Sequence

from xdsl.dialects.builtin import IntAttr
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

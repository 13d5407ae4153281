"""The order in which a sum over edges takes its targets, and the share of edges that read a source anew in it."""

from collections.abc import Sequence

from xdsl.dialects.builtin import FloatAttr, f64
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException


@irdl_attr_definition
class TargetWalkAttr(ParametrizedAttribute):
    """A walk in reverse Cuthill-McKee order; `anew` is the share of edges whose source the cache does not hold.

    `otherwise` is that of the order of the nodes' numbers.

    ```mlir
    #pebble.target_walk<near, anew = 1.2e-01, otherwise = 9.5e-01>
    ```
    """

    name = "pebble.target_walk"

    anew: FloatAttr
    otherwise: FloatAttr

    @staticmethod
    def of(anew: float, otherwise: float) -> "TargetWalkAttr":
        """Return the walk with both shares."""
        return TargetWalkAttr(*(FloatAttr(float(f"{share:.3g}"), f64) for share in (anew, otherwise)))

    def verify(self) -> None:
        if not min(self.anew.value.data, self.otherwise.value.data) >= 0:
            raise VerifyException("a share is negative")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            parser.parse_keyword("near")
            shares: list[FloatAttr] = []
            for word in ("anew", "otherwise"):
                parser.parse_punctuation(",")
                parser.parse_keyword(word)
                parser.parse_punctuation("=")
                shares.append(FloatAttr(float(parser.parse_number()), f64))
        return tuple(shares)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            shares = f"anew = {self.anew.value.data:e}, otherwise = {self.otherwise.value.data:e}"
            printer.print_string(f"near, {shares}")

"""The order of two products, over the edges of a graph and with weights, and the predicted time of either order."""

from collections.abc import Sequence
from typing import Final

from xdsl.dialects.builtin import FloatAttr, StringAttr, f64
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

GRAPH_FIRST: Final = "graph"
WEIGHTS_FIRST: Final = "weights"
KINDS: Final = (GRAPH_FIRST, WEIGHTS_FIRST)


@irdl_attr_definition
class ProductOrderAttr(ParametrizedAttribute):
    """The product that comes first, `graph` in (A X) W, `weights` in A (X W), and the microseconds of both orders.

    ```mlir
    #pebble.product_order<graph first, us = 8.4e+01, otherwise = 2.05e+02>
    ```
    """

    name = "pebble.product_order"

    first: StringAttr
    us: FloatAttr
    otherwise: FloatAttr

    @staticmethod
    def of(first: str, us: float, otherwise: float) -> "ProductOrderAttr":
        """Return the order that was chosen, its predicted time and that of the other one."""
        # digits that nobody can trust would make texts differ between machines
        return ProductOrderAttr(StringAttr(first), *(FloatAttr(float(f"{time:.3g}"), f64) for time in (us, otherwise)))

    @property
    def sentence(self) -> str:
        """The choice in words."""
        words = {GRAPH_FIRST: "(A X) W", WEIGHTS_FIRST: "A (X W)"}
        chosen = words.pop(self.first.data)
        return f"{chosen}, {self.us.value.data:g} us, {words.popitem()[1]} {self.otherwise.value.data:g} us"

    def verify(self) -> None:
        if self.first.data not in KINDS:
            raise VerifyException(f"{self.first.data} first, accepted are {' and '.join(KINDS)}")
        if min(self.us.value.data, self.otherwise.value.data) < 0:
            raise VerifyException("a predicted time is negative")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            first = StringAttr(parser.parse_identifier())
            parser.parse_keyword("first")
            times: list[FloatAttr] = []
            for word in ("us", "otherwise"):
                parser.parse_punctuation(",")
                parser.parse_keyword(word)
                parser.parse_punctuation("=")
                times.append(FloatAttr(float(parser.parse_number()), f64))
        return (first, *times)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            times = f"us = {self.us.value.data:e}, otherwise = {self.otherwise.value.data:e}"
            printer.print_string(f"{self.first.data} first, {times}")

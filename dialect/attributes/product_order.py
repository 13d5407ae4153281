"""The order of two products, over the edges of a graph and with weights, and the predicted time of either order."""

from typing import Final

from xdsl.utils.exceptions import VerifyException

from ..record import Estimate, Record

GRAPH_FIRST: Final = "graph"
WEIGHTS_FIRST: Final = "weights"
KINDS: Final = (GRAPH_FIRST, WEIGHTS_FIRST)


class ProductOrderAttr(Record, text="{first} first, us = {us}, otherwise = {otherwise}"):
    """The product that comes first, `graph` in (A X) W, `weights` in A (X W), and the microseconds of both orders.

    ```mlir
    #pebble.product_order<graph first, us = 8.4e+01, otherwise = 2.05e+02>
    ```
    """

    name = "pebble.product_order"

    first: str
    us: Estimate
    otherwise: Estimate

    @property
    def sentence(self) -> str:
        """The choice in words."""
        words = {GRAPH_FIRST: "(A X) W", WEIGHTS_FIRST: "A (X W)"}
        chosen = words.pop(self.first)
        return f"{chosen}, {self.us:g} us, {words.popitem()[1]} {self.otherwise:g} us"

    def verify(self) -> None:
        if self.first not in KINDS:
            raise VerifyException(f"expected {' or '.join(KINDS)} first, got {self.first}")
        if min(self.us, self.otherwise) < 0:
            raise VerifyException("a predicted time is negative")

"""Bounds on what a layer must move between memories."""

from xdsl.utils.exceptions import VerifyException

from ..record import Bounds, Record


class IoBoundsAttr(Record, text="reads = {reads}, writes = {writes}"):
    """Fewest and most transfers of a good order, in values for a batch of one.

    ```mlir
    #pebble.io_bounds<reads = 9 to 12, writes = 2 to 4>
    ```
    """

    name = "pebble.io_bounds"

    reads: Bounds
    writes: Bounds

    def verify(self) -> None:
        for word, (low, high) in (("reads", self.reads), ("writes", self.writes)):
            if not 0 <= low <= high:
                raise VerifyException(f"expected 0 <= lower <= upper of {word}, got {low} to {high}")

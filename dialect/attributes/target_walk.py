"""The order in which a sum over edges takes its targets, and the share of edges that read a source anew in it."""

from xdsl.utils.exceptions import VerifyException

from ..record import Estimate, Record


class TargetWalkAttr(Record, text="near, anew = {anew}, otherwise = {otherwise}"):
    """A walk in reverse Cuthill-McKee order; `anew` is the share of edges whose source the cache does not hold.

    `otherwise` is that of the order of the nodes' numbers.

    ```mlir
    #pebble.target_walk<near, anew = 1.2e-01, otherwise = 9.5e-01>
    ```
    """

    name = "pebble.target_walk"

    anew: Estimate
    otherwise: Estimate

    def verify(self) -> None:
        if not min(self.anew, self.otherwise) >= 0:
            raise VerifyException("a share is negative")

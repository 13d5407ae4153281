"""Attributes about the movement of values: what an order of connections transfers, and what every order must.

Counts are for a fast memory of M values; in the batched form of M rows, one value for each column of a batch tile.
"""

from xdsl.utils.exceptions import VerifyException

from ..record import Bounds, Record, Text

POLICIES = ("min", "lru")
"""The eviction policy of fast memory: the value used again last leaves, or the one not used for longest."""


class TransferCountAttr(
    Record,
    text="memory = {memory}, policy = {policy}, weight_reads = {weight_reads}, bias_reads = {bias_reads}, "
    "row_reads = {row_reads}, row_writes = {row_writes}, order = {order}",
):
    """Transfers of one order, and the digest of that order: on any other order the verifier refuses the count.

    ```mlir
    #pebble.transfer_count<memory = 4, policy = min, weight_reads = 3, bias_reads = 2, row_reads = 3, row_writes = 1,
      order = "0f1e2d3c4b5a6978">
    ```
    """

    name = "pebble.transfer_count"

    memory: int
    policy: str
    weight_reads: int
    bias_reads: int
    row_reads: int
    row_writes: int
    order: Text

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Reads of weights, biases and rows, and writes of rows."""
        return self.weight_reads, self.bias_reads, self.row_reads, self.row_writes

    @property
    def reads(self) -> int:
        """Values read, for a batch of one."""
        return sum(self.counts[:3])

    def verify(self) -> None:
        _verify_memory(self.memory, self.policy)
        if min(self.counts) < 0:
            raise VerifyException(f"expected counts of 0 or more, got {list(self.counts)}")


class InstanceBoundAttr(
    Record,
    text="memory = {memory}, batch_tile = {batch_tile}, policy = {policy}, transfers = {transfers}, by {argument}",
):
    """Fewest transfers of any order, by a certified argument, and those of the pull order under `policy`.

    Values moved for a batch tile of `batch_tile` columns, with a fast memory of `memory` rows.

    ```mlir
    #pebble.instance_bound<memory = 100, batch_tile = 1, policy = min, transfers = 78268 to 113934, by "segments">
    ```
    """

    name = "pebble.instance_bound"

    memory: int
    batch_tile: int
    policy: str
    transfers: Bounds
    """Fewest of any order, and those of the pull order."""
    argument: Text

    def verify(self) -> None:
        _verify_memory(self.memory, self.policy)
        if self.batch_tile < 1:
            raise VerifyException(f"expected a batch tile of 1 or more, got {self.batch_tile}")
        fewest, pull = self.transfers
        if not 0 <= fewest <= pull:
            raise VerifyException(f"expected 0 <= lower <= upper of transfers, got {fewest} to {pull}")


def _verify_memory(memory: int, policy: str) -> None:
    if memory < 3:
        raise VerifyException(f"expected a memory of 3 values or more, got {memory}")
    if policy not in POLICIES:
        raise VerifyException(f"expected a policy of {', '.join(POLICIES)}, got {policy!r}")

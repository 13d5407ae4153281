"""The memory machine: reads and writes of a connection order, for a fast memory of M values.

Slow memory holds weights, biases and inputs, and at the end the outputs. Running connection (u, v) needs its weight
(one slot, streamed), the final value of u and the partial sum of v in fast memory, so M >= 3 and M - 1 slots hold
neurons. A partial sum starts as the bias, one read. Dropping a clean or dead value is free; dropping a live partial
sum, or an activation that slow memory lacks and that is still needed, costs a write now and a read later. An output is
written once it is final. `machine_compiled` counts the transfers of an order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

Policy = Literal["min", "lru", "rr", "writeback"]
"""The value that leaves a full fast memory; dead ones need no choice, they leave at their last use.

* `min`: that whose next use is farthest (Belady's MIN). No eviction reads less for a given order; some write less.
* `lru`: that whose last use is longest ago.
* `rr`: round robin, that in the slot at a hand, which then goes on to the next slot. A free slot is filled first.
* `writeback`: that whose next use is farthest, where the way to it counts less for a value that must be written; the
  weight of a write is the best of a few for the order, so that `writeback` never moves more than `min`.
"""

POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)


@dataclass(frozen=True)
class Memory:
    """A fast memory: `capacity` M in values (in rows of B values for the batched form) and the policy of eviction.

    Raises:
        ValueError: M < 3, or an unknown policy.
    """

    capacity: int
    policy: Policy = "min"

    def __post_init__(self) -> None:
        """Check both fields."""
        if self.capacity < 3:
            raise ValueError(f"expected a fast memory of 3 values or more, got {self.capacity}")
        if self.policy not in POLICIES:
            raise ValueError(f"expected a policy of {', '.join(POLICIES)}, got {self.policy!r}")


@dataclass(frozen=True)
class TransferCount:
    """Transfers of one run, apart by what they move: weights and biases are single values, the others rows.

    With a batch tile of B columns a row is B values; without, B = 1.
    """

    weight_reads: int
    bias_reads: int
    row_reads: int
    row_writes: int

    @property
    def reads(self) -> int:
        """Values read, B = 1."""
        return self.weight_reads + self.bias_reads + self.row_reads

    @property
    def writes(self) -> int:
        """Values written, B = 1."""
        return self.row_writes

    @property
    def total(self) -> int:
        """Values moved, B = 1."""
        return self.reads + self.writes

    def batched_reads(self, batch: int) -> int:
        """Values read for a batch tile of `batch` columns."""
        return self.weight_reads + self.bias_reads + batch * self.row_reads

    def batched_writes(self, batch: int) -> int:
        """Values written for a batch tile of `batch` columns."""
        return batch * self.row_writes

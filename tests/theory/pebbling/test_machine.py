"""Fast memories that can be, and those that cannot."""

from __future__ import annotations

from typing import cast

import pytest

from redpebble.theory.pebbling.machine import Memory, Policy, TransferCount


def test_a_row_is_as_many_values_as_the_batch_tile_has_columns() -> None:
    count = TransferCount(weight_reads=4, bias_reads=2, row_reads=3, row_writes=3)
    assert (count.reads, count.writes, count.total) == (9, 3, 12)
    assert (count.batched_reads(10), count.batched_writes(10)) == (6 + 30, 30)


def test_too_little_memory_and_an_unknown_policy_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a fast memory of 3 values or more, got 2"):
        Memory(2)
    with pytest.raises(ValueError, match="expected a policy of min, lru, rr, writeback, got 'fifo'"):
        Memory(3, cast("Policy", "fifo"))

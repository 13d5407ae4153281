"""Sizes of fast memory on the command line, in rows or in bytes."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ...distributed.plans.cluster import VALUE_BYTES
from ...distributed.plans.plans import parse_bytes
from ...sparse.neuron_graph import NeuronGraph

CURVE_POINTS: Final = 9
"""Memories of a curve where none are given."""


def memory_sizes(text: str, batch_tile: int) -> tuple[int, ...]:
    """Return the sizes in a list such as `20,50,48KiB` in rows of `batch_tile` values, ascending.

    Raises:
        ValueError: something in it is no size.
    """
    sizes: set[int] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word.isdigit():
            sizes.add(int(word))
            continue
        try:
            sizes.add(parse_bytes(word) // (VALUE_BYTES * max(1, batch_tile)))
        except ValueError as error:
            raise ValueError(f"memory: expected rows such as 20 or bytes such as 48KiB, got {word!r}") from error
    return tuple(sorted(sizes))


def spread_sizes(networks: Sequence[NeuronGraph], memory: int | None = None) -> list[int]:
    """Return sizes from 3 to where everything fits, about evenly spread by their logarithm; `memory` is among them."""
    wanted: set[int] = set() if memory is None else {memory}
    largest = max(*wanted, *(2 + network.neuron_count for network in networks), 4)
    spread: list[int] = np.geomspace(3, largest, CURVE_POINTS).round().astype(np.int64).tolist()
    return sorted({*spread, *wanted})

"""How far searches come on the three networks that every figure is quoted for, in multiples of W + N + S."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from redpebble.theory.pebbling.bounds.bounds import lower_bound
from redpebble.theory.pebbling.search.search import SearchRequest, search_order
from tests.support.neuron_graphs import random_layers

# Width, density, M.
NETWORKS = {"A": (500, 0.1, 100), "B": (100, 0.1, 30), "C": (500, 0.01, 100)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, policy, proposals, most",
    [
        ("A", "min", 1_200_000, 1.095),
        ("B", "min", 6_000_000, 1.190),
        ("C", "min", 10_000_000, 1.243),
        ("A", "lru", 600_000, 1.150),
        ("B", "lru", 4_000_000, 1.265),
        ("C", "lru", 6_000_000, 1.345),
    ],
)
def test_some_seconds_of_search_reach_a_known_multiple(
    name: str, policy: Literal["min", "lru"], proposals: int, most: float
) -> None:
    width, density, capacity = NETWORKS[name]
    network = random_layers([width] * 4, density, np.random.default_rng(0))
    request = SearchRequest(capacity, policy, proposals=proposals)
    found = search_order(network, request, np.random.default_rng(0))
    assert found.counts.total <= most * lower_bound(network).total

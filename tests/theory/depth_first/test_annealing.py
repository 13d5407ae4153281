"""Schedules of a chain are annealed to cheaper ones, never to worse, and cost what counting from nothing says."""

from itertools import pairwise

import numpy as np
import pytest

from redpebble.kernels.tile_costs import TileTraffic
from redpebble.sparse.csr import CsrPattern
from redpebble.theory.depth_first.annealing import Prices, Schedule, anneal_schedule
from redpebble.theory.depth_first.traffic import FAR_SHARE, NEAR_SHARE, Caches, Group, ScheduleCosts, row_traffic

WIDTH = 256
WIDTHS = (64, 32, 16)
CACHES = Caches(1 << 12, 1 << 15)


def butterfly(depth: int) -> list[CsrPattern]:
    own = np.arange(WIDTH)
    reads = [np.sort(np.stack([own, own ^ (1 << layer % 8)], axis=1)) for layer in range(depth)]
    return [CsrPattern(np.arange(0, 2 * WIDTH + 1, 2), read.ravel(), WIDTH) for read in reads]


def band(depth: int, rng: np.random.Generator) -> list[CsrPattern]:
    orders = [rng.permutation(WIDTH) for _ in range(depth + 1)]
    layers: list[CsrPattern] = []
    for before, after in pairwise(orders):
        reads = np.empty((WIDTH, 5), dtype=np.int64)
        reads[after] = np.sort(before[(np.arange(WIDTH)[:, None] + np.arange(5)) % WIDTH], axis=1)
        layers.append(CsrPattern(np.arange(0, 5 * WIDTH + 1, 5), reads.ravel(), WIDTH))
    return layers


def transpose_us(features: int, width: int) -> float:
    return 1e-3 * features * width**0.5


def prices(layers: list[CsrPattern]) -> Prices:
    return Prices(ScheduleCosts(layers, CACHES, WIDTHS), transpose_us, 4096)


def one_by_one(layers: list[CsrPattern], width: int) -> TileTraffic:
    """What the layers move one after the other, between two places, neuron by neuron."""
    rows: list[int] = []
    changed: list[bool] = []
    for number, layer in enumerate(layers):
        here, there = (number % 2) * WIDTH, (number + 1) % 2 * WIDTH
        for output in range(layer.row_count):
            own: list[int] = layer.of(output).tolist()
            rows += [*(here + source for source in own), there + output]
            changed += [False] * len(own) + [True]
    accesses = np.array(rows, dtype=np.int32), np.array(changed)
    near, far = (
        4 * width * row_traffic(*accesses, int(share * size) // (4 * width)).total
        for share, size in ((NEAR_SHARE, CACHES.l1_bytes), (FAR_SHARE, CACHES.l2_bytes))
    )
    return TileTraffic(len(rows) - sum(changed), near, far, sum(changed))


def test_layers_one_by_one_move_what_their_accesses_do() -> None:
    layers = band(3, np.random.default_rng(0))
    for width in WIDTHS:
        assert prices(layers).costs.one_by_one(0, 3)[width] == one_by_one(layers, width)


def test_a_group_of_a_hidden_band_moves_less_than_its_layers() -> None:
    costs = prices(band(6, np.random.default_rng(1))).costs
    group = costs.group(Group(0, 6, 16))
    assert group.slots == costs.slots(Group(0, 6, 16)) < 3 * WIDTH
    for width in (64, 32):
        assert group.traffic[width].connections == costs.one_by_one(0, 6)[width].connections
        assert group.traffic[width].far_bytes < costs.one_by_one(0, 6)[width].far_bytes / 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["butterfly", "band", "nothing"])
def test_annealing_finds_a_cheaper_schedule_and_prices_it_right(kind: str) -> None:
    rng = np.random.default_rng(2)
    layers = butterfly(8) if kind == "butterfly" else band(6, rng)
    start = Schedule(() if kind == "nothing" else (Group(0, len(layers), 512),), 16)
    first, again = (anneal_schedule(prices(layers), start, 0.2, np.random.default_rng(0)) for _ in range(2))
    assert first == again
    assert first.cost == round(1e6 * prices(layers).row_us(first.best)) < 1e6 * prices(layers).row_us(start)
    assert first.cost == min(point.best_cost for point in first.trace)


def test_groups_that_need_more_slots_than_there_are_cost_too_much() -> None:
    few = Prices(ScheduleCosts(butterfly(8), CACHES, WIDTHS), transpose_us, 8)
    assert few.microseconds((Group(0, 8, 16),), 64) == float("inf")
    alone = Schedule((), 64)
    assert anneal_schedule(few, alone, 0.05, np.random.default_rng(0)).best.groups == ()

"""Schedules that a search found come first on chains that are alike, and save most of their search."""

from pathlib import Path

import numpy as np
import pytest

from redpebble.passes.tiles.schedule_network import WIDTHS
from redpebble.runtime.store.json_cache import Json, recall, remember
from redpebble.sparse.csr import CscMatrix
from redpebble.theory.depth_first.annealing import Prices, Schedule
from redpebble.theory.depth_first.traffic import Caches, Group, ScheduleCosts
from redpebble.tuning.found_schedules import ScheduleAsBefore, kept_schedules, place_of

L1, L2 = 1 << 13, 1 << 16


def prices(width: int, seed: int, depth: int = 6) -> Prices:
    """Return the costs of a band of random weights that leaves the cache."""
    rng = np.random.default_rng(seed)
    near = np.abs(np.arange(width)[:, None] - np.arange(width)) < 12
    masks = [near & (rng.random((width, width)) < 0.2) for _ in range(depth)]
    layers = [CscMatrix.from_dense(mask.astype(np.float32)).pattern for mask in masks]
    return Prices(
        ScheduleCosts(layers, Caches(L1, L2), WIDTHS), lambda features, width: 1e-4 * features * width, 1 << 15
    )


def one_entry(folder: Path, file: str) -> dict[str, Json]:
    content: list[dict[str, Json]] = recall(folder, file) or []
    (entry,) = content
    return entry


START = Schedule((), 64)


def search(folder: Path, seconds: float = 0.05) -> ScheduleAsBefore:
    return ScheduleAsBefore(L1, L2, seconds, folder=folder)


def fitting(schedule: Schedule, prices: Prices) -> Schedule:
    """Return a schedule without the orders of blocks that a chain of another width has not."""
    groups = (
        group if len(group.blocks) == prices.costs.block_count(group) else group._replace(blocks=())
        for group in schedule.groups
    )
    return schedule._replace(groups=tuple(groups))


@pytest.mark.parametrize(("width", "seed"), [(256, 0), (256, 1), (288, 2)])
def test_chains_that_are_alike_begin_with_what_was_found(width: int, seed: int, tmp_path: Path) -> None:
    first, trace = search(tmp_path).annealed(prices(256, 0), START)
    assert first.groups
    assert "found before" not in trace
    given = prices(width, seed)
    again, trace = search(tmp_path).annealed(given, START)
    alone, _ = search(tmp_path / "other").annealed(prices(width, seed), START)
    # a short search on a slow machine may find what helps its own chain alone
    helps = given.row_us(fitting(first, given)) < given.row_us(START)
    assert ("from one found before" in trace) == helps
    assert helps or (width, seed) != (256, 0)
    assert given.row_us(again) <= 1.03 * given.row_us(alone)


def test_a_chain_of_other_length_begins_anew(tmp_path: Path) -> None:
    search(tmp_path).annealed(prices(256, 0), START)
    _, trace = search(tmp_path).annealed(prices(256, 0, depth=5), START)
    assert "found before" not in trace


def test_schedules_that_make_no_sense_are_not_tried(tmp_path: Path) -> None:
    given = prices(256, 0)
    found, _ = search(tmp_path).annealed(given, START)
    (file,) = (path.stem for path in tmp_path.glob("schedules-*.json"))
    entry = one_entry(tmp_path, file)
    (kept,) = kept_schedules(tmp_path, file)
    assert kept.schedule == found
    assert kept.place == pytest.approx(place_of(given.costs.layers))
    wrong: list[dict[str, Json]] = [{"groups": [[0, 2]]}, {"ratio": float("nan")}, {"width": 1.5}]
    remember(tmp_path, file, [*(entry | one for one in wrong), "x", {}])
    assert kept_schedules(tmp_path, file) == []
    groups = ((0, 99, 64, 0), (3, 2, 64, 0), (0, 2, 1 << 20, 0), (0, 2, 64, 77), (-1, 2, 64, 0))
    for first, end, block, levels in groups:
        remember(tmp_path, file, [{**entry, "groups": [[first, end, block, [], levels]]}])
        _, trace = search(tmp_path, 0.01).annealed(prices(256, 0), START)
        assert "found before" not in trace


def test_an_order_of_blocks_is_only_that_of_as_many(tmp_path: Path) -> None:
    given = prices(256, 0)
    search(tmp_path).annealed(given, START)
    (file,) = (path.stem for path in tmp_path.glob("schedules-*.json"))
    entry = one_entry(tmp_path, file)
    count = given.costs.block_count(Group(0, 6, 16))
    for blocks, kept in (([*range(count)][::-1], True), ([0, 1], False)):
        remember(tmp_path, file, [{**entry, "groups": [[0, 6, 16, blocks, 0]], "width": 32, "seconds": 9}])
        found, trace = search(tmp_path, 0.001).annealed(prices(256, 0), START)
        assert "found before" in trace
        assert (found.groups[0].blocks != ()) is kept

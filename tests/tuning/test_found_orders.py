"""Orders of neurons that a search found come first on networks of the same sizes, and save most of their search."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redpebble.models.zoo import build
from redpebble.options import Options
from redpebble.passes.analysis.neuron_view import NeuronView, neuron_view
from redpebble.passes.neuron_order.reorder_neurons import ReorderNeurons
from redpebble.pipeline import build as module_of
from redpebble.runtime.store.json_cache import recall, remember
from redpebble.theory.neuron_order.neuron_groups import NeuronGroups
from redpebble.theory.neuron_order.search import Reordering, Request
from redpebble.tuning.found_orders import MOST_KEPT, ReorderAsBefore, kept_orders

SECONDS = 0.02


@pytest.fixture(scope="module")
def view() -> NeuronView:
    return neuron_view(module_of(build("ffnn(depth=3, width=96, density=0.1)"), Options(), until="simplify"))


def searched(view: NeuronView, folder: Path | None, seconds: float = SECONDS) -> Reordering:
    searching = ReorderNeurons() if folder is None else ReorderAsBefore(folder=folder)
    return searching.search(view, Request(seconds=seconds))


def proposals(found: Reordering) -> int:
    return sum(one.trace[-1].proposals for one in found.tried if one.trace)


def mean_time(found: Reordering) -> float:
    return sum(found.after[batch] / time for batch, time in found.before.items())


def test_the_same_network_again_needs_a_hundredth_of_the_search(view: NeuronView, tmp_path: Path) -> None:
    first, again, alone = searched(view, tmp_path), searched(view, tmp_path), searched(view, None)
    assert np.array_equal(first.positions, alone.positions)
    assert mean_time(again) <= mean_time(first) < 2
    assert 0 < proposals(again) <= proposals(first) / 90
    assert again.tried[0].name == "found before"


def test_a_longer_search_than_any_before_is_made(view: NeuronView, tmp_path: Path) -> None:
    searched(view, tmp_path)
    assert proposals(searched(view, tmp_path, 3 * SECONDS)) > 2 * proposals(searched(view, None))


def test_orders_that_make_no_sense_are_not_tried(view: NeuronView, tmp_path: Path) -> None:
    searched(view, tmp_path)
    (file,) = (path.stem for path in tmp_path.glob("orders-*.json"))
    kept: Any = recall(tmp_path, file)
    entry: dict[str, Any] = kept[0]
    damaged: list[Any] = [
        {**entry, "positions": "AAAA"},
        {**entry, "ratio": "x"},
        {"seconds": 9},
        "x",
        {**entry, "positions": 3},
    ]
    for one in damaged:
        remember(tmp_path, file, [one])
        assert kept_orders(tmp_path, view.groups, SECONDS) == []
    remember(tmp_path, file, {"positions": []})
    assert kept_orders(tmp_path, view.groups, SECONDS) == []


def test_few_orders_are_kept(view: NeuronView, tmp_path: Path) -> None:
    for _ in range(MOST_KEPT + 1):
        searched(view, tmp_path, 0.001)
    assert len(kept_orders(tmp_path, view.groups, 0.001)) == MOST_KEPT


def test_positions_permute_free_groups_alone(view: NeuronView) -> None:
    groups: NeuronGroups = view.groups
    identity = groups.identity()
    assert groups.takes(identity)
    assert not groups.takes(identity[:-1])
    pinned, free = (np.flatnonzero(groups.free == is_free) for is_free in (False, True))
    for group, accepted in ((int(pinned[0]), False), (int(free[0]), True)):
        swapped, first = identity.copy(), int(groups.starts[group])
        swapped[first : first + 2] = swapped[first : first + 2][::-1]
        assert groups.takes(swapped) is accepted
    assert not groups.takes(np.zeros_like(identity))

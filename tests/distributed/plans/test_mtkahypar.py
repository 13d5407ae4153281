"""Mt-KaHyPar in its process: what it finds is used, and its death costs a layer."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from redpebble.distributed.plans.mtkahypar_starts import MtKaHyPar
from redpebble.distributed.plans.mtkahypar_worker import Balance, problem_of
from redpebble.theory.partition.balance import dealt_by_weight, loads_of, most_connections
from redpebble.theory.partition.hypergraph import layer_hypergraph
from redpebble.theory.partition.partition import slices, traffic
from redpebble.theory.partition.refine_partition import Chain, cost_of_parts
from redpebble.theory.partition.search import PartitionRequest, find_partition
from tests.support.random_patterns import pattern_of_matrix, random_chain

PARTS = 3
DYING = str(Path(__file__).parent / "dying_solver.py")


def chain() -> Chain:
    patterns = [pattern_of_matrix(matrix) for matrix in random_chain([40, 36, 30, 33, 20], 0.1, 0)]
    limits = [most_connections(pattern.lengths, PARTS, 0.1) for pattern in patterns]
    layers = [layer_hypergraph(pattern, PARTS, most) for pattern, most in zip(patterns, limits, strict=True)]
    return Chain(layers, slices(40, PARTS), PARTS, limits)


def check_complete(library: MtKaHyPar) -> None:
    given = chain()
    (parts,) = library(given)
    for layer, layer_parts, most in zip(given.layers, parts, given.most_connections, strict=True):
        assert len(layer_parts) == layer.group_count
        assert loads_of(layer.weights, layer_parts, PARTS).max() <= most


def test_the_library_sends_less_than_dealing_by_weight() -> None:
    pytest.importorskip("mtkahypar")
    library = MtKaHyPar(0, 60.0, threads=1)
    check_complete(library)
    assert library.notes == []
    given = chain()
    (parts,) = library(given)
    dealt = [dealt_by_weight(layer.weights, PARTS) for layer in given.layers]
    assert cost_of_parts(given, parts, 0.0) < cost_of_parts(given, dealt, 0.0)


def test_its_hypergraph_counts_the_values_that_are_sent() -> None:
    pattern = pattern_of_matrix(random_chain([30, 25], 0.15, 1)[0])
    layer = layer_hypergraph(pattern, PARTS, len(pattern.indices))
    owners = np.random.default_rng(0).integers(0, PARTS, 30).astype(np.int32)
    problem = problem_of(layer, owners, Balance(PARTS, len(pattern.indices)))
    parts = np.random.default_rng(1).integers(0, PARTS, layer.group_count).astype(np.int32)
    blocks = [*parts.tolist(), *range(PARTS)]
    connectivity = [len({blocks[pin] for pin in net}) for net in problem.nets]
    assert sum((n - 1) * weight for n, weight in zip(connectivity, problem.net_weights, strict=True)) == cost_of_parts(
        Chain([layer], owners, PARTS, [len(pattern.indices)]), [parts], 0.0
    )


@pytest.mark.parametrize(
    ("how", "note"),
    [
        ("kill", "Mt-KaHyPar was ended by SIGKILL in layer 2, which got our own start"),
        ("exit", "Mt-KaHyPar ended with exit code 3 in layer 2, which got our own start"),
    ],
)
def test_a_child_that_dies_costs_one_layer(how: str, note: str) -> None:
    library = MtKaHyPar(0, 60.0, command=(sys.executable, DYING, how, "2"))
    check_complete(library)
    assert library.notes == [note]


def test_a_child_that_hangs_is_ended() -> None:
    library = MtKaHyPar(0, 2.5, command=(sys.executable, DYING, "hang", "1"))
    check_complete(library)
    assert library.notes[0] == "Mt-KaHyPar took longer than 2.5 s in layer 1, which got our own start"


def test_a_child_that_fills_a_part_too_much_is_not_believed() -> None:
    library = MtKaHyPar(0, 60.0, command=(sys.executable, DYING, "overfill", "9"))
    check_complete(library)
    assert library.notes[0] == "Mt-KaHyPar filled a part too much in layer 0, which got our own start"


def test_the_search_goes_on_from_what_the_library_found() -> None:
    pytest.importorskip("mtkahypar")
    patterns = [pattern_of_matrix(matrix) for matrix in random_chain([60, 60, 60], 0.05, 2)]
    library = MtKaHyPar(0, 60.0, threads=1)
    alone = find_partition(patterns, PartitionRequest(PARTS, proposals=0))
    both = find_partition(patterns, PartitionRequest(PARTS, proposals=0, starts=library))
    assert sum(one.volume for one in traffic(patterns, both)) <= sum(one.volume for one in traffic(patterns, alone))

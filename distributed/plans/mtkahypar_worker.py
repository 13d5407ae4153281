"""The process in which Mt-KaHyPar runs, because it can end a process: one layer after the other, each saved at once.

Every layer is the hypergraph of its row groups and one fixed vertex a part. An input that part p owns is a net of the
groups that use it and the fixed vertex p, so that connectivity - 1 is the number of values sent; inputs that are alike
are one net, whose weight is their number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.foundation.atomic_files import replacing
from redpebble.sparse.csr import CsrPattern
from redpebble.theory.partition.hypergraph import LayerHypergraph
from redpebble.theory.partition.partition import Owners

PROBLEM = "problem.npz"


class Task(NamedTuple):
    """Layers from `first` on, the owners of its inputs, and how full a part of each may be."""

    layers: list[LayerHypergraph]
    most_connections: list[int]
    input_owners: Owners
    part_count: int
    first: int
    seed: int
    threads: int


class Problem(NamedTuple):
    """What Mt-KaHyPar is asked: vertices are the groups, then one of weight 1 for each part, which stays there."""

    nets: list[list[int]]
    net_weights: list[int]
    vertex_weights: list[int]
    part_count: int
    imbalance: float


Solver = Callable[[Problem], Owners]


def write_task(folder: Path, task: Task) -> None:
    """Write the task of a child."""
    arrays: dict[str, NDArray[np.generic]] = {
        "numbers": np.array([task.part_count, task.first, task.seed, task.threads], dtype=np.int64),
        "owners": task.input_owners,
        "limits": np.array(task.most_connections, dtype=np.int64),
    }
    for number, layer in enumerate(task.layers):
        lists = (array for one in (layer.members, layer.group_nets, layer.net_groups) for array in one[:2])
        for index, array in enumerate((*lists, layer.weights, layer.net_of, layer.net_sizes)):
            arrays[f"{number}.{index}"] = array
    np.savez(folder / PROBLEM, allow_pickle=False, **arrays)


def read_task(folder: Path) -> Task:
    """Read the task of a child."""
    with np.load(folder / PROBLEM) as file:
        part_count, first, seed, threads = (int(number) for number in file["numbers"])
        limits = [int(limit) for limit in file["limits"]]
        layers: list[LayerHypergraph] = []
        for number in range(len(limits)):
            a = [file[f"{number}.{index}"] for index in range(9)]
            groups, nets = len(a[6]), len(a[8])
            members, group_nets, net_groups = (
                CsrPattern(pointers, indices, columns)
                for pointers, indices, columns in zip(a[0:6:2], a[1:6:2], (len(a[1]), nets, groups), strict=True)
            )
            layers.append(LayerHypergraph(members, a[6], group_nets, net_groups, a[7], a[8]))
        return Task(layers, limits, file["owners"], part_count, first, seed, threads)


def result_file(folder: Path, number: int) -> Path:
    """Where the parts of the groups of a layer are."""
    return folder / f"parts-{number}.npy"


def solve_task(folder: Path, solve: Solver) -> None:
    """Solve one layer after the other; the owners of a layer's outputs are fixed in the next one."""
    task = read_task(folder)
    owners = task.input_owners
    for number in range(task.first, len(task.layers)):
        layer = task.layers[number]
        parts = solve(problem_of(layer, owners, Balance(task.part_count, task.most_connections[number])))
        with replacing(result_file(folder, number)) as file:
            np.save(file, parts)
        owners = layer.owners_of(parts)


class Balance(NamedTuple):
    """How many parts there are, and the most connections of one."""

    part_count: int
    most_connections: int


def problem_of(layer: LayerHypergraph, owners: Owners, balance: Balance) -> Problem:
    """Return what is asked for a layer."""
    part_count, most = balance
    owned = layer.owned(owners, part_count)
    nets, parts = np.nonzero(owned)
    free = layer.net_sizes - owned.sum(axis=1)
    loose = np.flatnonzero((free > 0) & (np.diff(layer.net_groups.pointers) > 1))
    groups = [layer.net_groups.of(int(net)).tolist() for net in (*nets, *loose)]
    fixed = [*([layer.group_count + part] for part in parts.tolist()), *([] for _ in loose)]
    # Mt-KaHyPar 1.7 dies of vertices of weight 0
    weights = np.maximum(layer.weights, 1)
    return Problem(
        nets=[[*pins, *vertex] for pins, vertex in zip(groups, fixed, strict=True)],
        net_weights=[*owned[nets, parts].tolist(), *free[loose].tolist()],
        vertex_weights=[*weights.tolist(), *([1] * part_count)],
        part_count=part_count,
        imbalance=max(0.0, (most + 1) * part_count / (int(weights.sum()) + part_count) - 1),
    )


def mtkahypar_solver(seed: int, threads: int) -> Solver:
    """Return Mt-KaHyPar with its deterministic preset."""
    import mtkahypar

    mtkahypar.set_seed(seed)
    initializer = mtkahypar.initialize(threads, print_warnings=False)

    def solve(problem: Problem) -> Owners:
        context = initializer.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
        context.set_partitioning_parameters(problem.part_count, problem.imbalance, mtkahypar.Objective.KM1)
        context.logging = False
        count = len(problem.vertex_weights)
        hypergraph = initializer.create_hypergraph(
            context, count, len(problem.nets), problem.nets, problem.vertex_weights, problem.net_weights
        )
        groups = count - problem.part_count
        hypergraph.add_fixed_vertices([*[-1] * groups, *range(problem.part_count)], problem.part_count)
        return np.array(hypergraph.partition(context).get_partition()[:groups], dtype=np.int32)

    return solve


def main() -> None:
    """Solve the task in the folder that is the first argument."""
    folder = Path(sys.argv[1])
    task = read_task(folder)
    solve_task(folder, mtkahypar_solver(task.seed, task.threads))


if __name__ == "__main__":
    main()

"""Parts of models on disk with what onnxruntime makes of random inputs, and ranks that run them under mpiexec."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from redpebble.distributed.graph.node_graph import NodeGraph
from redpebble.distributed.graph.row_graph import RowGraph
from redpebble.distributed.write_parts import PartsRequest, write_parts
from redpebble.pipeline import build as build_module
from redpebble.theory.partition.partition import Partition
from redpebble.verification.feeds import inputs_for
from redpebble.verification.oracle import Oracle
from tests.distributed.simple_partitions import layer_groups

PROGRAM = Path(__file__).with_name("rank_program.py")
REDPEBBLE = Path(sys.executable).with_name("redpebble")
MPIEXEC = Path(sys.executable).with_name("mpiexec")

BATCHES = (0, 1, 7, 17, 65)


def random_rows(graph: RowGraph, part_count: int, rng: np.random.Generator) -> Partition:
    """Owners at random; some parts may own nothing of a level."""
    owners = [rng.integers(0, part_count, width).astype(np.int32) for width in graph.level_widths]
    return Partition(part_count, tuple(owners))


def partition_for(graph: RowGraph, kind: str, part_count: int) -> Partition | None:
    if kind == "batch":
        return None
    if kind == "layers":
        return layer_groups(graph, part_count)
    return random_rows(graph, part_count, np.random.default_rng(part_count))


class Case(NamedTuple):
    """How a model is split and run."""

    kind: str
    part_count: int
    batches: Sequence[int] = BATCHES
    options: Mapping[str, int] = MappingProxyType({})
    """Fields of `RunOptions`."""
    usual_batch: int = 1
    """What the parts are made for."""


def write_case(folder: Path, model: ir.Model, case: Case) -> None:
    """Write the parts of a model, and inputs and outputs for each batch."""
    kind, part_count = case.kind, case.part_count
    module = build_module(model)
    if kind == "nodes":
        owners = np.random.default_rng(part_count).integers(0, part_count, NodeGraph.of(module).nodes).astype(np.int32)
        partition = Partition(part_count, (owners, owners))
    else:
        partition = None if kind == "batch" else partition_for(RowGraph.of(module), kind, part_count)
    folder.mkdir(parents=True)
    write_parts(module, PartsRequest(kind, part_count, partition, batch=case.usual_batch), folder / "parts")
    oracle, arrays = Oracle(model), dict[str, NDArray[Any]]()
    for batch in case.batches:
        feeds = inputs_for(model, batch, np.random.default_rng(batch))
        arrays |= {f"in{index}.{batch}": array for index, array in enumerate(feeds.values())}
        arrays |= {f"out{index}.{batch}": array for index, array in enumerate(oracle.run(feeds))}
    write_feeds(folder, arrays, case.options)


def write_feeds(folder: Path, arrays: Mapping[str, NDArray[Any]], options: Mapping[str, int]) -> None:
    """Write inputs and outputs beside the parts of a case, and the options with which it is run."""
    (folder / "options.json").write_text(json.dumps(dict(options)))
    with zipfile.ZipFile(folder / "feeds.npz", "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)


def mpiexec(ranks: int, *command: str | Path, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run a command on some ranks of this machine."""
    words = [str(MPIEXEC), "-n", str(ranks), *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)


def assert_ranks_agree(folder: Path, ranks: int, seconds: float = 120.0) -> None:
    """All cases of a folder have the outputs that onnxruntime has."""
    done = mpiexec(ranks, sys.executable, PROGRAM, folder, seconds=seconds)
    assert done.returncode == 0, done.stdout + done.stderr

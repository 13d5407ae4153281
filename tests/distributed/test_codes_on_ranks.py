"""Int8 layers on several ranks keep their codes: results equal to the last bit, a byte of each value on the wire."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

import redpebble
from redpebble.distributed.graph.row_graph import RowGraph
from redpebble.distributed.write_parts import PartsRequest, write_parts
from redpebble.models.zoo import build
from redpebble.passes.kernels.compute_codes_as_floats import ComputeCodesAsFloats
from redpebble.passes.tiles.form_tiles import FormTiles
from redpebble.pipeline import build as build_module
from tests.distributed.launching import Case, assert_ranks_agree, partition_for, write_feeds
from tests.support.quantized_layers import CODES, RELU, Layers, inputs

Floats = NDArray[np.float32]

NETWORKS = {
    # codes of all kinds, of widths that are no whole words, and a value of codes at the end
    "rounded": Layers([37, 50, 19, 33], [*CODES, CODES[1]], RELU),
    "values": Layers([130, 1, 67], CODES[:2], density=0.05),
    "dense": Layers([64, 96, 64, 32], CODES, RELU, density=0.9, greatest=60),
}


def write_codes(folder: Path, module: ModuleOp, case: Case, compute: Callable[[Floats], Floats]) -> int:
    """Write parts, and what is computed of the inputs of each batch; return the values that are sent for a sample."""
    graph = RowGraph.of(module)
    folder.mkdir(parents=True)
    partition = partition_for(graph, case.kind, case.part_count)
    plan = write_parts(module, PartsRequest(case.kind, case.part_count, partition), folder / "parts")
    arrays: dict[str, Floats] = {}
    for batch in case.batches:
        x = inputs(batch, graph.level_widths[0])
        arrays |= {f"in0.{batch}": x, f"out0.{batch}": compute(x)}
    write_feeds(folder, arrays, case.options)
    (folder / "codes").touch()
    return plan.volume


def test_layers_on_codes_send_bytes_and_compute_the_same(tmp_path: Path) -> None:
    layers = Layers([19, 30, 7], CODES, RELU)
    write_codes(tmp_path / "cases" / "counted", layers.module(), Case("rows", 2, (64,)), layers.expected)
    assert_ranks_agree(tmp_path / "cases", 2)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_networks_on_codes_send_bytes_and_compute_the_same(ranks: int, tmp_path: Path) -> None:
    small, counted, threads = Case("rows", ranks, (0, 1, 7)), Case("rows", ranks, (64,)), {"threads": 2}
    cases = tmp_path / "cases"
    for name, layers in NETWORKS.items():
        write_codes(cases / name, layers.module(), small, layers.expected)
        write_codes(cases / f"{name} counted", layers.module(), counted, layers.expected)
    layers = NETWORKS["rounded"]
    write_codes(cases / "layers", layers.module(), Case("layers", ranks, (7, 150), threads), layers.expected)
    model = build("digits_int8")
    network = redpebble.compile(model)
    write_codes(cases / "digits", build_module(model), small, lambda x: network.run(None, {"x": x})[0])
    assert_ranks_agree(cases, ranks)


def test_floats_of_the_same_layers_send_as_many_values_at_least(tmp_path: Path) -> None:
    for name, layers in NETWORKS.items():
        module = layers.function()
        ComputeCodesAsFloats().apply(Context(), module)
        FormTiles().apply(Context(), module)
        partition = partition_for(RowGraph.of(module), "rows", 2)
        floats = write_parts(module, PartsRequest("rows", 2, partition), tmp_path / f"{name} floats")
        sent = write_codes(tmp_path / name, layers.module(), Case("rows", 2, (1,)), layers.expected)
        assert 0 < sent <= floats.volume

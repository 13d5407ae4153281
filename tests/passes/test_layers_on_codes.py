"""Layers on codes are layers: what passes do to neurons holds for them, to the last bit."""

from collections.abc import Sequence

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.attributes.schedule import ScheduleAttr
from redpebble.dialect.ops.grouped_layers import GroupedLayersOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.ops.tile_dead_rows import DeadRowsAttr
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.distributed.graph.row_graph import RowGraph
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.kernels.byte_times import QUADS, SCATTERED
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.passes.deployment.partition_neurons import PartitionNeurons
from redpebble.passes.deployment.split_components import SplitComponents
from redpebble.passes.kernels.choose_kernels import ChooseKernels
from redpebble.passes.kernels.choose_quantized_kernels import ChooseQuantizedKernels
from redpebble.passes.kernels.compute_codes_as_floats import ComputeCodesAsFloats
from redpebble.passes.neuron_order.permute_neurons import PermuteNeurons
from redpebble.passes.tiles.drop_dead_rows import DropDeadRows
from redpebble.passes.tiles.form_tiles import FormTiles
from redpebble.passes.tiles.schedule_network import ScheduleNetwork
from redpebble.passes.tiles.share_tiles import ShareTiles
from redpebble.runtime.jit import host_target
from redpebble.theory.depth_first.depth_first_order import Blocks
from tests.support.lowering_modules import Floats, native, run_depth_first
from tests.support.quantized_layers import CODES, RELU, TANH, Layers, best_form_first, inputs

ROWS = 70

ZEROS = [CodesAttr("u8", 0.02, 128), *(CodesAttr("u8", 0.03, zero) for zero in (0, 7, 0)), CodesAttr("u8", 0.05, 3)]
BYTES = [*ZEROS[:-1], CodesAttr("s8", 0.05, -5)]


def after(layers: Layers, *passes: ModulePass) -> ModuleOp:
    module = layers.function()
    for one in passes:
        one.apply(Context(), module)
        module.verify()
    return module


def layers_of(module: ModuleOp) -> list[LinearOp]:
    return [op for op in module.walk() if isinstance(op, LinearOp)]


def results(module: ModuleOp, x: Floats, threads: int = 1) -> Floats:
    return native(module, host_target(), threads).run(None, {"x0": x})[0]


def in_parts(layers: Layers, parts: int) -> None:
    """Let the first layer be parts that have nothing to do with each other."""
    weight = layers.weights[0]
    for row in range(len(weight)):
        for column in range(weight.shape[1]):
            same = row * parts // len(weight) == column * parts // weight.shape[1]
            weight[row, column] = (1 + column % 7) * same


@pytest.mark.parametrize("kernels", ["", QUADS])
def test_neurons_in_another_order_have_the_same_codes(kernels: str) -> None:
    layers = Layers([96, 80, 48, 20], [*CODES, CODES[0]], RELU, quads=kernels)
    x = inputs(ROWS, 96)
    module = after(layers, PermuteNeurons(seed=1))
    weights = [op.weight for op in layers_of(layers.function())]
    assert [str(op.weight.owner) for op in layers_of(module)] != [str(weight.owner) for weight in weights]
    FormTiles().apply(Context(), module)
    assert np.array_equal(results(module, x), layers.expected(x))


def test_ends_of_codes_keep_their_order() -> None:
    layers = Layers([40, 30, 20], [CODES[0], CODES[1], CODES[2]], of_bytes=True)
    codes = np.random.default_rng(0).integers(0, 256, (ROWS, 40)).astype(np.uint8)
    module = after(layers, PermuteNeurons(seed=1), FormTiles())
    assert np.array_equal(results(module, codes), layers.expected_codes(codes))  # pyright: ignore[reportArgumentType]


def test_each_part_of_a_network_owns_neurons() -> None:
    first, second = layers_of(after(Layers([40, 30, 20], CODES), PartitionNeurons(parts=2)))
    for layer in (first, second):
        assert layer.partition is not None
        assert {*layer.partition.owners} == {0, 1}


AS_FLOATS: Sequence[ModulePass] = (ComputeCodesAsFloats(), ChooseKernels())


@pytest.mark.parametrize(
    ("codes", "activation"), [(CODES, RELU), (CODES[:2], None)], ids=["rounded, relu", "values, linear"]
)
def test_kernels_of_floats_compute_the_same(codes: list[CodesAttr], activation: None) -> None:
    layers = Layers([96, 80, 40], codes, activation)
    module, x = after(layers, *AS_FLOATS, FormTiles()), inputs(ROWS, 96)
    assert np.array_equal(np.asarray(interpret(module, {"x0": x})[0]), layers.expected(x))
    for rows in (1, 8, 17, ROWS):
        assert np.array_equal(results(module, x[:rows]), layers.expected(x)[:rows])


def test_kernels_of_floats_round_values_of_other_activations() -> None:
    layers = Layers([64, 48, 17], CODES, TANH)
    module, x = after(layers, *AS_FLOATS, FormTiles()), inputs(20, 64)
    assert np.array_equal(np.asarray(interpret(module, {"x0": x})[0]), layers.interpreted(x))


def test_sums_that_floats_do_not_hold_stay_sums_of_integers() -> None:
    layers = Layers([300, 8], CODES[:1], density=1.0)
    layers.weights[0][:] = 255
    assert all(op.times is not None for op in layers_of(after(layers, ComputeCodesAsFloats())))


@pytest.mark.parametrize(
    ("kernels", "threads"),
    [
        ([ChooseQuantizedKernels("zen5")], 3),
        pytest.param([ChooseQuantizedKernels()], 2, marks=pytest.mark.slow),
        pytest.param(AS_FLOATS, 2, marks=pytest.mark.slow),
    ],
)
def test_threads_share_a_tile_of_codes(kernels: Sequence[ModulePass], threads: int) -> None:
    layers = Layers([1024, 1000, 1024], CODES, RELU, greatest=60)
    module = after(layers, *kernels, FormTiles(), ShareTiles(threads))
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    assert tile.schedule.shares == threads
    assert 1 in tile.schedule.shared or kernels is AS_FLOATS
    x = inputs(ROWS, 1024)
    for rows in (1, 9, ROWS):
        assert np.array_equal(results(module, x[:rows], threads), layers.expected(x)[:rows])


@best_form_first
@pytest.mark.parametrize("sizes", [[37, 50, 19], [130, 1, 257], [64, 64, 64, 64]], ids=str)
@pytest.mark.parametrize("of_bytes", [False, True])
def test_shares_of_threads_are_exact_for_any_rows(target: CpuTarget, sizes: list[int], of_bytes: bool) -> None:
    layers = Layers(sizes, [*CODES, CODES[0]][: len(sizes)], RELU, quads=SCATTERED, windows=True, of_bytes=of_bytes)
    module = after(layers, FormTiles())
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    # times by which threads work together always
    tile.schedule = ScheduleAttr([1, 64], 3, {1: 1e4, 64: 1e6}, {1: 1.0, 64: 1.0})
    network, x = native(module, target, 3), inputs(150, sizes[0])
    given = np.clip(40 * x + 128, 0, 255).astype(np.uint8) if of_bytes else x
    expected = layers.expected_codes(given.astype(np.int64)) if of_bytes else layers.expected(x)
    for rows in (0, 1, 7, 17, 64, 65, 150):
        for threads in (2, 3):
            network.run(None, {"x0": given[:rows]}, threads=threads)
            assert np.array_equal(network.run(None, {"x0": given[:rows]}, threads=threads)[0], expected[:rows])


@best_form_first
@pytest.mark.parametrize("kernels", ["", QUADS, SCATTERED])
@pytest.mark.parametrize("codes", [ZEROS, ZEROS[:-1], BYTES], ids=["rounded", "values", "bytes"])
def test_dead_rows_are_dropped(target: CpuTarget, kernels: str, codes: list[CodesAttr]) -> None:
    of_bytes = codes is BYTES
    layers = Layers([66, 80, 51, 67, 35], codes, RELU, quads=kernels, of_bytes=of_bytes, windows=True)
    for bias in layers.biases:
        bias[:] = -np.abs(bias) - 35_000
    module = after(layers, FormTiles(), DropDeadRows())
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    assert tile.dead_rows == DeadRowsAttr([0, 1, 2], 64)
    network = native(module, target, 2)
    # rows of small to large values: some die at once, some on the way, some never
    x = 2 * inputs(200, 66) * np.random.default_rng(3).random((200, 1), np.float32)
    given = np.clip(40 * x + 128, 0, 255).astype(np.uint8) if of_bytes else x
    expected = layers.expected_codes(given.astype(np.int64)) if of_bytes else layers.expected(x)
    alive = np.count_nonzero((expected != (codes[-1].zero if of_bytes else 0)).any(axis=1))
    assert 20 < alive < 150
    for rows in (0, 1, 7, 17, 64, 65, 200):
        assert np.array_equal(network.run(None, {"x0": given[:rows]})[0], expected[:rows])


def test_no_rows_are_dropped_whose_codes_come_to_something() -> None:
    layers = Layers([66, 80, 51], ZEROS[:3], RELU)
    layers.biases[1][0] = 10**6
    (tile,) = [op for op in after(layers, FormTiles(), DropDeadRows()).walk() if isinstance(op, TileOp)]
    assert tile.dead_rows is None


SMALL_CACHE = ScheduleNetwork(l1_bytes=1 << 11, l2_bytes=7 << 13)
"""A cache that a few hundred codes of 64 rows fit."""


def banded(codes: Sequence[CodesAttr], activations: ActivationAttr | None, *, of_bytes: bool = False) -> Layers:
    """Layers whose neurons read their neighbours, wherever these stand."""
    size, rng = 512, np.random.default_rng(5)
    layers = Layers([size] * 8, codes, activations, density=0.0, sparse=True, of_bytes=of_bytes)
    orders = [rng.permutation(size) for _ in range(8)]
    own = np.arange(size)
    for number, weight in enumerate(layers.weights):
        reads = (own[:, None] + np.arange(-2, 3)) % size
        weight[orders[number][reads], orders[number + 1][own][:, None]] = rng.integers(-255, 256, reads.shape)
    return layers


@best_form_first
@pytest.mark.parametrize("end", [pytest.param("rounded", marks=pytest.mark.slow), "values", "bytes"])
def test_layers_run_depth_first(target: CpuTarget, end: str) -> None:
    codes = [CODES[number % 3] for number in range(7)] + [CODES[0]] * (end != "values")
    layers = banded(codes, None if end == "bytes" else RELU, of_bytes=end == "bytes")
    module = after(layers, FormTiles(), SMALL_CACHE)
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    assert tile.depth_first is not None
    assert [group.layers for group in tile.depth_first.groups] == [range(7)]
    assert tile.depth_first.groups[0].neuron_order.slot_count < 450
    assert_depth_first_is_exact(layers, module, target)


def assert_depth_first_is_exact(layers: Layers, module: ModuleOp, target: CpuTarget) -> None:
    network, x = native(module, target, 2), inputs(150, layers.sizes[0])
    given = np.clip(40 * x + 128, 0, 255).astype(np.uint8) if layers.of_bytes else x
    expected = layers.expected_codes(given.astype(np.int64)) if layers.of_bytes else layers.expected(x)
    for rows in (0, 1, 7, 17, 64, 65, 150):
        assert np.array_equal(network.run(None, {"x0": given[:rows]})[0], expected[:rows])


@best_form_first
@pytest.mark.parametrize(("first", "end"), [(0, 2), (1, 3), (2, 4), (0, 4)])
@pytest.mark.parametrize("activation", [None, TANH], ids=["linear", "tanh"])
def test_some_layers_run_depth_first(
    target: CpuTarget, first: int, end: int, activation: ActivationAttr | None
) -> None:
    codes = [CODES[number % 3] for number in range(4)]
    layers = Layers([37, 50, 1, 43, 19], codes, activation, sparse=True, quads=SCATTERED)
    plain, module = after(layers, FormTiles()), after(layers, FormTiles())
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    run_depth_first(tile, range(first, end), Blocks(3), width=9)
    x = inputs(150, 37)
    expected, network = results(plain, x), native(module, target, 2)
    if activation is None:
        assert np.array_equal(expected, layers.expected(x))
        for rows in (0, 1, 7, 17, 64, 65, 150):
            assert np.array_equal(network.run(None, {"x0": x[:rows]})[0], expected[:rows])
    else:
        np.testing.assert_allclose(network.run(None, {"x0": x})[0], expected, atol=1e-6)


def test_codes_that_fit_the_cache_stay_layer_by_layer() -> None:
    module = after(
        banded([CODES[number % 3] for number in range(8)], RELU), FormTiles(), ScheduleNetwork(1 << 15, 1 << 18)
    )
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    # the same values as floats would leave it
    assert 4 * 64 * 1024 >= 1 << 18 > 64 * 1024
    assert tile.depth_first is None


def test_components_are_split() -> None:
    layers = Layers([64, 64, 16], CODES)
    in_parts(layers, 4)
    module, x = after(layers, ComputeCodesAsFloats(), SplitComponents(least_gain=0.0)), inputs(ROWS, 64)
    assert any(isinstance(op, GroupedLayersOp) for op in module.walk())
    assert np.array_equal(np.asarray(interpret(module, {"x0": x})[0], np.float32), layers.expected(x))


def test_parts_on_several_computers_take_codes_between_floats() -> None:
    layers = Layers([40, 30, 20], CODES)
    assert len(RowGraph.of(layers.module()).layers) == 2
    assert len(RowGraph.of(after(layers, *AS_FLOATS, FormTiles())).layers) == 2
    with pytest.raises(UnsupportedModelError, match="expected floats for the plans rows and layers, got codes"):
        RowGraph.of(Layers([40, 30, 20], CODES, of_bytes=True).module())

from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.foundation.bfloat import rounded_to_bfloat
from redpebble.kernels.families import FAMILIES
from redpebble.kernels.family import LayerWeights
from redpebble.kernels.formats import lookup_halves, permute_lookup
from redpebble.kernels.formats.permute_lookup import GATHER_COST, MOST_TRANSPOSED, pack_lookups
from redpebble.kernels.formats.permute_lookup_search import CHUNK_STEPS, PANEL_ROWS
from redpebble.kernels.machine import Machine
from redpebble.kernels.prediction import all_predicted_us
from redpebble.kernels.work import Layer
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.kernels.kernel_form import LinearForm
from redpebble.lowering.kernels.table import code_of
from redpebble.lowering.llvm.builder import Code
from redpebble.lowering.llvm.flow import call
from redpebble.lowering.llvm.values import Bytes, Number
from redpebble.runtime.jit import emit_object, host_target, load_object
from redpebble.runtime.memory import address_of, aligned_copy
from redpebble.runtime.network import Network
from redpebble.sparse.csr import CscMatrix
from tests.support.lowering_modules import Floats, best_target_first, each_target, tiled
from tests.support.lowering_modules import native as native_module

BATCH = 3
SHAPES = [(1, 1), (130, 48), *(pytest.param(one, marks=pytest.mark.slow) for one in ((3, 5), (64, 10), (33, 97)))]

each_family = pytest.mark.parametrize("family", [name for name, one in FAMILIES.items() if one.widths == (1,)])
LOOKED_UP = permute_lookup.FAMILY.name

Pattern = np.ndarray[tuple[int, int], np.dtype[np.bool_]]


def pattern(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> Pattern:
    """Where a weight [K, N] of some kind is not zero."""
    inputs, outputs = np.indices(shape)
    match kind:
        case "uniform":
            return rng.random(shape) < 0.3
        case "skewed outputs":
            return rng.random(shape) < rng.random(shape[1]) ** 4
        case "skewed inputs":
            return rng.random(shape) < rng.random((shape[0], 1)) ** 4
        case "one full row":
            return (rng.random(shape) < 0.02) | (outputs == shape[1] // 2)
        case "banded":
            return np.abs(inputs * shape[1] - outputs * shape[0]) <= 4 * max(shape)
        case "blocks":
            return (inputs // 8 + outputs // 4) % 5 == 0
        case "full":
            return np.ones(shape, dtype=np.bool_)
        case _:
            return np.zeros(shape, dtype=np.bool_)


KINDS = ("uniform", "skewed outputs", "skewed inputs", "one full row", "banded", "blocks", "full", "empty")


def weight_of(kind: str, shape: tuple[int, int], seed: int, family: str = LOOKED_UP) -> Floats:
    """A weight of some kind, of bfloat16 for families that round to it."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape).astype(np.float32)
    if FAMILIES[family].rounds == "bf16":
        values = rounded_to_bfloat(values)
    return np.where(pattern(kind, shape, rng), values, np.float32(0))


def layer(weight: Floats, bias: Floats | None, family: str, activation: ActivationAttr | None = None) -> ModuleOp:
    """A tile of one row and one linear layer."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        constants: list[Operation] = [SparseConstantOp(CscMatrix.from_dense(weight))]
        constants += [ConstantOp(bias)] if bias is not None else []
        linear = LinearOp(arguments[0], *(op.results[0] for op in constants), activation=activation)
        linear.kernel = KernelAttr({1: family}, "by the test")
        block.add_ops([*constants, linear])
        return [linear.result]

    return tiled([f32_tensor((DYNAMIC, weight.shape[0]))], body, (1,))


def native(module: ModuleOp, target: CpuTarget) -> Network:
    return native_module(module, target)


def random_rows(width: int, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal((BATCH, width)).astype(np.float32)


def assert_product(result: Floats, x: Floats, weight: Floats, bias: Floats | float = 0.0) -> None:
    """Hold a result to the product in float64, up to the rounding of K products and sums in any order."""
    exact = x.astype(np.float64) @ weight + bias
    magnitude = np.abs(x).astype(np.float64) @ np.abs(weight) + 1.0
    assert result.shape == exact.shape
    assert np.all(np.abs(result - exact) <= (weight.shape[0] + 4) * 2.0**-24 * magnitude)


@each_target
@each_family
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_is_the_product_in_float64_up_to_rounding(target: CpuTarget, family: str, shape: tuple[int, int]) -> None:
    weight = weight_of("uniform", shape, seed=1, family=family)
    bias = np.linspace(-1, 1, shape[1], dtype=np.float32)
    x = random_rows(shape[0], seed=2)
    (result,) = native(layer(weight, bias, family), target).run(None, {"x0": x})
    assert_product(result, x, weight, bias)


@each_family
@pytest.mark.parametrize("kind", KINDS)
def test_any_pattern_agrees_with_numpy(family: str, kind: str) -> None:
    weight = weight_of(kind, (250, 75), seed=3, family=family)
    x = random_rows(250, seed=4)
    (result,) = native(layer(weight, None, family), host_target()).run(None, {"x0": x})
    assert_product(result, x, weight)


@best_target_first
@each_family
def test_infinite_and_nan_weights_are_values_like_any_other(target: CpuTarget, family: str) -> None:
    weight = np.zeros((40, 3), dtype=np.float32)
    weight[0, 0], weight[20, 1], weight[39, 2] = np.inf, np.nan, -np.inf
    x = np.full((BATCH, 40), 2.0, dtype=np.float32)
    (result,) = native(layer(weight, None, family), target).run(None, {"x0": x})
    assert np.array_equal(result, np.tile(np.array([np.inf, np.nan, -np.inf]), (BATCH, 1)), equal_nan=True)


@each_family
def test_the_activation_is_applied_in_the_kernel(family: str) -> None:
    weight = weight_of("uniform", (50, 70), seed=5, family=family)
    x = random_rows(50, seed=6)
    plain = native(layer(weight, None, family), host_target())
    rectified = native(layer(weight, None, family, ActivationAttr("relu")), host_target())
    assert np.array_equal(rectified.run(None, {"x0": x})[0], np.maximum(plain.run(None, {"x0": x})[0], 0))


def padded(values: Floats, padding: float) -> Floats:
    """The values at a multiple of 64 bytes, with `padding` behind them up to 16 after the next multiple of 16."""
    room = -len(values) % 16 + 16
    return aligned_copy(np.pad(values, (0, room), constant_values=padding)).astype(np.float32, copy=False)


def run_kernel(family: str, weight: Floats, x: Floats, target: CpuTarget) -> Floats:
    """Call the kernel alone, with NaN behind x; return y and what follows it, which was 7."""
    code = Code(target, ir.Module("test"))
    kernel = code_of(FAMILIES[family]).emit(code, LinearForm(1, None))
    arguments = len(kernel.args) - 2

    @code.kernel("exported", exported=True, rest=arguments)
    def _(*arrays: Bytes, inputs: Number, outputs: Number) -> None:
        call(kernel, *arrays, inputs, outputs)

    machine = load_object(emit_object(str(code.module), target), {"exported": (arguments, 2)})
    outputs: int = weight.shape[1]
    arrays = FAMILIES[family].pack(LayerWeights(weight, np.zeros(outputs, dtype=np.float32)))
    packed = [aligned_copy(array) for array in arrays]
    source, result = padded(x, np.nan), padded(np.zeros(outputs, dtype=np.float32), 7.0)
    machine.functions["exported"](*(address_of(array) for array in (source, result, *packed)), *weight.shape)
    return result


@each_target
@each_family
@pytest.mark.parametrize("shape", [(1, 1), (17, 33), pytest.param((47, 16), marks=pytest.mark.slow), (75, 50)])
def test_what_lies_behind_the_inputs_is_not_read_and_behind_the_outputs_not_written(
    target: CpuTarget, family: str, shape: tuple[int, int]
) -> None:
    weight = weight_of("uniform", shape, seed=7, family=family)
    x = random_rows(shape[0], seed=8)[:1]
    result = run_kernel(family, weight, x[0], target)
    outputs = shape[1]
    assert_product(result[None, :outputs], x, weight)
    assert np.all(result[outputs + -outputs % 16 :] == 7.0)


@pytest.mark.parametrize(
    "family", [name for name, one in FAMILIES.items() if one.widths == (1,) and one.most_inputs > 1 << 16]
)
def test_more_inputs_than_16_bits_can_count_are_told_apart(family: str) -> None:
    weight = np.zeros((140_000, 3), dtype=np.float32)
    lookups = np.random.default_rng(9).integers(0, len(weight), 300)
    weight[lookups, np.arange(300) % 3] = 1.0
    x = np.random.default_rng(10).standard_normal((1, len(weight))).astype(np.float32)
    assert_product(run_kernel(family, weight, x[0], host_target())[None, :3], x, weight)


@each_family
def test_a_wider_tile_is_refused(family: str) -> None:
    message = f"{family} has code for tiles of 1 batch column, the tile has 16"
    with pytest.raises(ValueError, match=message):
        code_of(FAMILIES[family]).emit(Code(host_target(), ir.Module("test")), LinearForm(16, None))


@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_matrix_holds_every_entry_once(kind: str) -> None:
    matrix = CscMatrix.from_dense(weight_of(kind, (300, 70), seed=11))
    matrix = matrix._replace(values=np.arange(1, len(matrix.values) + 1, dtype=np.float32))
    sequences = pack_lookups(matrix, np.zeros(70, dtype=np.float32))
    assert np.array_equal(np.sort(sequences.weights[sequences.weights != 0]), matrix.values)


@settings(max_examples=15, deadline=None)
@given(
    inputs=st.integers(1, 600),
    outputs=st.integers(1, 100),
    density=st.sampled_from([0.01, 0.1, 0.3, 0.7]),
    seed=st.integers(0, 2**16),
)
def test_a_walk_is_never_dearer_than_gathers_alone(inputs: int, outputs: int, density: float, seed: int) -> None:
    weight = np.random.default_rng(seed).random((inputs, outputs)) < density
    matrix = CscMatrix.from_dense(weight.astype(np.float32))
    sizes = pack_lookups(matrix, np.zeros(outputs, dtype=np.float32)).sizes[1:].astype(np.int64)
    most = np.sort(weight.sum(axis=0))[::-1][::PANEL_ROWS]
    assert np.all(CHUNK_STEPS * sizes[:, 0] + GATHER_COST * sizes[:, 1] <= GATHER_COST * most)


def test_nearly_all_lanes_of_a_walk_are_used_at_30_percent_density() -> None:
    weight = np.random.default_rng(12).random((768, 256)) < 0.3
    matrix = CscMatrix.from_dense(weight.astype(np.float32))
    sequences = pack_lookups(matrix, np.zeros(256, dtype=np.float32))
    assert len(matrix.values) > 0.95 * sequences.weights.size


@each_target
@pytest.mark.parametrize("family", [LOOKED_UP, lookup_halves.FAMILY.name])
def test_inputs_that_are_looked_up_transposed_give_the_same_product(target: CpuTarget, family: str) -> None:
    rng = np.random.default_rng(13)
    weight = np.where(rng.random((1011, 480)) < 0.1, rng.standard_normal((1011, 480)), 0).astype(np.float32)
    weight = rounded_to_bfloat(weight) if FAMILIES[family].rounds else weight
    x = random_rows(1011, seed=14)[0]
    assert FAMILIES[family].pack(LayerWeights(weight, np.zeros(480, dtype=np.float32)))[0][0, 0] == 1
    assert_product(run_kernel(family, weight, x, target)[None, :480], x[None], weight)


def test_halves_are_the_nearest_bfloat16_of_the_weights_and_inputs_keep_all_bits() -> None:
    weight = np.random.default_rng(16).standard_normal((130, 48)).astype(np.float32)
    x = random_rows(130, seed=17)
    result = run_kernel(lookup_halves.FAMILY.name, weight, x[0], host_target())[None, :48]
    assert_product(result, x[:1], weight.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_halves_take_less_time_where_weights_come_from_afar() -> None:
    machine = Machine(bfloat=True)
    far = replace(Layer(4096, np.full(4096, 410)), rounded=True)
    times = all_predicted_us(far, 1, machine)
    assert times["lookup_halves"] < 0.75 * times["permute_lookup"]
    assert "lookup_halves" not in all_predicted_us(replace(far, rounded=False), 1, machine)


def test_transposed_inputs_save_a_tenth_of_a_walk_and_are_left_alone_where_they_save_nothing() -> None:
    rng = np.random.default_rng(15)
    bias = np.zeros(512, dtype=np.float32)
    weight = CscMatrix.from_dense((rng.random((1024, 512)) < 0.1).astype(np.float32))
    for shape, density in (
        ((1024, 512), 0.03),
        ((1024, 512), 0.6),
        ((1024, 64), 0.1),
        ((MOST_TRANSPOSED + 1, 512), 0.1),
    ):
        other = CscMatrix.from_dense((rng.random(shape) < density).astype(np.float32))
        assert pack_lookups(other, bias).sizes[0, 0] == 0
    sizes = pack_lookups(weight, bias).sizes.astype(np.int64)[1:]
    # without them, in steps: 1.19 for an entry of the fullest rows, and a gather for every 23
    fullest = np.sort(np.diff(weight.pointers))[::-1][::PANEL_ROWS].sum()
    assert CHUNK_STEPS * sizes[:, 0].sum() + GATHER_COST * sizes[:, 1].sum() < 0.9 * (1.19 + GATHER_COST / 23) * fullest

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.family import LayerWeights
from redpebble.kernels.formats import count_blocks, narrow_blocks
from redpebble.kernels.formats.count_blocks import MOST_CONNECTIONS
from redpebble.kernels.formats.narrow_blocks import STEPS
from redpebble.kernels.input_blocks import MOST_INPUTS
from redpebble.kernels.row_segments import FETCH_STREAMS, FIRST, LAST, OFFSET_UNIT, RECORDS_AHEAD, PackedBlocks
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.runtime.jit import host_target
from redpebble.sparse.csr import CscMatrix
from tests.support.lowering_modules import Floats, best_target_first, linear_layer, native, tiled


def sparse_matrix(shape: tuple[int, int], density: float, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape).astype(np.float32)
    return np.where(rng.random(shape) < density, values, np.float32(0))


def pattern(name: str) -> Floats:
    rng = np.random.default_rng(11)
    weight = rng.standard_normal((300, 90)).astype(np.float32)
    inputs, outputs = np.indices(weight.shape)
    keep = {
        "uniform": rng.random(weight.shape) < 0.1,
        "skewed rows": rng.random(weight.shape) < np.linspace(0, 1, 90) ** 3,
        "one full row": (outputs == 41) | (inputs == 7),
        "empty rows and columns": (rng.random(weight.shape) < 0.3) & (outputs % 3 > 0) & (inputs % 2 > 0),
        "banded": abs(inputs - 3 * outputs) < 20,
        "blocks": (inputs // 16 + outputs // 16) % 4 == 0,
        "all zero": np.zeros(weight.shape, dtype=np.bool_),
        "dense": np.ones(weight.shape, dtype=np.bool_),
    }[name]
    return np.where(keep, weight, np.float32(0))


each_family = pytest.mark.parametrize("family", ["count_blocks", "narrow_blocks"])

PATTERNS = ("uniform", "skewed rows", "one full row", "empty rows and columns", "banded", "blocks", "all zero", "dense")
OFTEN = {"skewed rows", "empty rows and columns", "all zero"}
SOME_PATTERNS = [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in PATTERNS]


def over(family: str, blocks: int) -> KernelAttr:
    return KernelAttr({1: family}, "by the test", blocks={family: blocks})


def layer(weight: Floats, bias: Floats, widths: Sequence[int], family: str) -> ModuleOp:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        constants = [ConstantOp(weight), ConstantOp(bias)]
        linear = LinearOp(arguments[0], constants[0].result, constants[1].result)
        linear.kernel = over(family, 3)
        block.add_ops([*constants, linear])
        return [linear.result]

    return tiled([f32_tensor((DYNAMIC, weight.shape[0]))], body, widths)


def assert_product(result: Floats, x: Floats, weight: Floats, bias: Floats) -> None:
    """What numpy computes in float64, but for the rounding of a sum of K products in f32."""
    exact = x.astype(np.float64) @ weight.astype(np.float64) + bias
    magnitude = np.abs(x).astype(np.float64) @ np.abs(weight).astype(np.float64) + np.abs(bias)
    assert result.shape == exact.shape
    assert np.all(np.abs(result - exact) <= (weight.shape[0] + 4) * 2.0**-24 * (magnitude + 1.0))


def unpacked(packed: PackedBlocks, shape: tuple[int, int], idle: int) -> Floats:
    """The matrix [inputs, outputs] as the kernel reads it; the parts of a connection are added."""
    weight = np.zeros(shape, dtype=np.float64)
    bases, place = np.repeat(packed.blocks[:, 1], packed.blocks[:, 0]), 0
    assert packed.blocks[-1].tolist() == [0, 0]
    assert len(bases) + RECORDS_AHEAD == len(packed.records)
    for base, (*rows, work) in zip(bases.astype(np.int64), packed.records.astype(np.int64), strict=False):
        end = place + int(work & 0xFFFF)
        offsets = packed.offsets[idle + place : idle + end].astype(np.int64)
        for member in range(len(rows)):
            row = rows[member] // OFFSET_UNIT
            if rows[member] in rows[:member]:
                first = rows.index(rows[member])
                assert np.array_equal(packed.weights[place:end, member], packed.weights[place:end, first])
                assert np.array_equal(offsets[:, member], offsets[:, first])
                continue
            np.add.at(weight[:, row], (offsets[:, member] + base) // OFFSET_UNIT, packed.weights[place:end, member])
        place = end
    assert place == len(packed.weights) == len(packed.offsets) - idle
    return weight.astype(np.float32)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 700), st.integers(1, 40)),
    density=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    blocks=st.integers(1, 9),
)
def test_packing_keeps_every_connection(shape: tuple[int, int], density: float, blocks: int) -> None:
    weight, count = sparse_matrix(shape, density, seed=blocks), min(blocks, shape[0])
    matrix, bias = CscMatrix.from_dense(weight), np.zeros(shape[1], dtype=np.float32)
    assert np.array_equal(unpacked(count_blocks.pack(LayerWeights(matrix, bias, blocks=count)), shape, idle=0), weight)
    assert np.array_equal(
        unpacked(narrow_blocks.pack(LayerWeights(matrix, bias, blocks=count)), shape, idle=STEPS), weight
    )


@pytest.mark.parametrize("pack", [count_blocks.pack, narrow_blocks.pack])
@pytest.mark.parametrize(("inputs", "blocks", "expected"), [(300, 1, 1), (300, 7, 7), (300, None, 1), (5000, None, 3)])
def test_a_full_matrix_is_packed_in_as_many_blocks_as_wanted(
    pack: Callable[..., PackedBlocks], inputs: int, blocks: int | None, expected: int
) -> None:
    matrix = CscMatrix.from_dense(np.ones((inputs, 4), dtype=np.float32))
    packed = pack(LayerWeights(matrix, np.zeros(4, dtype=np.float32), blocks=blocks))
    assert packed.blocks[:-1, 1].tolist() == [OFFSET_UNIT * (inputs * block // expected) for block in range(expected)]


@each_family
@pytest.mark.parametrize(
    ("inputs", "blocks", "message"),
    [
        (5000, 2, "expected 3 to 5000 blocks of 5000 inputs, got 2"),
        (3, 4, "expected 1 to 3 blocks of 3 inputs, got 4"),
    ],
)
def test_blocks_that_offsets_do_not_reach_or_without_inputs_are_refused(
    family: str, inputs: int, blocks: int, message: str
) -> None:
    weight = np.ones((inputs, 1), dtype=np.float32)
    with pytest.raises(ValueError, match=rf"^{message}$"):
        lower(linear_layer(weight, None, over(family, blocks)), host_target())


def test_offsets_of_16_bits_tell_the_inputs_of_a_block_apart() -> None:
    assert (MOST_INPUTS - 1) * OFFSET_UNIT < 1 << 16


@pytest.mark.slow
@each_family
def test_any_number_of_blocks_computes_the_product(family: str) -> None:
    bias, weights = np.linspace(-1, 1, 90, dtype=np.float32), [pattern(name) for name in sorted(OFTEN)]
    layers = [(weight, blocks) for weight in weights for blocks in (1, 2, 3, 17, 300)]

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        results: list[SSAValue] = []
        for weight, blocks in layers:
            constants = [ConstantOp(weight), ConstantOp(bias)]
            linear = LinearOp(arguments[0], constants[0].result, constants[1].result)
            linear.kernel = over(family, blocks)
            block.add_ops([*constants, linear])
            results.append(linear.result)
        return results

    network = native(tiled([f32_tensor((DYNAMIC, 300))], body, (8, 16)), host_target())
    for batch in (0, 1, 7, 17):
        x = np.random.default_rng(batch).standard_normal((batch, 300)).astype(np.float32)
        for result, (weight, _) in zip(network.run(None, {"x0": x}), layers, strict=True):
            assert_product(result, x, weight, bias)


@pytest.mark.parametrize("name", PATTERNS)
def test_every_row_is_begun_once_and_completed_once(name: str) -> None:
    weight = pattern(name)
    packed = count_blocks.pack(LayerWeights(weight, np.zeros(90, dtype=np.float32), blocks=3))
    records = packed.records[:-RECORDS_AHEAD].astype(np.int64)
    assert np.all((records[:, 2] & 0xFFFF) <= MOST_CONNECTIONS)
    pairs, flags = records[:, :2] // OFFSET_UNIT, np.repeat(records[:, 2] >> 16, 2)
    # a row without a partner has itself beside it
    rows = np.where(np.stack([pairs[:, 0] < 0, pairs[:, 0] == pairs[:, 1]], axis=1), -1, pairs).ravel()
    for row in range(90):
        mine = flags[rows == row]
        assert mine[0] & FIRST
        assert mine[-1] & LAST
        assert not np.any(mine[1:] & FIRST)
        assert not np.any(mine[:-1] & LAST)


@pytest.mark.parametrize("pack", [count_blocks.pack, narrow_blocks.pack])
def test_packing_takes_about_six_bytes_a_connection(pack: Callable[..., PackedBlocks]) -> None:
    weight = sparse_matrix((512, 512), 0.1, seed=2)
    packed = pack(LayerWeights(weight, np.zeros(512, dtype=np.float32)))
    assert sum(array.nbytes for array in packed) < 7 * np.count_nonzero(weight)


@pytest.mark.slow
@best_target_first
@each_family
def test_every_tile_width_computes_the_product(target: CpuTarget, family: str) -> None:
    weight, bias = pattern("uniform"), np.linspace(-1, 1, 90, dtype=np.float32)
    network = native(layer(weight, bias, [1, 4, 8, 16, 32, 64], family), target)
    for batch in (1, 3, 8, 15, 32, 61, 123):
        x = np.random.default_rng(batch).standard_normal((batch, 300)).astype(np.float32)
        assert_product(network.run(None, {"x0": x})[0], x, weight, bias)


@pytest.mark.slow
@each_family
@pytest.mark.parametrize("name", SOME_PATTERNS)
def test_every_pattern_computes_the_product(name: str, family: str) -> None:
    weight, bias = pattern(name), np.linspace(-1, 1, 90, dtype=np.float32)
    x = np.random.default_rng(3).standard_normal((70, 300)).astype(np.float32)
    (result,) = native(linear_layer(weight, bias, over(family, 2)), host_target()).run(None, {"x0": x})
    assert_product(result, x, weight, bias)


@pytest.mark.slow
@each_family
@pytest.mark.parametrize(("shape", "density"), [((5000, 9), 0.002), ((2049, 3), 0.5), ((60, 2100), 0.1)])
def test_inputs_and_outputs_beyond_one_block_and_one_cache(shape: tuple[int, int], density: float, family: str) -> None:
    weight, bias = sparse_matrix(shape, density, seed=4), np.linspace(-1, 1, shape[1], dtype=np.float32)
    x = np.random.default_rng(5).standard_normal((66, shape[0])).astype(np.float32)
    (result,) = native(linear_layer(weight, bias, family), host_target()).run(None, {"x0": x})
    assert_product(result, x, weight, bias)


@pytest.mark.slow
@each_family
def test_weights_beyond_the_second_cache_are_fetched_ahead_and_give_the_same_product(family: str) -> None:
    weight, bias = np.ones((1200, 1200), dtype=np.float32), np.zeros(1200, dtype=np.float32)
    records = count_blocks.pack(LayerWeights(weight, bias)).records[:-RECORDS_AHEAD]
    assert np.all(records[:, -1] >> 16 & FETCH_STREAMS)
    x = np.random.default_rng(6).standard_normal((9, 1200)).astype(np.float32)
    (result,) = native(linear_layer(weight, bias, family), host_target()).run(None, {"x0": x})
    assert_product(result, x, weight, bias)


@best_target_first
@each_family
def test_infinite_and_nan_inputs_reach_only_the_outputs_they_are_connected_to(target: CpuTarget, family: str) -> None:
    weight = sparse_matrix((140, 31), 0.1, seed=7)
    x = np.random.default_rng(8).standard_normal((20, 140)).astype(np.float32)
    x[:, 5], x[:, 66] = np.inf, np.nan
    (result,) = native(linear_layer(weight, None, over(family, 2)), target).run(None, {"x0": x})
    touched = (weight[5] != 0) | (weight[66] != 0)
    assert touched.any()
    assert not touched.all()
    assert np.array_equal(np.isfinite(result), np.tile(~touched, (20, 1)))


@pytest.mark.slow
@best_target_first
@each_family
@pytest.mark.parametrize("activation", [ActivationAttr("clip", (-0.5, 0.75)), ActivationAttr("tanh")])
def test_an_activation_is_applied_once_to_complete_sums(
    target: CpuTarget, activation: ActivationAttr, family: str
) -> None:
    weight, bias = pattern("skewed rows") * np.float32(0.1), np.linspace(-1, 1, 90, dtype=np.float32)
    x = np.random.default_rng(9).standard_normal((41, 300)).astype(np.float32)
    (result,) = native(linear_layer(weight, bias, over(family, 3), activation), target).run(None, {"x0": x})
    sums = x.astype(np.float64) @ weight.astype(np.float64) + bias
    expected = np.tanh(sums) if activation.kind == "tanh" else np.clip(sums, -0.5, 0.75)
    assert np.allclose(result, expected, atol=1e-4)

"""The kernel of bfloat16 against sums in float64 of values that `ml_dtypes` has rounded."""

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.family import LayerWeights
from redpebble.kernels.formats import bfloat_pairs
from redpebble.kernels.formats.bfloat_pairs import LINE_UNITS, MOST_INPUTS
from redpebble.kernels.row_segments import OFFSET_UNIT
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.sparse.csr import CscMatrix
from tests.support.emulated_bfloat import emulated
from tests.support.kernel_cases import PATTERNS, rounding_of
from tests.support.lowering_modules import Floats, tiled


def matrix(pattern: str, shape: tuple[int, int], seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape).astype(np.float32)
    return np.where(PATTERNS[pattern](rng, shape), values, np.float32(0))


def rounded(values: Floats) -> NDArray[np.float64]:
    return values.astype(ml_dtypes.bfloat16).astype(np.float64)


def layer(weight: Floats, bias: Floats, width: int, family: str = "bfloat_pairs") -> ModuleOp:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        constants = [SparseConstantOp(CscMatrix.from_dense(weight)), ConstantOp(bias)]
        linear = LinearOp(arguments[0], *(one.results[0] for one in constants), activation=ActivationAttr("relu"))
        linear.kernel = KernelAttr({1: family}, "by the test")
        block.add_ops([*constants, linear])
        return [linear.result]

    return tiled([f32_tensor((DYNAMIC, weight.shape[0]))], body, [width])


def run(weight: Floats, bias: Floats, width: int, x: Floats) -> Floats:
    (result,) = emulated(layer(weight, bias, width)).run(None, {"x0": x})
    return result


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 600), st.integers(1, 70)),
    pattern=st.sampled_from(sorted(PATTERNS)),
    batch=st.sampled_from([0, 1, 7, 17, 64, 100]),
    width=st.sampled_from(bfloat_pairs.WIDTHS),
)
def test_sums_are_those_of_rounded_values(shape: tuple[int, int], pattern: str, batch: int, width: int) -> None:
    weight, rng = matrix(pattern, shape, seed=batch), np.random.default_rng(1)
    bias = rng.standard_normal(shape[1]).astype(np.float32)
    x = rng.standard_normal((batch, shape[0])).astype(np.float32)
    exact = np.maximum(rounded(x) @ rounded(weight) + bias, 0)
    assert np.all(np.abs(run(weight, bias, width, x) - exact) <= rounding_of(x, weight, bias))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, np.finfo(np.float32).max])
@pytest.mark.parametrize("width", bfloat_pairs.WIDTHS)
def test_infinities_and_nan_pass_a_connection_and_nothing_else(special: float, width: int) -> None:
    weight = np.abs(matrix("uniform", (300, 37), 3))
    x = np.ones((70, 300), dtype=np.float32)
    x[:, 17] = special
    result, plain = run(weight, np.zeros(37, np.float32), width, x), weight.copy()
    plain[17] = 0
    reads = weight[17] != 0
    assert reads.any()
    assert np.allclose(result[:, ~reads], rounded(plain[:, ~reads]).sum(axis=0), rtol=1e-5)
    # the greatest floats are rounded to infinity; relu leaves nothing of the negative one
    expected = np.float32(np.nan) if np.isnan(special) else np.float32(np.inf if special > 0 else 0)
    assert np.array_equal(result[:, reads], np.full((70, reads.sum()), expected), equal_nan=True)


def test_denormal_numbers_count_as_zero() -> None:
    weight, x = np.full((2, 1), 2.0, np.float32), np.full((64, 2), 1e-39, np.float32)
    assert not run(weight, np.zeros(1, np.float32), 64, x).any()


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 2500), st.integers(1, 20)),
    pattern=st.sampled_from(sorted(PATTERNS)),
)
def test_packing_keeps_every_connection(shape: tuple[int, int], pattern: str) -> None:
    weight = matrix(pattern, shape, 5)
    packed = bfloat_pairs.pack(LayerWeights(CscMatrix.from_dense(weight), np.zeros(shape[1], np.float32)))
    found, place = np.zeros(shape), 0
    for (_, base, inputs), records in zip(packed.blocks, record_ranges(packed), strict=False):
        assert inputs <= MOST_INPUTS
        for *rows, marked in records:
            end = place + int(marked & 0xFFFF)
            for member, row in enumerate(rows):
                if row in rows[:member]:
                    continue
                lines = packed.offsets[place:end, member].astype(np.int64) // LINE_UNITS
                words = packed.weights[place:end, member][:, None] >> np.array([0, 16], np.uint32) << 16
                values = words.astype(np.uint32).view(np.float32)
                assert not values[lines == 0].any()
                assert np.all(lines <= inputs)
                np.add.at(found[:, row // OFFSET_UNIT], (lines + base // OFFSET_UNIT - 1)[lines > 0], values[lines > 0])
            place = end
    assert place == len(packed.weights)
    assert np.array_equal(found, rounded(weight))


def record_ranges(packed: bfloat_pairs.PackedPairs) -> list[list[list[int]]]:
    ends = np.cumsum(packed.blocks[:-1, 0]).tolist()
    return [packed.records[first:end].tolist() for first, end in zip([0, *ends], ends, strict=False)]


def test_a_share_of_outputs_has_the_blocks_of_the_layer() -> None:
    weight = np.ones((900, 40), np.float32)
    weight[1:, 20:] = 0
    weight[-1, 20:] = 1
    whole = LayerWeights(CscMatrix.from_dense(weight), np.zeros(40, np.float32))
    blocks, share, alone = (
        bfloat_pairs.pack(one).blocks[:, 1:].tolist()
        for one in (whole, whole.share(20, 40), LayerWeights(whole.share(20, 40).weight, np.zeros(20, np.float32)))
    )
    assert len(blocks) == 5
    # blocks without connections are left out
    assert share == [blocks[0], *blocks[3:]]
    assert alone == [[0, 900], [0, 0]]


def test_targets_without_the_instructions_are_refused() -> None:
    weight = matrix("uniform", (30, 8), 0)
    with pytest.raises(ValueError, match=r"^kernel bfloat_pairs needs a CPU with avx512_bf16, or bf16 on ARM$"):
        lower(layer(weight, np.zeros(8, np.float32), 32), CpuTarget.avx512())

"""The kernel of tiles of bfloat16 against sums in float64 of values that `ml_dtypes` has rounded, and its packing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.kernels.family import LayerWeights
from redpebble.kernels.formats import bfloat_tiles
from redpebble.kernels.formats.bfloat_tiles import BLOCK_INPUTS, CHUNK_BLOCKS, WIDTHS
from redpebble.kernels.machine import Machine
from redpebble.kernels.prediction import candidates
from redpebble.kernels.work import Layer
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.runtime.jit import host_target
from redpebble.sparse.csr import CscMatrix
from tests.lowering.kernels.test_bfloat_pairs import layer, matrix, rounded
from tests.support.kernel_cases import PATTERNS, rounding_of
from tests.support.lowering_modules import Floats, native

FAMILY = bfloat_tiles.FAMILY
with_tiles = pytest.mark.skipif(not host_target().multiplies_bfloat_tiles, reason="needs a CPU with amx-bf16")


def run(weight: Floats, bias: Floats, width: int, x: Floats) -> Floats:
    (result,) = native(layer(weight, bias, width, FAMILY.name), host_target()).run(None, {"x0": x})
    return result


@with_tiles
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shape", [(1, 1), (31, 15), (32, 16), (33, 17), (300, 24), (257, 40), (600, 70), (70, 129)])
def test_sums_are_those_of_rounded_values(shape: tuple[int, int], width: int) -> None:
    for pattern in ("uniform", "full", "all zero", "empty rows and columns"):
        for batch in (0, 1, 7, 17, 64, 100):
            weight, rng = matrix(pattern, shape, seed=batch), np.random.default_rng(1)
            bias = rng.standard_normal(shape[1]).astype(np.float32)
            x = rng.standard_normal((batch, shape[0])).astype(np.float32)
            exact = np.maximum(rounded(x) @ rounded(weight) + bias, 0)
            assert np.all(np.abs(run(weight, bias, width, x) - exact) <= rounding_of(x, weight, bias)), (pattern, batch)


@with_tiles
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, np.finfo(np.float32).max])
def test_infinities_and_nan_reach_all_that_reads_them_and_stay_in_their_rows(special: float) -> None:
    weight = np.abs(matrix("uniform", (300, 37), 3))
    x = np.ones((70, 300), dtype=np.float32)
    x[9, 17] = special
    result, plain = run(weight, np.zeros(37, np.float32), 64, x), rounded(weight).sum(axis=0)
    others = np.arange(70) != 9
    assert np.allclose(result[others], plain, rtol=1e-5)
    reads = weight[17] != 0
    # the greatest floats are rounded to infinity; relu leaves nothing of the negative one, but may find NaN elsewhere
    expected = np.float32(np.nan) if np.isnan(special) else np.float32(np.inf if special > 0 else 0)
    assert np.array_equal(result[9, reads], np.full(reads.sum(), expected), equal_nan=True)
    assert np.all(np.isnan(result[9, ~reads]) | np.isclose(result[9, ~reads], plain[~reads], rtol=1e-5))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(shape=st.tuples(st.integers(1, 700), st.integers(1, 70)), pattern=st.sampled_from(sorted(PATTERNS)))
def test_packing_keeps_every_connection(shape: tuple[int, int], pattern: str) -> None:
    weight = matrix(pattern, shape, 5)
    packed = bfloat_tiles.pack(LayerWeights(CscMatrix.from_dense(weight), np.zeros(shape[1], np.float32)))
    chunks, panels = -(-shape[0] // (BLOCK_INPUTS * CHUNK_BLOCKS)), len(packed.outputs)
    found = np.zeros((chunks * CHUNK_BLOCKS * BLOCK_INPUTS, max(16, shape[1])))
    for chunk in range(chunks):
        for panel in range(panels):
            for step in range(*packed.starts[chunk * panels + panel :][:2]):
                first = (chunk * CHUNK_BLOCKS + packed.blocks[step]) * BLOCK_INPUTS
                for start, tile in zip(packed.outputs[panel], packed.weights[step], strict=True):
                    values = (tile.astype(np.uint32) << 16).view(np.float32)
                    assert values.any() or packed.weights[step].any()
                    found[first : first + BLOCK_INPUTS, start : start + 16] += values.T
    assert packed.starts[-1] == len(packed.weights)
    assert not found[shape[0] :].any()
    assert np.array_equal(found[: shape[0], : shape[1]], rounded(weight))


def test_only_layers_that_may_be_rounded_have_it_and_only_where_the_instructions_are() -> None:
    layer = Layer(256, np.full(256, 60), rounded=True)
    xeon = Machine(16, prices="emerald_rapids", bfloat=True, bfloat_tiles=True)
    assert FAMILY.name in candidates(layer, 64, xeon)
    assert FAMILY.name not in candidates(layer, 64, Machine(16, prices="emerald_rapids", bfloat=True))
    assert FAMILY.name not in candidates(Layer(256, layer.counts), 64, xeon)


def test_targets_without_the_instructions_are_refused() -> None:
    module = layer(matrix("uniform", (30, 8), 0), np.zeros(8, np.float32), 32, FAMILY.name)
    with pytest.raises(ValueError, match=r"^kernel bfloat_tiles needs a CPU with amx-bf16$"):
        lower(module, CpuTarget.zen4())

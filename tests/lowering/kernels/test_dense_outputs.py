"""Dense kernels of any number of rows: against float64, and the same bits whatever comes beside a row."""

import numpy as np
import pytest
from llvmlite import ir
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.kernels.dense_outputs import CHUNK, FEW_INPUTS, MOST_COLUMNS, emit
from redpebble.lowering.kernels.kernel_form import LinearForm
from redpebble.lowering.llvm.builder import Code
from redpebble.runtime.jit import host_target
from redpebble.runtime.network import Network
from tests.support.lowering_modules import Floats, best_target_first, native, tiled

WIDTHS = (1, 2, 6, 8, 12, 20, 24, 36, 64, 144)
BATCHES = (0, 1, 2, 5, 7, 12, 13, 17, 20, 25, 31, 33, 61, 100, 143, 150)


def random(shape: tuple[int, ...], seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def chain(weights: list[Floats], target: CpuTarget) -> Network:
    """Layers one after the other, the last one without an activation."""

    def body(block: Block, arguments: list[SSAValue]) -> list[SSAValue]:
        value = arguments[0]
        for number, weight in enumerate(weights):
            constants = [ConstantOp(weight), ConstantOp(random(weight.shape[1:], 50 + number))]
            activation = None if number == len(weights) - 1 else ActivationAttr("relu")
            layer = LinearOp(value, constants[0].result, constants[1].result, activation)
            layer.kernel = KernelAttr({1: "dense_outputs"}, "by the test")
            block.add_ops([*constants, layer])
            value = layer.result
        return [value]

    inputs = [f32_tensor((DYNAMIC, weights[0].shape[0]))]
    return native(tiled(inputs, lambda block, arguments: body(block, list(arguments)), WIDTHS), target)


def exact(weights: list[Floats], x: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    value = x.astype(np.float64)
    for number, weight in enumerate(weights):
        value = value @ weight.astype(np.float64) + random(weight.shape[1:], 50 + number)
        value = value if number == len(weights) - 1 else np.maximum(value, 0)
    return value


@pytest.mark.slow
@best_target_first
def test_a_chain_of_dense_layers_agrees_with_float64_at_any_batch(target: CpuTarget) -> None:
    weights = [random((37, 85), 1), random((85, 70), 2), random((70, 5), 3)]
    network = chain(weights, target)
    for batch in BATCHES:
        x = random((batch, 37), batch)
        (result,) = network.run(None, {"x0": x})
        assert np.allclose(result, exact(weights, x), rtol=1e-4, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [FEW_INPUTS + 1, FEW_INPUTS + CHUNK])
def test_sums_that_were_put_aside_go_on(inputs: int) -> None:
    weights = [random((inputs, 70), 4)]
    x = random((15, inputs), 5)
    (result,) = chain(weights, host_target()).run(None, {"x0": x})
    assert np.allclose(result, exact(weights, x), rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_a_row_is_the_same_bits_in_any_batch() -> None:
    network = chain([random((51, 90), 6), random((90, 33), 7)], host_target())
    x = random((150, 51), 8)
    (together,) = network.run(None, {"x0": x})
    for batch in (1, 6, 19, 45, 110):
        (some,) = network.run(None, {"x0": x[:batch]})
        assert some.tobytes() == together[:batch].tobytes()


@pytest.mark.slow
def test_nan_and_infinity_stay_in_their_rows() -> None:
    network = chain([random((21, 40), 9)], host_target())
    x = random((17, 21), 10)
    (expected,) = network.run(None, {"x0": x})
    x[3, 20], x[16, 0] = np.inf, np.nan
    (result,) = network.run(None, {"x0": x})
    others = [row for row in range(17) if row not in (3, 16)]
    assert np.array_equal(result[others], expected[others])
    assert not np.isfinite(result[3]).any()
    assert np.isnan(result[16]).all()


def test_too_wide_a_tile_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^dense_outputs has code for up to 144 batch columns, the tile has 160$"):
        emit(Code(host_target(), ir.Module("test")), LinearForm(MOST_COLUMNS + 16, None))

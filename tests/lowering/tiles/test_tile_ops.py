from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, PreluOp, SubOp
from redpebble.dialect.ops.layers import LayerNormOp, LogSoftmaxOp, ReduceMeanOp, RmsNormOp, SoftmaxOp
from redpebble.dialect.ops.movement import ConcatOp, SplitOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.jit import host_target
from tests.support.lowering_modules import Floats, best_target_first, native, one_op, tiled

Exact = NDArray[np.float64]

BATCHES = (0, 1, 7, 17, 64, 70)
FEATURES = 37


def random(batch: int, features: int = FEATURES, seed: int = 0) -> Floats:
    return (3 * np.random.default_rng((seed, batch)).standard_normal((batch, features))).astype(np.float32)


def softmax(x: Exact) -> Exact:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


SCALE = np.linspace(0.5, 2, FEATURES, dtype=np.float32)
BIAS = np.linspace(-1, 1, FEATURES, dtype=np.float32)


def normal(x: Exact, epsilon: float) -> Exact:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)


def layer_norm(x: SSAValue, scale: SSAValue, bias: SSAValue | None = None) -> LayerNormOp:
    return LayerNormOp(x, scale, bias, 1e-5)


def rms_norm(x: SSAValue, scale: SSAValue) -> RmsNormOp:
    return RmsNormOp(x, scale, 1e-6)


def relu(x: SSAValue) -> ActivateOp:
    return ActivateOp(x, ActivationAttr("relu"))


OVER_FEATURES: dict[str, tuple[Callable[..., Operation], Sequence[Floats], Callable[[Exact], Exact]]] = {
    "softmax": (SoftmaxOp, (), softmax),
    "log_softmax": (LogSoftmaxOp, (), lambda x: np.log(softmax(x))),
    "layer_norm": (
        layer_norm,
        (SCALE, BIAS),
        lambda x: normal(x, 1e-5) * SCALE + BIAS,
    ),
    "layer_norm_without_bias": (
        layer_norm,
        (SCALE,),
        lambda x: normal(x, 1e-5) * SCALE,
    ),
    "rms_norm": (
        rms_norm,
        (SCALE,),
        lambda x: x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * SCALE,
    ),
    "reduce_mean": (ReduceMeanOp, (), lambda x: x.mean(axis=-1, keepdims=True)),
    "activate": (relu, (), lambda x: np.maximum(x, 0)),
}


@pytest.mark.slow
@best_target_first
@pytest.mark.parametrize("name", OVER_FEATURES)
def test_work_over_features_agrees_with_float64(target: CpuTarget, name: str) -> None:
    make, constants, reference = OVER_FEATURES[name]
    network = native(one_op(make, [FEATURES], constants), target)
    for batch in BATCHES:
        x = random(batch)
        (result,) = network.run(None, {"x0": x})
        np.testing.assert_allclose(result, reference(x.astype(np.float64)), rtol=2e-5, atol=2e-6)


ARITHMETIC: dict[str, tuple[type[AddOp | SubOp | MulOp | DivOp | PreluOp], Callable[[Exact, Exact], Exact]]] = {
    "add": (AddOp, np.add),
    "sub": (SubOp, np.subtract),
    "mul": (MulOp, np.multiply),
    "div": (DivOp, np.divide),
    "prelu": (PreluOp, lambda x, slope: np.where(x < 0, x * slope, x)),
}


@best_target_first
@pytest.mark.parametrize("name", ARITHMETIC)
def test_two_operands_of_a_tile_meet_elementwise(target: CpuTarget, name: str) -> None:
    make, reference = ARITHMETIC[name]
    pairs = [(FEATURES, FEATURES), (FEATURES, 1), (1, FEATURES)]
    for features in pairs[:2] if make is PreluOp else pairs:  # a slope never makes the result wider
        network = native(one_op(make, features), target)
        for batch in BATCHES:
            left, right = random(batch, features[0], seed=1), random(batch, features[1], seed=2)
            (result,) = network.run(None, {"x0": left, "x1": right})
            exact = reference(left.astype(np.float64), right.astype(np.float64))
            np.testing.assert_allclose(result, exact, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("constant", [BIAS, BIAS[:1]], ids=["one for each feature", "one for all"])
def test_a_constant_is_read_for_each_feature(name: str, constant: Floats) -> None:
    make, reference = ARITHMETIC[name]
    x = random(9)
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = reference(x.astype(np.float64), constant.astype(np.float64))
    (result,) = native(one_op(make, [FEATURES], [constant]), host_target()).run(None, {"x0": x})
    np.testing.assert_allclose(result, exact, rtol=1e-6, atol=1e-7)


def test_a_constant_may_stand_on_the_left() -> None:
    def reversed_sub(x: SSAValue, constant: SSAValue) -> SubOp:
        return SubOp(constant, x)

    x = random(9)
    (result,) = native(one_op(reversed_sub, [FEATURES], [BIAS]), host_target()).run(None, {"x0": x})
    np.testing.assert_array_equal(result, BIAS - x)


@best_target_first
def test_features_are_cut_and_joined(target: CpuTarget) -> None:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        split = SplitOp(arguments[0], 1, [5, 30, 2])
        joined = ConcatOp([split.parts[2], split.parts[0], arguments[1]], 1)
        block.add_ops([split, joined])
        return [joined.result, split.parts[1]]

    network = native(tiled([f32_tensor((DYNAMIC, 37)), f32_tensor((DYNAMIC, 3))], body), target)
    for batch in BATCHES:
        x, other = random(batch), random(batch, 3)
        joined, middle = network.run(None, {"x0": x, "x1": other})
        np.testing.assert_array_equal(joined, np.concatenate([x[:, 35:], x[:, :5], other], axis=1))
        np.testing.assert_array_equal(middle, x[:, 5:35])


def test_nan_spreads_over_its_own_row_only() -> None:
    x = random(20)
    x[3, 4] = np.nan
    (result,) = native(one_op(SoftmaxOp, [FEATURES]), host_target()).run(None, {"x0": x})
    assert np.isnan(result[3]).all()
    assert np.isfinite(np.delete(result, 3, axis=0)).all()


def test_an_argument_and_a_value_may_both_be_yielded() -> None:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        constant = ConstantOp(BIAS)
        add = AddOp(arguments[0], constant.result)
        block.add_ops([constant, add])
        return [arguments[0], add.result, add.result]

    x = random(33)
    network = native(tiled([f32_tensor((DYNAMIC, FEATURES))], body), host_target())
    results = network.run(None, {"x0": x})
    for result, expected in zip(results, [x, x + BIAS, x + BIAS], strict=True):
        np.testing.assert_array_equal(result, expected)

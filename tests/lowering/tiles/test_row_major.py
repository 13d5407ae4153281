from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp, SubOp
from redpebble.dialect.ops.layers import SoftmaxOp
from redpebble.dialect.ops.movement import (
    INFERRED,
    ConcatOp,
    ReshapeOp,
    SplitOp,
    TakeOp,
    TargetShapeAttr,
    TransposeOp,
    copied,
)
from redpebble.dialect.tensors import DYNAMIC, Shape, f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.runtime.jit import host_target
from tests.support.lowering_modules import Floats, best_target_first, function, native

Make = Callable[..., Operation]


def of_ops(shapes: Sequence[Shape], make: Make) -> ModuleOp:
    """A function of one op on inputs of `shapes`, which returns its results."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        op = make(*arguments)
        block.add_op(op)
        return op.results

    return function([f32_tensor(shape) for shape in shapes], body)


def numbered(shape: Shape) -> Floats:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@best_target_first
@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0)])
@pytest.mark.parametrize("shape", [(2, 3, 4), (0, 3, 4), (5, 1, 33), (3, 20, 17)])
def test_a_transpose_is_numpys(target: CpuTarget, axes: tuple[int, ...], shape: Shape) -> None:
    def transpose(x: SSAValue) -> TransposeOp:
        return TransposeOp(x, axes)

    network = native(of_ops([(DYNAMIC, DYNAMIC, shape[2])], transpose), target)
    x = numbered(shape)
    (result,) = network.run(None, {"x0": x})
    np.testing.assert_array_equal(result, x.transpose(axes))


@best_target_first
@pytest.mark.parametrize(("axis", "place"), [(0, 0), (1, -1), (1, 2), (2, 3), (2, -2)])
@pytest.mark.parametrize("shape", [(1, 3, 4), (7, 3, 33), (17, 20, 8), (0, 3, 4)])
def test_what_is_taken_is_numpys(target: CpuTarget, axis: int, place: int, shape: Shape) -> None:
    def take(x: SSAValue) -> TakeOp:
        return TakeOp(x, axis, place)

    network = native(of_ops([(DYNAMIC, DYNAMIC, DYNAMIC)], take), target)
    x = numbered(shape)
    if axis == 0 and not shape[0]:
        with pytest.raises(ValueError, match=r"expected 1 or more, as the network reads place 0, got 0"):
            network.run(None, {"x0": x})
        return
    (result,) = network.run(None, {"x0": x})
    np.testing.assert_array_equal(result, x.take(place, axis))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat_and_split_are_each_others_inverse(axis: int) -> None:
    def make(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        split = SplitOp(arguments[0], axis, [1, 3])
        joined = ConcatOp([split.parts[1], split.parts[0]], axis)
        block.add_ops([split, joined])
        return [joined.result, *split.parts]

    x = numbered((4, 4, 4))
    network = native(function([f32_tensor((4, 4, 4))], make), host_target())
    joined, first, second = network.run(None, {"x0": x})
    np.testing.assert_array_equal(joined, np.concatenate([second, first], axis))
    np.testing.assert_array_equal(np.concatenate([first, second], axis), x)


sizes = st.integers(1, 19)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_arithmetic_broadcasts_as_numpy_does(data: st.DataObject) -> None:
    whole = tuple(data.draw(st.lists(sizes, max_size=4)))
    shapes: list[Shape] = []
    for _ in range(2):
        shape = [size if data.draw(st.booleans()) else 1 for size in whole]
        shapes.append(tuple(shape[data.draw(st.integers(0, len(shape))) :]))
    left, right = (np.random.default_rng(1).standard_normal(shape).astype(np.float32) for shape in shapes)
    network = native(of_ops(shapes, SubOp), host_target())
    (result,) = network.run(None, {"x0": left, "x1": right})
    np.testing.assert_array_equal(result, left - right)


def test_sizes_that_only_the_call_knows_must_agree() -> None:
    network = native(of_ops([(DYNAMIC, 4), (DYNAMIC, DYNAMIC, 4)], AddOp), host_target())
    left, right = numbered((3, 4)), numbered((3, 3, 4))
    (result,) = network.run(None, {"x0": left, "x1": right})
    np.testing.assert_array_equal(result, left + right)
    with pytest.raises(ValueError, match="expected equal sizes, got d0 = 3 and d1 = 2"):
        network.run(None, {"x0": left, "x1": numbered((3, 2, 4))})


def test_reshapes_share_a_buffer_and_outputs_may_share_a_value() -> None:
    def make(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        constant = ConstantOp(numbered((3,)))
        transposed = TransposeOp(arguments[0], (1, 0, 2))
        flat = ReshapeOp(transposed.result, TargetShapeAttr([INFERRED, 12]))
        back = ReshapeOp(flat.result, TargetShapeAttr([copied(0), 4, 3]))
        added = AddOp(back.result, constant.result)
        block.add_ops([constant, transposed, flat, back, added])
        return [flat.result, added.result, flat.result, arguments[0], constant.result]

    x = numbered((5, 4, 3))
    network = native(function([f32_tensor((DYNAMIC, 4, 3))], make), host_target())
    flat, added, again, same, constant = network.run(None, {"x0": x})
    np.testing.assert_array_equal(flat, x.transpose(1, 0, 2).reshape(-1, 12))
    np.testing.assert_array_equal(added, flat.reshape(-1, 4, 3) + numbered((3,)))
    np.testing.assert_array_equal(again, flat)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(constant, numbered((3,)))


def test_temporaries_that_live_together_do_not_overlap() -> None:
    def make(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        first = TransposeOp(arguments[0], (1, 0))
        second = TransposeOp(first.result, (1, 0))
        third = TransposeOp(second.result, (1, 0))
        both = AddOp(first.result, third.result)
        block.add_ops([first, second, third, both])
        return [both.result]

    x = numbered((6, 7))
    network = native(function([f32_tensor((DYNAMIC, 7))], make), host_target())
    np.testing.assert_array_equal(network.run(None, {"x0": x})[0], 2 * x.T)


def test_an_activation_of_unknown_sizes_runs_outside_a_tile() -> None:
    def activate(x: SSAValue) -> ActivateOp:
        return ActivateOp(x, ActivationAttr("relu"))

    x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    (result,) = native(of_ops([(DYNAMIC, DYNAMIC)], activate), host_target()).run(None, {"x0": x})
    np.testing.assert_array_equal(result, np.maximum(x, 0))


def test_what_belongs_into_a_tile_is_refused_outside() -> None:
    with pytest.raises(ValueError, match=r"pebble\.softmax has no code outside a pebble\.tile"):
        lower(of_ops([(DYNAMIC, 4)], SoftmaxOp), host_target())

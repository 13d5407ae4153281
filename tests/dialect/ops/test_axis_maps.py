"""Axis maps say what ops compute: indices of a shared axis may be permuted, and the values at one do not see others."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.axis_maps import Axes, AxisMap, HasAxisMap, axis_map_of
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, PreluOp, SubOp
from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.dialect.ops.layers import (
    BatchNormOp,
    LayerNormOp,
    LinearOp,
    LogSoftmaxOp,
    ReduceMeanOp,
    RmsNormOp,
    SoftmaxOp,
)
from redpebble.dialect.ops.movement import INFERRED, ConcatOp, ReshapeOp, SplitOp, TargetShapeAttr, TransposeOp, copied
from redpebble.dialect.pebble import Pebble
from redpebble.dialect.semantics.interpreter import evaluate
from redpebble.dialect.tensors import f32_tensor, shape_of

ATOL = 1e-12


def values(*shapes: Sequence[int]) -> list[SSAValue]:
    return list(Block(arg_types=[f32_tensor(shape) for shape in shapes]).args)


def ops() -> list[Operation]:
    x, y, weight, bias, row, column, scalar = values((2, 3, 4), (2, 3, 4), (4, 5), (5,), (4,), (3, 1), ())
    per_index = values((3,), (3,), (3,), (3,))
    return [
        ActivateOp(x, ActivationAttr("relu")),
        *(op_class(x, other) for op_class in (AddOp, SubOp, MulOp, DivOp, PreluOp) for other in (y, row, column)),
        AddOp(row, x),
        AddOp(x, scalar),
        LinearOp(x, weight),
        LinearOp(x, weight, bias, ActivationAttr("tanh")),
        SoftmaxOp(x),
        LogSoftmaxOp(x),
        LayerNormOp(x, row, None, 1e-5),
        LayerNormOp(x, row, row, 1e-5),
        RmsNormOp(x, row, 1e-5),
        BatchNormOp(x, (per_index[0], per_index[1], per_index[2], per_index[3]), 1e-5),
        ReduceMeanOp(x),
        TransposeOp(x, (2, 0, 1)),
        ConcatOp([x, y], 1),
        SplitOp(x, 2, (1, 3)),
        ReshapeOp(x, TargetShapeAttr((INFERRED, 4))),
        ReshapeOp(x, TargetShapeAttr((2, copied(1), 2, 2))),
    ]


def arrays_for(op: Operation) -> list[NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 2.0, shape_of(operand)) for operand in op.operands]


def map_of(op: Operation) -> AxisMap:
    axis_map = axis_map_of(op)
    assert axis_map is not None
    return axis_map


def free_axes(axis_map: AxisMap) -> list[str]:
    joined = (axis_map.join.whole, *axis_map.join.parts) if axis_map.join is not None else ()
    names = {name for axes in (*axis_map.operands, *axis_map.results) for name in axes}
    return sorted(names - axis_map.fixed - set(joined))


def permuted(array: NDArray[np.float64], axes: Axes, name: str, order: Sequence[int]) -> NDArray[np.float64]:
    for axis in (axis for axis, own in enumerate(axes) if own == name and array.shape[axis] == len(order)):
        array = array.take(order, axis)
    return array


def size_along(op: Operation, axis_map: AxisMap, name: str) -> int:
    pairs = zip((*op.operands, *op.results), (*axis_map.operands, *axis_map.results), strict=True)
    return max(shape_of(value)[axis] for value, axes in pairs for axis, own in enumerate(axes) if own == name)


@pytest.mark.parametrize("op", ops(), ids=lambda op: op.name)
def test_axes_of_one_name_may_be_permuted_together(op: Operation) -> None:
    axis_map, operands = map_of(op), arrays_for(op)
    results = evaluate(op, tuple(operands), np.float64)
    for name in free_axes(axis_map):
        order = np.random.default_rng(1).permutation(size_along(op, axis_map, name)).tolist()
        moved = [permuted(array, axes, name, order) for array, axes in zip(operands, axis_map.operands, strict=True)]
        expected = [permuted(array, axes, name, order) for array, axes in zip(results, axis_map.results, strict=True)]
        for result, wanted in zip(evaluate(op, tuple(moved), np.float64), expected, strict=True):
            np.testing.assert_allclose(result, wanted, atol=ATOL)


@pytest.mark.parametrize("op", ops(), ids=lambda op: op.name)
def test_a_shared_axis_that_is_not_needed_whole_is_worked_on_index_by_index(op: Operation) -> None:
    axis_map, operands = map_of(op), arrays_for(op)
    results = evaluate(op, tuple(operands), np.float64)
    shared = set(free_axes(axis_map)) - axis_map.whole - axis_map.summed
    for name in shared:
        if size_along(op, axis_map, name) == 1:
            continue
        changed = [array.copy() for array in operands]
        for array, axes in zip(changed, axis_map.operands, strict=True):
            if name in axes and array.shape[axes.index(name)] > 1:
                np.moveaxis(array, axes.index(name), 0)[0] += 1.0
        pairs = zip(results, evaluate(op, tuple(changed), np.float64), axis_map.results, strict=True)
        for before, after, axes in pairs:
            if name in axes:
                kept, seen = (np.moveaxis(array, axes.index(name), 0)[1:] for array in (before, after))
                np.testing.assert_allclose(seen, kept, atol=ATOL)


def test_every_op_that_computes_has_a_map() -> None:
    without = {op.name for op in Pebble.operations if op.get_trait(HasAxisMap) is None}
    holders = {"pebble.tile", "pebble.sparse_network", "pebble.yield", "pebble.foreign", "pebble.edge_list"}
    assert without == {"pebble.constant", "pebble.sparse_constant", *holders}


def test_what_a_map_says_of_sums_and_elements() -> None:
    x, weight = values((2, 4), (4, 3))
    linear, softmax = map_of(LinearOp(x, weight)), map_of(SoftmaxOp(x))
    assert linear.summed == {"k"}
    assert linear.parameters == {1, 2, 3}
    assert not linear.keeps_features
    assert softmax.reduces
    assert softmax.keeps_features
    assert not softmax.is_elementwise
    assert map_of(AddOp(x, x)).is_elementwise
    assert axis_map_of(ForeignOp("ai.onnx::Abs", 0, {}, [])) is None

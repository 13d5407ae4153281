"""Random modules of the dialect, with feeds for them: an op at a time, on values that are there already."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from redpebble.dialect.attributes.activations import ACTIVATIONS, ActivationAttr
from redpebble.dialect.attributes.io_bounds import IoBoundsAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.schedule import ScheduleAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, PreluOp, SubOp
from redpebble.dialect.ops.layers import (
    BatchNormOp,
    LayerNormOp,
    LinearOp,
    LogSoftmaxOp,
    ReduceMeanOp,
    RmsNormOp,
    SoftmaxOp,
)
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
from redpebble.dialect.ops.regions import YieldOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.provenance import set_provenance
from redpebble.dialect.record import Bounds
from redpebble.dialect.tensors import DYNAMIC, Shape, f32_tensor, shape_of
from redpebble.sparse.csr import CscMatrix

NEUTRAL = (0.0, -0.0, 1.0)
ORDINARY = (0.5, -2.0, 3.0)
SPECIAL = (float("nan"), float("inf"), float("-inf"))

# of a zero, the sign decides what 1 / x is, and canonicalization may change it
KINDS = sorted(set(ACTIVATIONS) - {"reciprocal"})


class Case(NamedTuple):
    """A module and a feed for each of its arguments, in float64."""

    module: ModuleOp
    feeds: dict[str, NDArray[np.float64]]


class Growing:
    """A block that grows: what has been drawn, and the values that ops may use."""

    def __init__(self, draw: st.DrawFn, block: Block, numbers: tuple[float, ...]) -> None:
        self.draw, self.block, self.numbers = draw, block, numbers
        self.values: list[SSAValue] = list(block.args)
        self.shaped_as: dict[SSAValue, SSAValue] = {}

    def keep(self, op: Operation, x: SSAValue) -> None:
        """Add `op`, which was made for `x`, and let later ops use its results."""
        self.add(op)
        self.values.extend(op.results)
        moves = isinstance(op, ReshapeOp | TransposeOp | ConcatOp | SplitOp)
        for result in op.results:
            if result.type == x.type and not moves:
                self.shaped_as[result] = self.shaped_as.get(x, x)

    def alike(self, x: SSAValue) -> list[SSAValue]:
        """The values that have the shape of `x` in every call; equal types do not say so."""
        shape = self.shaped_as.get(x, x)
        return [value for value in self.values if self.shaped_as.get(value, value) is shape]

    def add(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    def pick(self) -> SSAValue:
        """One of the latest values, so that chains grow."""
        return self.draw(st.sampled_from(self.values[:-4:-1]))

    def array(self, shape: Shape) -> NDArray[np.float32]:
        uniform = self.draw(st.booleans())
        numbers = st.sampled_from(self.numbers)
        if uniform:
            return np.full(shape, self.draw(numbers), dtype=np.float32)
        size = int(np.prod(shape))
        drawn = self.draw(st.lists(numbers, min_size=size, max_size=size))
        return np.array(drawn, dtype=np.float32).reshape(shape)

    def constant(self, shape: Shape) -> SSAValue:
        return self.add(ConstantOp(self.array(shape)))

    def activation(self) -> ActivationAttr:
        kind = self.draw(st.sampled_from(KINDS))
        return ActivationAttr(kind, tuple(self.draw(st.sampled_from(ORDINARY)) for _ in ACTIVATIONS[kind].parameters))


def _linear(growing: Growing, x: SSAValue) -> Operation:
    draw = growing.draw
    shape = (shape_of(x)[-1], draw(st.integers(1, 4)))
    matrix = growing.array(shape)
    weight = SparseConstantOp(CscMatrix.from_dense(matrix)) if draw(st.booleans()) else ConstantOp(matrix)
    bias = growing.constant(shape[1:]) if draw(st.booleans()) else None
    op = LinearOp(x, growing.add(weight), bias, growing.activation() if draw(st.booleans()) else None)
    if draw(st.booleans()):
        op.kernel = KernelAttr({1: "dense"}, draw(st.text("abc .<>", max_size=5)), blocks={"dense": 3})
        op.io_bounds = IoBoundsAttr(Bounds(9, 12), Bounds(2, 4))
    return op


def _with_constant(growing: Growing, x: SSAValue) -> Operation:
    kind = growing.draw(st.sampled_from([AddOp, SubOp, MulOp, DivOp, PreluOp]))
    shapes = [(), (1,), shape_of(x)[-1:], (1, *shape_of(x)[-1:])]
    constant = growing.constant(growing.draw(st.sampled_from(shapes)))
    if kind in (DivOp, PreluOp) or growing.draw(st.booleans()):
        return kind(x, constant)
    return kind(constant, x)


def _with_itself(growing: Growing, x: SSAValue) -> Operation:
    return growing.draw(st.sampled_from([AddOp, SubOp, MulOp]))(x, growing.draw(st.sampled_from(growing.alike(x))))


def _normalize(growing: Growing, x: SSAValue) -> Operation:
    features = shape_of(x)[-1:]
    match growing.draw(st.integers(0, 5)):
        case 0:
            return SoftmaxOp(x)
        case 1:
            return LogSoftmaxOp(x)
        case 2:
            return ReduceMeanOp(x)
        case 3:
            return RmsNormOp(x, growing.constant(features), 1e-5)
        case 4:
            return LayerNormOp(x, growing.constant(features), growing.constant(features), 1e-5)
        case _:
            return LayerNormOp(x, growing.constant(features), None, float(np.float32(1e-5)))


def _batch_norm(growing: Growing, x: SSAValue) -> Operation:
    channels = shape_of(x)[1:2]
    scale, bias, mean, variance = (growing.constant(channels) for _ in range(4))
    return BatchNormOp(x, (scale, bias, mean, variance), 1e-5)


def _reshape(growing: Growing, x: SSAValue) -> Operation:
    shape = shape_of(x)
    kept = [size if size != DYNAMIC else copied(axis) for axis, size in enumerate(shape)]
    targets = [
        [INFERRED],
        [*kept[:-1], INFERRED],
        [INFERRED, *kept[1:]],
        [*kept, 1],
        [copied(axis) for axis in range(len(shape))],
    ]
    return ReshapeOp(x, TargetShapeAttr(growing.draw(st.sampled_from(targets))))


def _move(growing: Growing, x: SSAValue) -> Operation:
    shape = shape_of(x)
    axis = growing.draw(st.integers(0, len(shape) - 1))
    match growing.draw(st.integers(0, 3)):
        case 3 if len(shape) > 1 and shape[axis] > 0:
            return TakeOp(x, axis, growing.draw(st.integers(-shape[axis], shape[axis] - 1)))
        case 0:
            return TransposeOp(x, growing.draw(st.permutations(range(len(shape)))))
        case 1:
            return ConcatOp(growing.draw(st.lists(st.sampled_from(growing.alike(x)), min_size=1, max_size=3)), axis)
        case _ if shape[axis] > 0:
            first = growing.draw(st.integers(0, shape[axis]))
            sizes = [size for size in (first, shape[axis] - first) if size]
            return SplitOp(x, axis, sizes)
        case _:
            return ActivateOp(x, growing.activation())


def _activate(growing: Growing, x: SSAValue) -> Operation:
    activation = growing.activation()
    once = ActivateOp(x, activation)
    if growing.draw(st.booleans()):
        return once
    return ActivateOp(growing.add(once), activation)


def _split_again(growing: Growing, x: SSAValue) -> Operation:
    axis = len(shape_of(x)) - 1
    joined = growing.add(ConcatOp([x, x], axis))
    first = growing.draw(st.integers(1, shape_of(x)[-1]))
    return SplitOp(joined, axis, [first, 2 * shape_of(x)[-1] - first])


def _rejoin(growing: Growing, x: SSAValue) -> Operation:
    split = SplitOp(x, len(shape_of(x)) - 1, [1, shape_of(x)[-1] - 1])
    growing.block.add_op(split)
    return ConcatOp(split.parts, len(shape_of(x)) - 1)


def _tile(growing: Growing, x: SSAValue) -> Operation:
    body = TileOp.body_for([x])
    inside = Growing(growing.draw, body.block, growing.numbers)
    inside.values.append(inside.add(_linear(inside, inside.values[-1])))
    inside.values.append(inside.add(_normalize(inside, inside.values[-1])))
    result = inside.values[-1]
    body.block.add_op(YieldOp([result]))
    outside = f32_tensor((*shape_of(x)[:-1], shape_of(result)[-1]))
    return TileOp([x], [(0, outside)], ScheduleAttr([1, 16]), body)


def _choices(x: SSAValue) -> list[Callable[[Growing, SSAValue], Operation]]:
    shape = shape_of(x)
    choices: list[Callable[[Growing, SSAValue], Operation]] = [_reshape, _with_itself, _move, _activate]
    if shape[-1] != DYNAMIC:
        choices += [_with_constant, _with_constant, _linear, _normalize, _tile, _split_again]
        choices += [_rejoin] if shape[-1] > 1 else []
    if len(shape) > 1 and shape[1] != DYNAMIC:
        choices.append(_batch_norm)
    return choices


@st.composite
def cases(draw: st.DrawFn, numbers: tuple[float, ...] = NEUTRAL + ORDINARY + SPECIAL) -> Case:
    shapes = draw(st.lists(st.sampled_from([(DYNAMIC, 4), (DYNAMIC, 2, 3), (3, DYNAMIC)]), min_size=1, max_size=2))
    block = Block(arg_types=[f32_tensor(shape) for shape in shapes])
    growing = Growing(draw, block, numbers)
    for index in range(draw(st.integers(1, 8))):
        x = growing.pick()
        op = draw(st.sampled_from(_choices(x)))(growing, x)
        set_provenance(op, f"node {index}", [f"value {index}" for _ in op.results])
        growing.keep(op, x)
    results = [growing.values[-1], *draw(st.lists(st.sampled_from(growing.values), max_size=2))]
    block.add_op(ReturnOp(*results))
    types = ([value.type for value in block.args], [value.type for value in results])
    names = [f"x{index}" for index in range(len(shapes))]
    named = ArrayAttr([DictionaryAttr({"pebble.name": StringAttr(name)}) for name in names])
    module = ModuleOp([FuncOp("main", types, Region(block), arg_attrs=named)])
    unknown, seed = draw(st.sampled_from([0, 1, 3])), draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    sizes = [[unknown if size == DYNAMIC else size for size in shape] for shape in shapes]
    return Case(module, {name: rng.normal(size=shape) for name, shape in zip(names, sizes, strict=True)})

"""Make layers that only sum, activate and renumber one graph of neurons and connections.

```mlir
%h = pebble.linear %x, %w bias %b activation <relu> : (tensor<?x2xf32>, ...) -> tensor<?x1xf32>
%y = pebble.linear %h, %v : (tensor<?x1xf32>, ...) -> tensor<?x1xf32>
// ->
%y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> ...
```

Biases and activations belong to neurons, a residual sum is connections of weight 1; concat, split, reshape and
transpose of features are renumberings. Softmax, normalisations, products of two values, foreign ops and what moves rows
cut a model into several graphs. Which ops come together: see `redpebble.passes.analysis.clusters`, here with the rows
of `NetworkRows`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, ShapedType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.ops.axis_maps import axis_map_of
from ...dialect.ops.constants import ConstantOp, is_constant
from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, DivOp, MulOp, PreluOp, SubOp
from ...dialect.ops.foreign import ForeignOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import INFERRED, ConcatOp, ReshapeOp, SplitOp, TargetShapeAttr, TransposeOp, copied
from ...dialect.ops.network import NetworkOp
from ...dialect.shape_inference import argument_shapes, result_shapes
from ...dialect.symbolic_sizes import Size, SymbolicShape, product
from ...dialect.tensors import DYNAMIC, is_f32_tensor, shape_of, size_of
from ..analysis.clusters import boundary_of, clusters_of
from ..analysis.dominance import moving_ops
from ..analysis.rowwise import dynamic_operands
from ..rewriting.erase_unused import erase_unused
from ..rewriting.network_builder import NetworkBuilder
from ..rewriting.outline import computing_ops, outline

# Ops that only sum, activate and renumber features, so that their results are neurons of one graph.


@dataclass(frozen=True)
class NetworkRows:
    """The symbolic shapes of a function's values, and the rows of the ops that can be part of a graph."""

    shapes: dict[SSAValue, SymbolicShape]

    @staticmethod
    def of(func: FuncOp) -> "NetworkRows":
        """Return the rows of the values in the body of `func`; sizes of which nothing is known get their own names."""
        rows = NetworkRows(argument_shapes(func))
        for op in func.body.block.ops:
            rows.shapes.update(rows.shapes_of_results(op))
        return rows

    def shapes_of_results(self, op: Operation) -> dict[SSAValue, SymbolicShape]:
        """Return the shapes of an op's results that are tensors."""
        tensors = [result for result in op.results if isinstance(result.type, ShapedType)]
        if not isinstance(op, ForeignOp):
            # a sum of sizes has no name, as in a concat along the batch
            with suppress(VerifyException):
                return dict(zip(tensors, result_shapes(op, self.shapes), strict=True))
        return {result: _own_sizes(result, f"%{len(self.shapes)}.{index}") for index, result in enumerate(tensors)}

    def leading_axes(self, value: SSAValue, rows: Size) -> int | None:
        """Return how many first axes of a value make `rows`, the others having known sizes; None where none do."""
        shape = self.shapes[value]
        for axes in range(len(shape)):
            if product(shape[:axes]) == rows and DYNAMIC not in shape_of(value)[axes:]:
                return axes
        return None

    def of_ops(self, ops: list[Operation]) -> dict[Operation, Size]:
        """Return the rows of each op that can be part of a graph; `ops` stand in block order."""
        known: dict[Operation, Size] = {}
        for op in ops:
            operands = dynamic_operands(op)
            # inputs that are ids have a shape but no features, and what a foreign op yields may have neither
            values = (*operands, *op.results)
            if not operands or any(value not in self.shapes or not is_f32_tensor(value.type) for value in values):
                continue
            # movement continues the graph that its operand is in, whatever the last axis of its result is
            producers = [
                known[operand.owner]
                for operand in operands
                if isinstance(operand.owner, Operation) and operand.owner in known
            ]
            own = [product(self.shapes[operands[0]][:-1])]
            candidates = own if isinstance(op, LinearOp) else [*producers, *own]
            fitting = [rows for rows in candidates if self._fits(op, rows)]
            if fitting:
                known[op] = fitting[0]
        return known

    def _fits(self, op: Operation, rows: Size) -> bool:
        """Return whether an op only sums, activates and renumbers the features of `rows` rows."""
        axes = [self.leading_axes(value, rows) for value in (*dynamic_operands(op), *op.results)]
        known = [count for count in axes if count is not None]
        if len(known) < len(axes):
            return False
        same = self._same_axes(op, known)
        if isinstance(op, ReshapeOp):
            unknown = [
                shape_of(value)[:count].count(DYNAMIC) for value, count in zip((op.x, op.result), known, strict=True)
            ]
            # the way back from other leading axes is a reshape, too, which can infer only one of them
            return same or max(unknown) <= 1
        return same and _keeps_rows(op, known[0]) and _is_affine(op, known[0])

    def _same_axes(self, op: Operation, axes: list[int]) -> bool:
        """Return whether all operands and results, constants left out, have the same leading axes."""
        values = (*dynamic_operands(op), *op.results)
        leading = [
            (self.shapes[value][:count], shape_of(value)[:count]) for value, count in zip(values, axes, strict=True)
        ]
        return all(shape == leading[0] for shape in leading)


def _own_sizes(value: SSAValue, name: str) -> SymbolicShape:
    """Return the shape of a value, its unknown sizes called after `name`."""
    return tuple(
        Size.symbol(f"{name}.{axis}") if size == DYNAMIC else Size.known(size)
        for axis, size in enumerate(shape_of(value))
    )


def _keeps_rows(op: Operation, leading_axes: int) -> bool:
    """Return whether the first axes of the operands are those of the results, and what has no such axes is constant."""
    axis_map = axis_map_of(op)
    if axis_map is None:
        return False
    rows = axis_map.results[0][:leading_axes]
    for index, (value, axes) in enumerate(zip(op.operands, axis_map.operands, strict=True)):
        if is_constant(value):
            if axis_map.join is not None:
                return False
        elif index in axis_map.parameters or axes[:leading_axes] != rows:
            return False
    return all(axes[:leading_axes] == rows for axes in axis_map.results)


def _is_affine(op: Operation, leading_axes: int) -> bool:
    """Return whether an op sums its operands' features, each times a number, moves them or applies an activation."""
    match op:
        case BinaryOp():
            return _is_affine_binary(op, leading_axes)
        case LinearOp(times=None) | ActivateOp() | ConcatOp() | SplitOp() | TransposeOp():
            return True
        case _:
            return False


def _is_affine_binary(op: BinaryOp, leading_axes: int) -> bool:
    """Return whether the result is a sum of the operands' features, each times a number that is finite."""
    constants = [value.owner.array for value in op.operands if isinstance(value.owner, ConstantOp)]
    rank = len(shape_of(op.result))
    for array in constants:
        padded = (1,) * (rank - array.ndim) + array.shape
        if array.ndim > rank or any(size != 1 for size in padded[:leading_axes]) or not np.all(np.isfinite(array)):
            return False
    match op:
        case AddOp() | SubOp():
            return True
        case MulOp():
            return len(constants) == 1
        case DivOp():
            return is_constant(op.right) and not is_constant(op.left) and _divides(constants[0])
        case PreluOp():
            return is_constant(op.right) and not is_constant(op.left) and constants[0].size == 1
        case _:
            return False


def _divides(array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bool:
    """Return whether the reciprocals of a constant are finite in single precision."""
    with np.errstate(all="ignore"):
        return bool(np.all(np.isfinite(np.float32(1.0) / array)))


@dataclass(frozen=True)
class FlattenNetwork(ModulePass):
    """Replace connected layers by `pebble.network`."""

    name = "pebble-flatten-network"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with moving_ops(self.name, op) as functions:
            for func in functions:
                _flatten(func)
            erase_unused(op.body)


def _flatten(func: FuncOp) -> None:
    ops, rows = computing_ops(func.body.block), NetworkRows.of(func)
    known = rows.of_ops(ops)

    def network(members: Sequence[Operation]) -> list[Operation] | None:
        has_layers = any(isinstance(op, LinearOp) for op in members)
        return _Region(rows, known[members[0]], members).build() if has_layers else None

    outline(func.body.block, clusters_of(ops, known), network)


@dataclass(frozen=True)
class _Region:
    """Ops in block order that become one graph, and the rows of all their values."""

    rows: NetworkRows
    count: Size
    ops: Sequence[Operation]

    def build(self) -> list[Operation]:
        """Return the network and reshapes around it; users of what the ops computed now read what it computes."""
        inputs, results = boundary_of(self.ops)
        produced = [result for op in self.ops for result in op.results]
        builder = NetworkBuilder({value: self._axes(value) for value in (*inputs, *produced)})
        for value in inputs:
            builder.add_input(value)
        for op in self.ops:
            builder.add(op)
        before = [self._with_rank_of(inputs[0], value) for value in inputs]
        flat = [value if reshape is None else reshape.result for value, reshape in zip(inputs, before, strict=True)]
        network = NetworkOp(flat, builder.finish(results), [self._feature_count(value) for value in results])
        after: list[Operation] = []
        for old, new in zip(results, network.outputs, strict=True):
            new.name_hint = old.name_hint
            after += self._replace(old, new)
        return [*(reshape for reshape in before if reshape is not None), network, *after]

    def _axes(self, value: SSAValue) -> int:
        axes = self.rows.leading_axes(value, self.count)
        assert axes is not None
        return axes

    def _feature_count(self, value: SSAValue) -> int:
        return size_of(shape_of(value)[self._axes(value) :])

    def _with_rank_of(self, first: SSAValue, value: SSAValue) -> ReshapeOp | None:
        """Return the reshape of an input to one axis of features behind the leading axes of `first`, if any."""
        leading, own = shape_of(first)[: self._axes(first)], shape_of(value)[: self._axes(value)]
        features = self._feature_count(value)
        if shape_of(value) == (*leading, features):
            return None
        entries = [copied(axis) for axis in range(len(own))] if own == leading else _inferred(leading)
        return ReshapeOp(value, TargetShapeAttr([*entries, features]))

    def _replace(self, old: SSAValue, new: SSAValue) -> list[Operation]:
        """Let users of `old` read `new`, reshaped where the shapes differ; return the reshape."""
        if new.type == old.type:
            self.rows.shapes[new] = self.rows.shapes[old]
            old.replace_all_uses_with(new)
            return []
        axes, shape = self._axes(old), shape_of(old)
        same = shape[:axes] == shape_of(new)[:-1]
        entries = [copied(axis) for axis in range(axes)] if same else _inferred(shape[:axes])
        reshape = ReshapeOp(new, TargetShapeAttr([*entries, *shape[axes:]]))
        value = Rewriter.replace_value_with_new_type(reshape.result, old.type)
        self.rows.shapes[value] = self.rows.shapes[old]
        old.replace_all_uses_with(value)
        return [reshape]


def _inferred(leading: tuple[int, ...]) -> list[int]:
    """Return leading axes as entries of a reshape target, in which one of unknown size follows from the others."""
    return [INFERRED if size == DYNAMIC else size for size in leading]

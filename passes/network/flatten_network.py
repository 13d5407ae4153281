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
of `redpebble.passes.analysis.network_rows`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import INFERRED, ReshapeOp, TargetShapeAttr, copied
from ...dialect.ops.network import NetworkOp
from ...dialect.symbolic_sizes import Size
from ...dialect.tensors import DYNAMIC, shape_of, size_of
from ..analysis.clusters import boundary_of, clusters_of
from ..analysis.dominance import moving_ops
from ..analysis.network_rows import NetworkRows
from ..rewriting.erase_unused import erase_unused
from ..rewriting.network_builder import NetworkBuilder
from ..rewriting.outline import computing_ops, outline


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

"""Edges that a call brings: a counting sort by their targets, and sums and means over what is sorted.

```
ends[t]   = edges of t                               a pass over the targets of all edges
begins[t] = ends[t] = those of the nodes up to t     a pass over the nodes
place     = --begins[t]; sources[place] = s          a pass over the edges from the last one to the first
```

The last pass leaves the first edge of each node in `begins`, and edges of one node in their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from redpebble.dialect.ops.graphs.attend_sorted import OVER_SORTED, AttendSortedOp
from redpebble.dialect.ops.graphs.edges_of_call import SortEdgesOp
from redpebble.dialect.symbolic_sizes import Size
from redpebble.dialect.tensors import DYNAMIC, shape_of
from redpebble.lowering.graphs.aggregate import (
    AggregateForm,
    Edges,
    Kernel,
    LastEdge,
    NodeValues,
    Range,
    aggregate_rows,
    integer_at,
)
from redpebble.lowering.graphs.attend import AttendForm, AttendKernel, ScoredValues, attend_rows
from redpebble.lowering.graphs.step import FETCH_FROM
from redpebble.lowering.llvm.builder import FLOAT_BYTES, I32, I64, POINTER, counted_loop, i64, reduce_loop
from redpebble.lowering.llvm.vectors import FLOAT
from redpebble.lowering.program import TiledRows, TileTime
from redpebble.lowering.tiles.row_major import RowMajorStep

TARGETS: Final = 64
"""Nodes that a thread takes at once."""

TARGETS_US: Final = 40.0
"""Microseconds of these, about."""

ONE: Final = ir.Constant(I32, 1)


@dataclass(frozen=True)
class SortStep:
    """The code of a sort."""

    op: SortEdgesOp
    step: RowMajorStep

    def emit(self) -> None:
        """Emit the passes."""
        builder, op = self.step.builder, self.op
        shapes = self.step.sizes.shapes
        nodes, edges = self.step.value(shapes[op.begins][0]), self.step.value(shapes[op.sources][0])
        begins, ends, targets = (self.step.pointers[value] for value in (op.begins, op.ends, op.targets))
        with counted_loop(builder, nodes) as node:
            builder.store(ir.Constant(I32, 0), _place(builder, ends, node))
        with counted_loop(builder, edges) as edge:
            place = _place(builder, ends, _node(builder, targets, edge))
            builder.store(builder.add(builder.load(place, typ=I32), ONE), place)

        def summed(node: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
            end = builder.add(sums[0], integer_at(builder, ends, node, I32))
            for table in (begins, ends):
                builder.store(end, _place(builder, table, node))
            return [end]

        reduce_loop(builder, nodes, [ir.Constant(I32, 0)], summed)
        self._spread(edges, begins, targets)

    def _spread(self, edges: ir.Value, begins: ir.Value, targets: ir.Value) -> None:
        """Emit the pass that puts edges into their places."""
        builder, op = self.step.builder, self.op
        last = builder.sub(edges, i64(1))
        with counted_loop(builder, edges) as done:
            edge = builder.sub(last, done)
            cursor = _place(builder, begins, _node(builder, targets, edge))
            place = builder.sub(builder.load(cursor, typ=I32), ONE)
            builder.store(place, cursor)
            index = builder.zext(place, I64)
            for source, target, kind in (
                (op.sources, op.sorted_sources, I32),
                (op.weights, op.sorted_weights, FLOAT),
            ):
                value = builder.load(builder.gep(self.step.pointers[source], [edge], source_etype=kind), typ=kind)
                builder.store(value, builder.gep(self.step.pointers[target], [index], source_etype=kind))


@dataclass(frozen=True)
class SortedStep:
    """The code of an op over sorted edges, whose rows are targets."""

    op: OVER_SORTED
    step: RowMajorStep

    def emit(self, begin: ir.Value, end: ir.Value) -> None:
        """Emit what targets get, from `begin` to the one before `end`."""
        builder, op, pointers = self.step.builder, self.op, self.step.pointers
        bias = ir.Constant(POINTER, None) if op.bias is None else pointers[op.bias]
        scores = pointers[op.scores] if isinstance(op, AttendSortedOp) else ir.Constant(POINTER, None)
        edges = self.step.value(self.step.sizes.shapes[op.sources][0])
        tables = (pointers[value] for value in op.edges)
        values = (pointers[op.x], bias, pointers[op.result], scores)
        builder.call(self._function(), [*values, *tables, edges, begin, end])

    def _function(self) -> ir.Function:
        op, code = self.op, self.step.code
        nodes, features = shape_of(op.x)
        fetches, biased = nodes == DYNAMIC or nodes * features * FLOAT_BYTES > FETCH_FROM, op.bias is not None
        if isinstance(op, AttendSortedOp):
            form = AttendForm(features, op.softmax, op.activation, biased, fetches)
        else:
            form = AggregateForm(features, op.activation, biased, op.maximum is not None, fetches)

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            x, bias, y, scores, begins, ends, sources, weights, edges, begin, end = args
            sorted_edges = Edges(begins, sources, weights, LastEdge(ends, builder.sub(edges, i64(1))))
            values, targets = NodeValues(x, bias, y), Range(begin, end)
            if isinstance(form, AttendForm):
                attend_rows(AttendKernel(code, builder, form), sorted_edges, ScoredValues(values, scores), targets)
            else:
                aggregate_rows(Kernel(code, builder, form), sorted_edges, values, targets)

        return code.function(f"sorted_{form.key}", [POINTER] * 8 + [I64] * 3, body)


def sorted_sum_tiles() -> TiledRows:
    """Return how threads may cut targets."""
    return TiledRows((TileTime(TARGETS, 1, TARGETS_US),), 1)


def sorted_sum_rows(sizes: tuple[Size, ...]) -> Size:
    """Return the rows of the step for a result of these sizes."""
    return sizes[0]


def _node(builder: ir.IRBuilder, table: ir.Value, edge: ir.Value) -> ir.Value:
    return builder.zext(integer_at(builder, table, edge, I32), I64)


def _place(builder: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    return builder.gep(table, [index], source_etype=I32)

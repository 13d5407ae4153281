"""Edges that a call brings: a counting sort by their targets, and sums and means over what is sorted.

```
ends[t]   = edges of t                               a pass over the targets of all edges
begins[t] = ends[t] = those of the nodes up to t     a pass over the nodes
place     = --begins[t]; sources[place] = s          a pass over the edges from the last one to the first
```

The last pass leaves the first edge of each node in `begins`, and edges of one node in their order.

Two threads take half of the edges each, and meet between the passes: `begins` counts the first half, and then leads
through it from its end; `ends` does the same for the second half, and is made of `begins` again in the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from ...dialect.ops.graphs.attend_sorted import OVER_SORTED, AttendSortedOp
from ...dialect.ops.graphs.edges_of_call import SortEdgesOp
from ...dialect.semantics.array_operators import MOST_INDICES
from ...dialect.symbolic_sizes import Size
from ...dialect.tensors import DYNAMIC, shape_of
from ..llvm.builder import FLOAT_BYTES, I32, I64, POINTER, counted_loop, i64, reduce_loop
from ..llvm.vectors import FLOAT
from ..program import TiledRows, TileTime
from ..tiles.row_major import RowMajorStep, Sharing
from ..tiles.tile_loop import emit_barrier
from .aggregate import (
    AggregateForm,
    Edges,
    Kernel,
    LastEdge,
    NodeValues,
    Range,
    aggregate_rows,
    integer_at,
)
from .attend import AttendForm, AttendKernel, ScoredValues, attend_rows
from .step import FETCH_FROM

TARGETS: Final = 64
"""Nodes that a thread takes at once."""

TARGETS_US: Final = 40.0
"""Microseconds of these, about."""

EDGE_US: Final = 0.004
"""Microseconds in which one thread sorts an edge."""

ONE: Final = ir.Constant(I32, 1)


@dataclass(frozen=True)
class SortStep:
    """The code of a sort."""

    op: SortEdgesOp
    step: RowMajorStep

    def emit(self) -> None:
        """Emit the passes for one thread."""
        builder = self.step.builder
        nodes, edges, begins, ends = self._places()
        self._count(ends, Range(i64(0), edges))

        def summed(node: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
            end = builder.add(sums[0], integer_at(builder, ends, node, I32))
            for table in (begins, ends):
                builder.store(end, _place(builder, table, node))
            return [end]

        reduce_loop(builder, nodes, [ir.Constant(I32, 0)], summed)
        self._spread(begins, Range(i64(0), edges))

    def emit_shared(self, sharing: Sharing) -> None:
        """Emit the passes for threads that do them together; those behind the second one wait."""
        builder = self.step.builder
        nodes, edges, begins, ends = self._places()
        is_first = builder.icmp_signed("==", sharing.number, i64(0))
        works = builder.icmp_signed("<", sharing.number, i64(2))
        middle = builder.udiv(edges, i64(2))
        half = Range(builder.select(is_first, i64(0), middle), builder.select(is_first, middle, edges))
        table = builder.select(is_first, begins, ends)
        with builder.if_then(works):
            self._count(table, half)
        emit_barrier(builder, sharing.barrier, sharing.team)

        def summed(node: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
            end = sums[0]
            for counts in (begins, ends):
                place = _place(builder, counts, node)
                end = builder.add(end, builder.load(place, typ=I32))
                builder.store(end, place)
            return [end]

        with builder.if_then(is_first):
            reduce_loop(builder, nodes, [ir.Constant(I32, 0)], summed)
        emit_barrier(builder, sharing.barrier, sharing.team)
        with builder.if_then(works):
            self._spread(table, half)
        emit_barrier(builder, sharing.barrier, sharing.team)
        with builder.if_then(builder.and_(is_first, builder.icmp_signed(">", nodes, i64(0)))):
            last = builder.sub(nodes, i64(1))
            with counted_loop(builder, last) as node:
                following = integer_at(builder, begins, builder.add(node, i64(1)), I32)
                builder.store(following, _place(builder, ends, node))
            builder.store(builder.trunc(edges, I32), _place(builder, ends, last))

    def _places(self) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
        """Return the numbers of nodes and edges, and the addresses of both results for nodes."""
        op, shapes = self.op, self.step.sizes.shapes
        counts = (self.step.value(shapes[value][0]) for value in (op.begins, op.sources))
        nodes, edges = counts
        return nodes, edges, self.step.pointers[op.begins], self.step.pointers[op.ends]

    def _count(self, table: ir.Value, edges: Range) -> None:
        """Emit the counts of targets among some edges."""
        builder, targets = self.step.builder, self.step.pointers[self.op.targets]
        with counted_loop(builder, self._places()[0]) as node:
            builder.store(ir.Constant(I32, 0), _place(builder, table, node))
        with counted_loop(builder, builder.sub(edges.end, edges.begin)) as done:
            edge = builder.add(edges.begin, done)
            place = _place(builder, table, _node(builder, targets, edge))
            builder.store(builder.add(builder.load(place, typ=I32), ONE), place)

    def _spread(self, cursors: ir.Value, edges: Range) -> None:
        """Emit the pass that puts edges into their places."""
        builder, op = self.step.builder, self.op
        last, targets = builder.sub(edges.end, i64(1)), self.step.pointers[op.targets]
        with counted_loop(builder, builder.sub(edges.end, edges.begin)) as done:
            edge = builder.sub(last, done)
            cursor = _place(builder, cursors, _node(builder, targets, edge))
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


def sort_tiles() -> TiledRows:
    """Return how threads may share a sort, whose rows are edges: no range of them is one by itself."""
    times = TileTime(1, 1, EDGE_US, EDGE_US / 2), TileTime(MOST_INDICES, MOST_INDICES, EDGE_US, EDGE_US)
    return TiledRows(times, MOST_INDICES + 1)


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

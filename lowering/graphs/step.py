"""An op over edges as a step of a program, whose rows are blocks of a constant graph, or targets of sorted edges."""

from dataclasses import dataclass
from typing import Final

from llvmlite import ir
from xdsl.ir import Operation

from ...dialect.ops.graphs import AttendEdgesOp, OverEdges, SortEdgesOp
from ...dialect.symbolic_sizes import Size, SymbolicShape, product
from ...dialect.tensors import DYNAMIC, shape_of
from ..llvm.flow import call, loop
from ..llvm.values import FLOAT_BYTES, NULL, Floats, Ints, Longs, Number
from ..program import TiledRows, TileTime
from ..tiles.row_major import RowMajorStep
from .aggregate import AggregateForm, Edges, LastEdge, NodeValues, Range, aggregate_rows, aggregate_targets
from .attend import AttendForm, ScoredValues, attend_rows, attend_targets
from .packing import block_count, pack_edges, pack_walked_edges

BLOCK_US: Final = 40.0
"""Microseconds of a block of 64 features, or of `TARGETS` nodes, about."""

TARGETS: Final = 64
"""Targets of sorted edges that a thread takes at once."""

FETCH_FROM: Final = 1 << 20
"""Bytes of all nodes' values from which on they are fetched ahead."""


@dataclass(frozen=True)
class EdgeStep:
    """The code of a step."""

    op: OverEdges
    step: RowMajorStep

    def emit(self, begin: Number, end: Number) -> None:
        """Emit the rows from `begin` to the one before `end`: blocks counted through all samples, or targets."""
        if self.op.of_call:
            self._over_sorted(begin, end)
        else:
            self._over_blocks(begin, end)

    def _over_blocks(self, begin: Number, end: Number) -> None:
        op, step, blocks = self.op, self.step, block_count(self.op.edges)
        walks = op.target_walk is not None
        key = (op.graph, "walked edges" if walks else "edges")
        assert isinstance(op.graph.owner, Operation)
        first, *edges = step.arrays(key, pack_walked_edges if walks else pack_edges, op.graph.owner)
        borders, order = first.cast(Longs), [] if walks else [NULL]
        form = self._form()
        with loop(end - begin) as done:
            number = begin + done
            sample, block = number // blocks, number % blocks
            targets = [borders[index] for index in (block, block + 1)]
            if isinstance(op, AttendEdgesOp):
                values = [step.pointers[value] for value in (op.x, op.scores, op.result)]
                values.insert(2, self._bias())
            else:
                x, y = (
                    step.pointers[value].at(sample * (nodes * form.features))
                    for value, nodes in zip((op.x, op.result), op.edges.shape, strict=True)
                )
                values = [x, self._bias(), y]
            code = step.code
            kernel = attend_targets(code, form) if isinstance(form, AttendForm) else aggregate_targets(code, form)
            call(kernel, values, *edges, *order, *targets)

    def _over_sorted(self, begin: Number, end: Number) -> None:
        op, step = self.op, self.step
        assert isinstance(op.graph.owner, SortEdgesOp)
        bias = self._bias()
        scores = step.pointers[op.scores] if isinstance(op, AttendEdgesOp) else NULL
        edges = step.number(step.sizes.shapes[op.graph.owner.sources][0])
        tables = step.parts[op.graph]
        call(self._sorted(), step.pointers[op.x], bias, step.pointers[op.result], scores, *tables, edges, begin, end)

    def _sorted(self) -> ir.Function:
        """Return the function over sorted edges."""
        code, form = self.step.code, self._form()

        @code.kernel(f"sorted_{form.key}")
        def kernel(
            values: NodeValues,
            scores: Floats,
            begins: Ints,
            ends: Ints,
            sources: Ints,
            weights: Floats,
            edges: Number,
            targets: Range,
        ) -> None:
            sorted_edges = Edges(begins, sources, weights, LastEdge(ends, edges - 1))
            if isinstance(form, AttendForm):
                scored = ScoredValues(values.x, scores, values.bias, values.y)
                attend_rows(code, form, sorted_edges, scored, targets)
            else:
                aggregate_rows(code, form, sorted_edges, values, targets)

        return kernel

    def _form(self) -> AggregateForm | AttendForm:
        op, (nodes, features) = self.op, shape_of(self.op.x)[-2:]
        fetches = nodes == DYNAMIC or nodes * features * FLOAT_BYTES > FETCH_FROM
        biased, walks = op.bias is not None, op.target_walk is not None
        if isinstance(op, AttendEdgesOp):
            return AttendForm(features, op.softmax, op.activation, biased, fetches, walks)
        return AggregateForm(features, op.activation, biased, op.maximum is not None, fetches, walks)

    def _bias(self) -> Floats:
        return self.step.null() if self.op.bias is None else self.step.pointers[self.op.bias]


def edge_rows(op: OverEdges, result: SymbolicShape) -> Size:
    """Return the rows of the step for a result of this shape."""
    return result[0] if op.of_call else product(result[:-2]) * Size.known(block_count(op.edges))


def edge_tiles(op: OverEdges) -> TiledRows:
    """Return how threads may cut those rows."""
    return TiledRows((TileTime(TARGETS if op.of_call else 1, 1, BLOCK_US),), 1)

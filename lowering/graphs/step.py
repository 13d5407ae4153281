"""An op over edges as a step of a program, whose rows are blocks of targets of about equal work, of all samples."""

from dataclasses import dataclass
from typing import Final

from llvmlite import ir
from xdsl.ir import Operation

from ...dialect.ops.graphs.aggregate import AggregateOp
from ...dialect.ops.graphs.attend_edges import OVER_EDGES, AttendEdgesOp
from ...dialect.symbolic_sizes import Size, product
from ...dialect.tensors import shape_of
from ..llvm.builder import FLOAT_BYTES, I64, POINTER, counted_loop, float_at, i64
from ..llvm.call_tables import ConstantTable
from ..program import TiledRows, TileTime
from ..tiles.row_major import RowMajorStep
from .aggregate import AggregateForm, aggregate_targets
from .attend import AttendForm, attend_targets
from .packing import block_count, pack_edges, pack_walked_edges

BLOCK_US: Final = 40.0
"""Microseconds of a block of 64 features, about."""

FETCH_FROM: Final = 1 << 20
"""Bytes of all nodes' values from which on they are fetched ahead."""


@dataclass(frozen=True)
class EdgeStep:
    """The code of a step."""

    op: OVER_EDGES
    step: RowMajorStep
    constants: ConstantTable
    constant_table: ir.Value

    def emit(self, begin: ir.Value, end: ir.Value) -> None:
        """Emit the blocks from `begin` to the one before `end`, counted through all samples."""
        builder, graph = self.step.builder, self.op.edges
        walks = self._walks()
        key = (self.op.graph, "walked edges" if walks else "edges")
        if not self.constants.has(key):
            assert isinstance(self.op.graph.owner, Operation)
            self.constants.add(key, pack_walked_edges if walks else pack_edges, self.op.graph.owner)
        borders, *edges = self.constants.pointers(builder, self.constant_table, key)
        edges += [] if walks else [ir.Constant(POINTER, None)]
        blocks = i64(block_count(graph))
        with counted_loop(builder, builder.sub(end, begin)) as done:
            number = builder.add(begin, done)
            sample, block = builder.udiv(number, blocks), builder.urem(number, blocks)
            targets = [
                builder.load(builder.gep(borders, [index], source_etype=I64), typ=I64)
                for index in (block, builder.add(block, i64(1)))
            ]
            function, values = self._attend() if isinstance(self.op, AttendEdgesOp) else self._aggregate(sample)
            builder.call(function, [*values, *edges, *targets])

    def _aggregate(self, sample: ir.Value) -> tuple[ir.Function, list[ir.Value]]:
        """Return the function of sums, and the addresses of values, bias and result."""
        op, builder, features = self.op, self.step.builder, shape_of(self.op.x)[-1]
        assert isinstance(op, AggregateOp)
        form = AggregateForm(
            features, op.activation, op.bias is not None, op.maximum is not None, self._fetches(), self._walks()
        )
        x, y = (
            float_at(builder, self.step.pointers[value], builder.mul(sample, i64(nodes * features)))
            for value, nodes in zip((op.x, op.result), op.edges.shape, strict=True)
        )
        return aggregate_targets(self.step.code, form), [x, self._bias(), y]

    def _attend(self) -> tuple[ir.Function, list[ir.Value]]:
        """Return the function of means, and the addresses of values, scores, bias and result."""
        op = self.op
        assert isinstance(op, AttendEdgesOp)
        form = AttendForm(
            shape_of(op.x)[-1], op.softmax, op.activation, op.bias is not None, self._fetches(), self._walks()
        )
        x, scores, y = (self.step.pointers[value] for value in (op.x, op.scores, op.result))
        return attend_targets(self.step.code, form), [x, scores, self._bias(), y]

    def _bias(self) -> ir.Value:
        return ir.Constant(POINTER, None) if self.op.bias is None else self.step.pointers[self.op.bias]

    def _walks(self) -> bool:
        return self.op.target_walk is not None

    def _fetches(self) -> bool:
        return self.op.edges.shape[0] * shape_of(self.op.x)[-1] * FLOAT_BYTES > FETCH_FROM


def edge_rows(op: OVER_EDGES, sizes: tuple[Size, ...]) -> Size:
    """Return the rows of the step for an operand of these sizes."""
    return product(sizes[:-2]) * Size.known(block_count(op.edges))


def edge_tiles() -> TiledRows:
    """Return how threads may cut those rows."""
    return TiledRows((TileTime(1, 1, BLOCK_US),), 1)

"""An aggregation as a step of a program, whose rows are blocks of targets of about equal work, of all samples."""

from dataclasses import dataclass
from typing import Final

from llvmlite import ir
from xdsl.ir import Operation

from redpebble.dialect.ops.graphs.aggregate import AggregateOp
from redpebble.dialect.symbolic_sizes import Size, product
from redpebble.dialect.tensors import shape_of
from redpebble.lowering.graphs.aggregate import AggregateForm, aggregate_targets
from redpebble.lowering.graphs.packing import block_count, pack_edges
from redpebble.lowering.llvm.builder import FLOAT_BYTES, I64, POINTER, counted_loop, float_at, i64
from redpebble.lowering.llvm.call_tables import ConstantTable
from redpebble.lowering.program import TiledRows, TileTime
from redpebble.lowering.tiles.row_major import RowMajorStep

BLOCK_US: Final = 40.0
"""Microseconds of a block of 64 features, about."""

FETCH_FROM: Final = 1 << 20
"""Bytes of all nodes' values from which on they are fetched ahead."""


@dataclass(frozen=True)
class AggregateStep:
    """The code of a step."""

    op: AggregateOp
    step: RowMajorStep
    constants: ConstantTable
    constant_table: ir.Value

    def emit(self, begin: ir.Value, end: ir.Value) -> None:
        """Emit the blocks from `begin` to the one before `end`, counted through all samples."""
        builder, op, graph = self.step.builder, self.op, self.op.edges
        key = (op.graph, "edges")
        if not self.constants.has(key):
            assert isinstance(op.graph.owner, Operation)
            self.constants.add(key, pack_edges, op.graph.owner)
        borders, *edges = self.constants.pointers(builder, self.constant_table, key)
        features = shape_of(op.x)[-1]
        form = AggregateForm(
            features,
            op.activation,
            op.bias is not None,
            op.maximum is not None,
            fetches=graph.shape[0] * features * FLOAT_BYTES > FETCH_FROM,
        )
        bias = ir.Constant(POINTER, None) if op.bias is None else self.step.pointers[op.bias]
        blocks = i64(block_count(graph))
        with counted_loop(builder, builder.sub(end, begin)) as done:
            number = builder.add(begin, done)
            sample, block = builder.udiv(number, blocks), builder.urem(number, blocks)
            x, y = (
                float_at(builder, self.step.pointers[value], builder.mul(sample, i64(nodes * features)))
                for value, nodes in ((op.x, graph.shape[0]), (op.result, graph.shape[1]))
            )
            targets = [
                builder.load(builder.gep(borders, [index], source_etype=I64), typ=I64)
                for index in (block, builder.add(block, i64(1)))
            ]
            builder.call(aggregate_targets(self.step.code, form), [x, bias, y, *edges, *targets])


def aggregate_rows(op: AggregateOp, sizes: tuple[Size, ...]) -> Size:
    """Return the rows of the step for an operand of these sizes."""
    return product(sizes[:-2]) * Size.known(block_count(op.edges))


def aggregate_tiles() -> TiledRows:
    """Return how threads may cut those rows."""
    return TiledRows((TileTime(1, 1, BLOCK_US),), 1)

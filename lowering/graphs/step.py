"""An op over edges as a step of a program, whose rows are blocks of targets of about equal work, of all samples."""

from dataclasses import dataclass
from typing import Final

from llvmlite import ir
from xdsl.ir import Operation

from ...dialect.ops.graphs.aggregate import AggregateOp
from ...dialect.ops.graphs.attend_edges import OVER_EDGES, AttendEdgesOp
from ...dialect.symbolic_sizes import Size, product
from ...dialect.tensors import shape_of
from ..llvm.call_tables import ConstantTable
from ..llvm.flow import call, loop
from ..llvm.values import FLOAT_BYTES, NULL, Floats, Longs, Number, Pointers
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
    constant_table: Pointers

    def emit(self, begin: Number, end: Number) -> None:
        """Emit the blocks from `begin` to the one before `end`, counted through all samples."""
        walks, blocks = self._walks(), block_count(self.op.edges)
        key = (self.op.graph, "walked edges" if walks else "edges")
        if not self.constants.has(key):
            assert isinstance(self.op.graph.owner, Operation)
            self.constants.add(key, pack_walked_edges if walks else pack_edges, self.op.graph.owner)
        first, *edges = self.constants.pointers(self.constant_table, key)
        borders, order = first.cast(Longs), [] if walks else [NULL]
        with loop(end - begin) as done:
            number = begin + done
            sample, block = number // blocks, number % blocks
            targets = [borders[index] for index in (block, block + 1)]
            function, values = self._attend() if isinstance(self.op, AttendEdgesOp) else self._aggregate(sample)
            call(function, values, *edges, *order, *targets)

    def _aggregate(self, sample: Number) -> tuple[ir.Function, list[Floats]]:
        """Return the function of sums, and the addresses of values, bias and result."""
        op, features = self.op, shape_of(self.op.x)[-1]
        assert isinstance(op, AggregateOp)
        form = AggregateForm(
            features, op.activation, op.bias is not None, op.maximum is not None, self._fetches(), self._walks()
        )
        x, y = (
            self.step.pointers[value].at(sample * (nodes * features))
            for value, nodes in zip((op.x, op.result), op.edges.shape, strict=True)
        )
        return aggregate_targets(self.step.code, form), [x, self._bias(), y]

    def _attend(self) -> tuple[ir.Function, list[Floats]]:
        """Return the function of means, and the addresses of values, scores, bias and result."""
        op = self.op
        assert isinstance(op, AttendEdgesOp)
        form = AttendForm(
            shape_of(op.x)[-1], op.softmax, op.activation, op.bias is not None, self._fetches(), self._walks()
        )
        x, scores, y = (self.step.pointers[value] for value in (op.x, op.scores, op.result))
        return attend_targets(self.step.code, form), [x, scores, self._bias(), y]

    def _bias(self) -> Floats:
        return self.step.null() if self.op.bias is None else self.step.pointers[self.op.bias]

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

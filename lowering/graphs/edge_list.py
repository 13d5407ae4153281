"""Edges as a host gives them, int64, as numbers of nodes from 0 on: each is checked before anything reads it.

A number that is outside of the nodes becomes one that is inside, so nothing reads elsewhere, and is left in the scratch
area as what is wrong: the call ends there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from llvmlite import ir
from xdsl.ir import SSAValue

from ...dialect.ops.graphs.edges_of_call import EdgeListOp
from ...dialect.semantics.array_operators import MOST_INDICES
from ...dialect.symbolic_sizes import ONE, SymbolicShape, product
from ..calls.table import Failure, Problem
from ..llvm.builder import I32, I64, counted_loop, i64, reduce_loop
from ..llvm.vectors import FLOAT
from ..program import EqualSizes
from ..tiles.row_major import RowMajorStep

FAILURE_BYTES: Final = 8 * Failure.word_count


@dataclass(frozen=True)
class EdgeListStep:
    """The code of a list of edges."""

    op: EdgeListOp
    step: RowMajorStep
    failure: ir.Value
    """Address of the words of `Failure`."""

    def emit(self) -> None:
        """Emit the checks, and the numbers and weights."""
        builder, op, shapes = self.step.builder, self.op, self.step.sizes.shapes
        nodes, edges = self.step.value(shapes[op.nodes][0]), self.step.value(shapes[op.sources][0])
        self._fail(i64(0), nodes, edges)
        left, right = (builder.icmp_unsigned(">=", count, i64(MOST_INDICES)) for count in (nodes, edges))
        too_many = builder.or_(left, right)
        with builder.if_else(too_many) as (refused, taken):
            with refused:
                self._fail(i64(Problem.TooManyEdges), edges, nodes)
            with taken:
                for given, numbers in ((op.from_nodes, op.sources), (op.to_nodes, op.targets)):
                    self._number(given, numbers, edges, nodes)
                self._weigh(edges)

    def _number(self, given: SSAValue, numbers: SSAValue, edges: ir.Value, nodes: ir.Value) -> None:
        """Emit the numbers of one end of all edges."""
        builder, pointers = self.step.builder, self.step.pointers

        def number(edge: ir.Value, wrong: Sequence[ir.Value]) -> list[ir.Value]:
            value = builder.load(builder.gep(pointers[given], [edge], source_etype=I64), typ=I64)
            wrapped = builder.select(builder.icmp_signed("<", value, i64(0)), builder.add(value, nodes), value)
            is_node = builder.icmp_unsigned("<", wrapped, nodes)
            inside = builder.trunc(builder.select(is_node, wrapped, i64(0)), I32)
            builder.store(inside, builder.gep(pointers[numbers], [edge], source_etype=I32))
            return [
                builder.select(is_node, before, after)
                for before, after in zip(wrong, (i64(Problem.NoNode), value), strict=True)
            ]

        problem, value = reduce_loop(builder, edges, [i64(0), i64(0)], number)
        with builder.if_then(builder.icmp_signed("!=", problem, i64(0))):
            self._fail(problem, value, nodes)

    def _weigh(self, edges: ir.Value) -> None:
        """Emit the weights: one for all edges, or each its own."""
        builder, factors = self.step.builder, self.op.factors
        step: ir.Value = i64(0)
        source: ir.Value | None = None
        if factors is not None:
            source = self.step.pointers[factors]
            count = self.step.value(product(self.step.sizes.shapes[factors]))
            step = builder.select(builder.icmp_signed("==", count, edges), i64(1), i64(0))
        with counted_loop(builder, edges) as edge:
            weight: ir.Value = ir.Constant(FLOAT, 1.0)
            if source is not None:
                at = builder.gep(source, [builder.mul(edge, step)], source_etype=FLOAT)
                weight = builder.load(at, typ=FLOAT)
            builder.store(weight, builder.gep(self.step.pointers[self.op.weights], [edge], source_etype=FLOAT))

    def _fail(self, problem: ir.Value, left: ir.Value, right: ir.Value) -> None:
        """Emit what is wrong, 0 for nothing."""
        for word, value in zip(range(Failure.word_count), (problem, left, right), strict=True):
            self.step.builder.store(value, self.step.builder.gep(self.failure, [i64(word)], source_etype=I64))


def edges_taken_as_equal(op: EdgeListOp, shapes: Mapping[SSAValue, SymbolicShape]) -> list[EqualSizes]:
    """Return the sizes that must be the same: as many targets and weights as sources, or one weight for all."""
    edges = shapes[op.sources][0]
    pairs = [EqualSizes(product(shapes[op.to_nodes]), edges)]
    if op.factors is not None and product(shapes[op.factors]) != ONE:
        pairs.append(EqualSizes(product(shapes[op.factors]), edges, or_one=True))
    return [pair for pair in pairs if pair.first != pair.second]

"""Edges as a host gives them, int64, as numbers of nodes from 0 on: each is checked before anything reads it.

A number that is outside of the nodes becomes one that is inside, so nothing reads elsewhere, and is left in the scratch
area as what is wrong: the call ends there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from llvmlite import ir
from xdsl.ir import SSAValue

from ...dialect.ops.graphs import EdgeListOp
from ...dialect.semantics.array_operators import MOST_INDICES
from ...dialect.symbolic_sizes import ONE, SymbolicShape, product
from ..calls.table import Failure, Problem
from ..llvm.flow import branch, fold, loop, select, when
from ..llvm.values import FLOAT, I32, Index, Ints, Longs, Number
from ..program import EqualSizes
from ..tiles.row_major import RowMajorStep

FAILURE_BYTES: Final = 8 * Failure.word_count


@dataclass(frozen=True)
class EdgeListStep:
    """The code of a list of edges."""

    op: EdgeListOp
    step: RowMajorStep
    failure: Longs
    """Address of the words of `Failure`."""

    def emit(self) -> None:
        """Emit the checks, and the numbers and weights."""
        op, shapes = self.op, self.step.sizes.shapes
        nodes, edges = self.step.number(shapes[op.nodes][0]), self.step.number(shapes[op.sources][0])
        self._fail(0, nodes, edges)
        left, right = (count.unsigned(">=", MOST_INDICES) for count in (nodes, edges))

        def taken() -> None:
            self._number(op.from_nodes, op.sources, edges, nodes)
            self._number(op.to_nodes, op.targets, edges, nodes)
            self._weigh(edges)

        branch(left | right, lambda: self._fail(Problem.TooManyEdges, edges, nodes), taken)

    def _number(self, given: SSAValue, numbers: SSAValue, edges: Number, nodes: Number) -> None:
        """Emit the numbers of one end of all edges."""
        source, target = self.step.pointers[given].cast(Longs), self.step.pointers[numbers].cast(Ints)

        def number(edge: Number, wrong: tuple[Number, Number]) -> tuple[Number, Number]:
            value = source[edge]
            # numbers below 0 count from the end
            wrapped = select(value < 0, value + nodes, value)
            is_node = wrapped.unsigned("<", nodes)
            target[edge] = select(is_node, wrapped, 0).narrow(I32)
            return select(is_node, wrong, (value.constant(Problem.NoNode), value))

        problem, value = fold(edges, (edges.constant(0), edges.constant(0)), number)
        with when(problem != 0):
            self._fail(problem, value, nodes)

    def _weigh(self, edges: Number) -> None:
        """Emit the weights: one for all edges, or each its own."""
        factors, weights = self.op.factors, self.step.pointers[self.op.weights]
        if factors is None:
            with loop(edges) as edge:
                weights[edge] = ir.Constant(FLOAT, 1.0)
            return
        source, count = self.step.pointers[factors], self.step.number(product(self.step.sizes.shapes[factors]))
        step = select(count == edges, 1, 0)
        with loop(edges) as edge:
            weights[edge] = source[edge * step]

    def _fail(self, problem: Index, left: Index, right: Index) -> None:
        """Emit what is wrong, 0 for nothing."""
        for word, value in enumerate((problem, left, right)):
            self.failure[word] = value


def edges_taken_as_equal(op: EdgeListOp, shapes: Mapping[SSAValue, SymbolicShape]) -> list[EqualSizes]:
    """Return the sizes that must be the same: as many targets and weights as sources, or one weight for all."""
    edges = shapes[op.sources][0]
    pairs = [EqualSizes(product(shapes[op.to_nodes]), edges)]
    if op.factors is not None and product(shapes[op.factors]) != ONE:
        pairs.append(EqualSizes(product(shapes[op.factors]), edges, or_one=True))
    return [pair for pair in pairs if pair.first != pair.second]

"""Edges that a call brings: a counting sort by their targets.

```
ends[t]   = edges of t                               a pass over the targets of all edges
begins[t] = ends[t] = those of the nodes up to t     a pass over the nodes
place     = --begins[t]; sources[place] = s          a pass over the edges from the last one to the first
```

The last pass leaves the first edge of each node in `begins`, and edges of one node in their order.

Two threads take half of the edges each, pass by pass: `begins` counts the first half, and then leads
through it from its end; `ends` does the same for the second half, and is made of `begins` again in the end.
"""

from dataclasses import dataclass
from typing import Final

from llvmlite import ir
from xdsl.ir import SSAValue

from ...dialect.ops.graphs import SortEdgesOp
from ...dialect.semantics.array_operators import MOST_INDICES
from ..llvm.flow import fold, loop, select, when
from ..llvm.values import I32, Ints, Number
from ..program import TiledRows, TileTime
from ..tiles.row_major import RowMajorStep, Sharing
from .aggregate import Range

EDGE_US: Final = 0.004
"""Microseconds in which one thread sorts an edge."""


@dataclass(frozen=True)
class SortStep:
    """The code of a sort."""

    op: SortEdgesOp
    step: RowMajorStep

    def emit(self) -> None:
        """Emit the passes for one thread."""
        nodes, edges, begins, ends = self._places()
        self._count(ends, Range(edges.constant(0), edges))

        def summed(node: Number, total: Number) -> Number:
            end = total + ends.narrow(node)
            begins[node] = end
            ends[node] = end
            return end

        fold(nodes, _nothing(nodes), summed)
        self._spread(begins, Range(edges.constant(0), edges))

    def emit_shared(self, sharing: Sharing) -> None:
        """Emit the passes for threads that do them together, half of the edges by one thread each."""
        nodes, edges, begins, ends = self._places()
        middle = edges // 2

        def half(number: Number) -> tuple[Ints, Range]:
            is_first = number == 0
            return select(is_first, begins, ends), Range(select(is_first, 0, middle), select(is_first, middle, edges))

        with sharing.each(2) as number:
            self._count(*half(number))

        def summed(node: Number, end: Number) -> Number:
            for counts in (begins.at(node), ends.at(node)):
                end = end + counts.narrow(0)
                counts[0] = end
            return end

        # the ends of nodes, by one thread
        with sharing.each(1):
            fold(nodes, _nothing(nodes), summed)
        with sharing.each(2) as number:
            self._spread(*half(number))
        # the second half has moved its ends: they are where the next node begins
        with sharing.each(1), when(nodes > 0):
            last = nodes - 1
            with loop(last) as node:
                ends[node] = begins.narrow(node + 1)
            ends[last] = edges.narrow(I32)

    def _places(self) -> tuple[Number, Number, Ints, Ints]:
        """Return the numbers of nodes and edges, and the addresses of both results for nodes."""
        op, shapes = self.op, self.step.sizes.shapes
        nodes, edges = (self.step.number(shapes[value][0]) for value in (op.nodes, op.sources))
        begins, ends, *_ = self.step.parts[op.result]
        return nodes, edges, begins.cast(Ints), ends.cast(Ints)

    def _integers(self, value: SSAValue) -> Ints:
        return self.step.pointers[value].cast(Ints)

    def _count(self, table: Ints, edges: Range) -> None:
        """Emit the counts of targets among some edges."""
        targets = self._integers(self.op.targets)
        with loop(self._places()[0]) as node:
            table[node] = 0
        with loop(edges.end - edges.begin) as done:
            edge = edges.begin + done
            count = table.at(targets[edge])
            count[0] = count.narrow(0) + 1

    def _spread(self, cursors: Ints, edges: Range) -> None:
        """Emit the pass that puts edges into their places."""
        op, targets = self.op, self._integers(self.op.targets)
        *_, sorted_sources, sorted_weights = self.step.parts[op.result]
        sources, sorted_sources = self._integers(op.sources), sorted_sources.cast(Ints)
        weights = self.step.pointers[op.weights]
        last = edges.end - 1
        with loop(edges.end - edges.begin) as done:
            edge = last - done
            cursor = cursors.at(targets[edge])
            place = cursor.narrow(0) - 1
            cursor[0] = place
            index = place.wide()
            sorted_sources[index] = sources.narrow(edge)
            sorted_weights[index] = weights[edge]


def _nothing(place: Number) -> Number:
    return Number(place.builder, ir.Constant(I32, 0))


def sort_tiles() -> TiledRows:
    """Return how threads may share a sort, whose rows are edges: no range of them is one by itself."""
    times = TileTime(1, 1, EDGE_US, EDGE_US / 2), TileTime(MOST_INDICES, MOST_INDICES, EDGE_US, EDGE_US)
    return TiledRows(times, MOST_INDICES + 1)

"""Message passing as exporters write it: values gathered along edges, and added up, or compared, where these end.

```
messages = Gather(x, sources, axis=-2)                       or GatherND, or GatherElements, index spread over features
messages = Mul(messages, weights)                            weights [E, 1] of edges; may be left out
result   = ScatterElements(zeros, targets, messages, "add")  or ScatterND; targets [E, F], all columns alike
result   = ScatterElements(lowest, targets, messages, "max") `lowest` where an edge ends, else 0
```

The last node becomes `pebble.aggregate` over a sparse constant of all edges, or over `!pebble.edges` where a call
brings them, `edge_index` as an input. A product with a sparse constant on the left, `MatMul(A, x)` and
`com.microsoft.SparseToDenseMatMul`, is one with a constant graph, too. Indices are read where an exporter put them: the
index of every feature is compared with that of the first one, and `Expand` is not run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ....dialect.ops.graphs import MAXIMA_SINCE, SUMS_SINCE, AggregateOp
from ....dialect.symbolic_sizes import Size, SymbolicShape
from ....sparse.csr import CscMatrix
from ...folding.known_sizes import is_known, shape_words
from ...reading.lazy_sparse_tensor import SparseTensor
from ..conversion import Conversion, Converter, NotCovered
from ..patterns import Fill, Filled, Hole, Match, NodePattern, Pattern, op
from .edge_attention import convert_edge_attention
from .edges import Edges, Listed, Spread, Uncut, Weight, is_lowest, is_zero

LEFT_DENSITY: Final = 0.2
"""Density below which a constant on the left is a graph: above it, dense blocks are worth the two transposes."""

MOST_BETWEEN: Final = 8
"""Products with weights between values of nodes and the sum over edges."""


def left_product(conversion: Conversion, weight: NDArray[np.float32] | SparseTensor) -> SSAValue | None:
    """Return `A x` for a constant A [targets, sources] in input 0; None where A is not sparse, or has no edge."""
    x = conversion.tensor(1)
    sizes = conversion.sizes(x)
    if len(weight.shape) != 2 or len(sizes) < 2 or not (is_known(sizes[-1]) and is_known(sizes[-2])):
        return None
    name = conversion.node.inputs[0].name or "" if conversion.node.inputs[0] else ""
    if isinstance(weight, SparseTensor):
        if not 0 < len(weight.entries().values) < LEFT_DENSITY * _size(weight.shape.numpy()):
            return None
        graph = conversion.emit_sparse(lambda: weight.weight(transposed=True), name, "transposed")
    elif 0 < np.count_nonzero(weight) < LEFT_DENSITY * weight.size and np.isfinite(weight).all():
        graph = conversion.emit_sparse(lambda: CscMatrix.from_dense(weight.T), name, "edges")
    else:
        return None
    return conversion.emit(AggregateOp(x, graph)).result


def convert_sparse_to_dense_matmul(conversion: Conversion) -> Sequence[SSAValue]:
    """Return alpha A x of a constant sparse A.

    Raises:
        NotCovered: A is no constant, or x is to be transposed.
    """
    weight = conversion.weight(0)
    if weight is None or len(weight.shape) != 2:
        raise NotCovered("expected A as a sparse initializer, or another constant matrix, got another value")
    if conversion.integer("transB", 0):
        raise NotCovered("expected transB=0, got 1")
    alpha, flipped = np.float32(conversion.number("alpha", 1.0)), conversion.integer("transA", 0) != 0
    name = f"{weight.name}" if isinstance(weight, SparseTensor) else ""

    def graph() -> CscMatrix:
        if isinstance(weight, SparseTensor):
            return weight.scaled(alpha).weight(transposed=not flipped)
        return CscMatrix.from_dense((weight if flipped else weight.T) * alpha)

    variant = f"edges{int(flipped)}*{float(alpha)!r}"
    return [conversion.emit(AggregateOp(conversion.tensor(1), conversion.emit_sparse(graph, name, variant))).result]


def convert_scatter_elements(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the sums, or maxima, over the edges that end at each node.

    Raises:
        NotCovered: it is no such node, or one of its indices is outside the nodes.
    """
    reduction = conversion.text("reduction", "none")
    if reduction not in ("add", "max"):
        raise NotCovered(f"expected reduction=add or max, got {reduction}")
    attended = convert_edge_attention(conversion) if reduction == "add" else None
    if attended is not None:
        return attended
    return _aggregated(conversion, SUMS if reduction == "add" else MAXIMA)


def convert_scatter_nd(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the sums over the edges that end at each node.

    Raises:
        NotCovered: it is no such node, or one of its indices is outside the nodes.
    """
    return _aggregated(conversion, SUMS_OF_ROWS)


def _aggregated(conversion: Conversion, pattern: NodePattern) -> Sequence[SSAValue]:
    match, maximum = Match(conversion), pattern is MAXIMA
    match.root(pattern)
    edges = Edges.of(match)
    x = conversion.tensor_of(match.value("x"))
    sizes, start = conversion.sizes(x), match.get("start", Fill).sizes
    rank = len(sizes)
    axes = [match.holes.get("axis", 0), match.holes.get("gathered axis", 0)]
    if rank < 2 or any(axis not in (-2, rank - 2) for axis in axes):
        raise NotCovered(f"expected the last axis but one of values of nodes, got axes {axes} of {shape_words(sizes)}")
    if match.holes.get("width", sizes[-1].constant) != sizes[-1].constant:
        raise NotCovered(f"expected an index for all {sizes[-1]} features, got one for {match.holes['width']}")
    if start is None or len(start) != rank or (*sizes[:-2], start[-2], sizes[-1]) != start:
        raise NotCovered(f"expected zeros for each node and feature of {shape_words(sizes)}, got {_words(start)}")
    if maximum and edges.weights:
        raise NotCovered("expected a maximum of edges without weights, got weighted ones")
    if edges.of_call:
        if not conversion.scope.takes_edges(MAXIMA_SINCE if maximum else SUMS_SINCE):
            raise NotCovered("expected edges that are constants, got those of a call")
        if rank != 2 or start != sizes or not is_known(sizes[1]):
            raise NotCovered(f"expected zeros for each node and feature of {shape_words(sizes)}, got {_words(start)}")
        graph = edges.sorted(conversion, x)
    elif not is_known(sizes[-2]) or not all(map(is_known, start)):
        raise NotCovered(f"expected known numbers of nodes, got {shape_words(sizes)} and {shape_words(start)}")
    else:
        graph = edges.constant(conversion, (int(sizes[-2].coefficient), int(start[-2].coefficient)), unique=maximum)
    conversion.replaces(match.nodes)
    return [conversion.emit(AggregateOp(x, graph, maximum=maximum)).result]


def _words(sizes: SymbolicShape | None) -> str:
    return "unknown sizes" if sizes is None else shape_words(sizes)


@dataclass(frozen=True)
class _LowestAt(Pattern):
    """A constant that is the lowest float where an edge ends, else 0: the hole gets a `Fill`."""

    name: str
    targets: str

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        array, targets = match.constant(value), match.holes[self.targets]
        if array is None or array.dtype != np.float32 or array.ndim != 2 or not isinstance(targets, np.ndarray):
            raise match.mismatch("the lowest float where an edge ends, else 0", value)
        ends = np.zeros(len(array), np.bool_)
        ends[targets[(targets >= -len(ends)) & (targets < len(ends))]] = True
        if not is_lowest(array[ends].max(initial=-np.inf)) or array[~ends].any():
            raise match.mismatch("the lowest float where an edge ends, else 0", value)
        match.bind(self.name, Fill(0.0, tuple(map(Size.known, array.shape))))


def _messages() -> Pattern:
    """Return the pattern of values of nodes that are gathered along edges, and weighted."""
    x, axis = Hole("x"), Hole("gathered axis")
    messages: Pattern = (
        op.Gather(x, Listed("sources"), axis=axis)
        | op.GatherND(x, Listed("sources", rank=2), batch_dims=0)
        | op.GatherElements(x, Spread("sources", -2, "width"), axis=axis)
    )
    for _ in range(MOST_BETWEEN):
        messages = op.Mul.optional(messages, Weight("weights"))
    return Uncut(messages)


ZEROS: Final = Filled("start", "zeros", is_zero)
INDEX: Final = Hole("index", Spread("targets", -2, "width"))

SUMS: Final = op.ScatterElements(ZEROS, INDEX, _messages(), axis=Hole("axis"), reduction="add")
SUMS_OF_ROWS: Final = op.ScatterND(ZEROS, Listed("targets", rank=2), _messages(), reduction="add")

LOWERED: Final = op.ScatterElements(
    ZEROS, INDEX, Filled("", "the lowest float", is_lowest), axis=Hole("axis"), reduction="min"
)
MAXIMA: Final = op.ScatterElements(
    LOWERED | _LowestAt("start", "targets"), INDEX, _messages(), axis=Hole("axis"), reduction="max"
)


def _size(shape: Sequence[int]) -> int:
    return int(np.prod([int(extent) for extent in shape], dtype=np.int64))


GRAPH_CONVERTERS: Final[Mapping[tuple[str, str], Converter]] = MappingProxyType(
    {
        ("", "ScatterElements"): convert_scatter_elements,
        ("", "ScatterND"): convert_scatter_nd,
        ("com.microsoft", "SparseToDenseMatMul"): convert_sparse_to_dense_matmul,
    }
)
"""Operators that become aggregations over the edges of a graph."""

"""Message passing as exporters write it: values gathered along edges, and added up, or compared, where these end.

```
messages = Gather(x, sources, axis=-2)                       or GatherND, or GatherElements, index spread over features
messages = Mul(messages, weights)                            weights [E, 1] of edges; may be left out
result   = ScatterElements(zeros, targets, messages, "add")  or ScatterND; targets [E, F], all columns alike
result   = ScatterElements(lowest, targets, messages, "max") `lowest` where an edge ends, else 0
```

The last node becomes `pebble.aggregate` over a sparse constant of all edges. So does a product with a sparse constant
on the left, `MatMul(A, x)` and `com.microsoft.SparseToDenseMatMul`. Indices are read where an exporter put them: the
index of every feature is compared with that of the first one, and `Expand` is not run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ....dialect.ops.graphs.aggregate import MAXIMA_SINCE, SUMS_SINCE, AggregateOp
from ....dialect.symbolic_sizes import Size
from ....sparse.csr import CscMatrix
from ....sparse.edges import EdgeList
from ...folding.known_sizes import is_known, shape_words
from ...reading.lazy_sparse_tensor import SparseTensor
from ..conversion import Conversion, Converter, NotCovered
from .edge_attention import convert_edge_attention
from .edge_lists import Indices, counted, digest
from .edges_of_call import aggregated_in_call

LEFT_DENSITY: Final = 0.2
"""Density below which a constant on the left is a graph: above it, dense blocks are worth the two transposes."""

LOWEST: Final = np.float32(-3.4e38)
"""Values below this one stand for nothing in a maximum."""

MOST_BETWEEN: Final = 8
"""Nodes between values of nodes and the sum over edges."""


@dataclass
class _Messages:
    """Messages along the edges: the values of nodes, the source and the weight of each edge."""

    values: onnx_ir.Value
    sources: Indices | None = None
    weights: NDArray[np.float32] | None = None
    nodes: list[onnx_ir.Node] = field(default_factory=list[onnx_ir.Node])
    """The nodes that the aggregation stands for, beside the last one."""


class _Target(NamedTuple):
    """Value that the sum over edges starts from: its shape, and whether it is the start of a maximum."""

    shape: tuple[int, ...]
    lowest: bool


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
        raise NotCovered("A is no constant matrix, accepted is a sparse initializer")
    if conversion.integer("transB", 0):
        raise NotCovered("attribute transB=1, accepted is 0")
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
        NotCovered: it is no such node, or one of its indices is no constant, or outside the nodes.
    """
    reduction = conversion.text("reduction", "none")
    if reduction not in ("add", "max"):
        raise NotCovered(f"attribute reduction={reduction}, accepted are add and max")
    attended = convert_edge_attention(conversion) if reduction == "add" else None
    if attended is not None:
        return attended
    index = conversion.input(1)
    targets = None if index is None else _index_of_rows(conversion, index)
    is_of_call = targets is None and conversion.any_constant(1) is None
    if is_of_call and conversion.scope.takes_edges(SUMS_SINCE if reduction == "add" else MAXIMA_SINCE):
        return [aggregated_in_call(conversion, maximum=reduction == "max")]
    if targets is None:
        raise NotCovered(
            "the index is no constant, or not the same for all features, accepted is a target for each edge"
        )
    axis = conversion.integer("axis", 0)
    return [_aggregated(conversion, targets, axis, maximum=reduction == "max")]


def convert_scatter_nd(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the sums over the edges that end at each node.

    Raises:
        NotCovered: it is no such node, or one of its indices is no constant, or outside the nodes.
    """
    reduction, index = conversion.text("reduction", "none"), conversion.any_constant(1)
    if reduction != "add":
        raise NotCovered(f"attribute reduction={reduction}, accepted is add")
    if index is None and conversion.scope.takes_edges(SUMS_SINCE):
        return [aggregated_in_call(conversion, maximum=False)]
    if index is None or index.ndim != 2 or index.shape[1] != 1:
        raise NotCovered("the index is no constant [edges, 1], accepted is a target for each edge")
    return [_aggregated(conversion, index.reshape(-1).astype(np.int64), 0, maximum=False)]


def _aggregated(conversion: Conversion, targets: Indices, axis: int, *, maximum: bool) -> SSAValue:
    start, updates = _start(conversion, targets), conversion.input(2)
    if start is None or start.lowest != maximum or updates is None:
        wanted = "the lowest float where an edge ends, else 0" if maximum else "zeros"
        raise NotCovered(f"what the edges are added to is not known, accepted are {wanted}")
    rank = len(start.shape)
    if rank < 2 or axis % rank != rank - 2:
        raise NotCovered(f"axis {axis} of rank {rank}, accepted is the last but one")
    messages = _messages(conversion, updates, len(targets))
    sources, x = messages.sources, conversion.tensor_of(messages.values)
    sizes = conversion.sizes(x)
    if sources is None or len(sizes) != rank or len(sources) != len(targets):
        raise NotCovered("what comes along the edges is not gathered from nodes by a constant index")
    expected = (*sizes[:-2], Size.known(start.shape[-2]), sizes[-1])
    if not is_known(sizes[-2]) or tuple(Size.known(size) for size in start.shape) != expected:
        raise NotCovered(f"nodes are {shape_words(sizes)}, accepted are known sizes that fit {list(start.shape)}")
    counts = int(sizes[-2].coefficient), start.shape[-2]
    edges = EdgeList(counted(sources, counts[0]), counted(targets, counts[1]), messages.weights)
    if maximum and edges.weights is not None:
        raise NotCovered("a maximum of weighted edges, accepted are edges without weights")
    # edges that are there twice count once in a maximum, and the same edges may be those of larger graphs
    variant = f"{counts}{' unique' if maximum else ''}"
    graph = conversion.emit_sparse(lambda: edges.matrix(counts, unique=maximum), f"graph.{digest(edges)}", variant)
    conversion.replaces(messages.nodes)
    return conversion.emit(AggregateOp(x, graph, maximum=maximum)).result


def _index_of_rows(conversion: Conversion, value: onnx_ir.Value) -> Indices | None:
    """Return the index of each row of an index that all features share; None where it is none."""
    node = value.producer()
    if node is not None and node.op_type == "Expand" and node.domain == "" and node.inputs[0] is not None:
        value = node.inputs[0]
        conversion.replaces([node])
    array = conversion.scope.constant_of(value)
    if array is None or array.ndim < 2 or array.dtype.kind != "i":
        return None
    rows = array[(0,) * (array.ndim - 2) + (slice(None), 0)]
    if not (array == rows[:, np.newaxis]).all():
        return None
    return rows.astype(np.int64)


def _start(conversion: Conversion, targets: Indices) -> _Target | None:
    """Return what the edges are added to, if it is zeros, or the start of a maximum."""
    value = conversion.input(0)
    if value is None:
        return None
    sparse = conversion.scope.sparse_matrix_of(value)
    if sparse is not None:
        return _Target(tuple(sparse.shape.numpy()), lowest=False) if not len(sparse.entries().values) else None
    filled = _filled(conversion, value)
    if filled is not None:
        return _Target(filled[0], lowest=False) if filled[1] == 0.0 else None
    lowered = value.producer()
    if lowered is not None and _is_lowest_at(conversion, lowered):
        conversion.replaces([lowered])
        filled = None if lowered.inputs[0] is None else _filled(conversion, lowered.inputs[0])
        return _Target(filled[0], lowest=True) if filled is not None and filled[1] == 0.0 else None
    array = conversion.scope.constant_of(value)
    if array is None or array.dtype != np.float32:
        return None
    if not array.any():
        return _Target(array.shape, lowest=False)
    ends = np.zeros(array.shape[-2] if array.ndim > 1 else 0, np.bool_)
    ends[targets[(targets >= -len(ends)) & (targets < len(ends))]] = True
    fits = array.ndim == 2 and bool((array[ends] <= LOWEST).all()) and not array[~ends].any()
    return _Target(array.shape, lowest=True) if fits else None


def _filled(conversion: Conversion, value: onnx_ir.Value) -> tuple[tuple[int, ...], float] | None:
    """Return the shape and the number of a ConstantOfShape; None for anything else."""
    sparse, array = conversion.scope.sparse_matrix_of(value), None
    if sparse is not None:
        return (tuple(sparse.shape.numpy()), 0.0) if not len(sparse.entries().values) else None
    node = value.producer()
    if node is None or (node.domain, node.op_type) != ("", "ConstantOfShape") or node.inputs[0] is None:
        array = conversion.scope.constant_of(value)
        known = array is not None and array.dtype == np.float32 and array.size > 0 and (array == array.flat[0]).all()
        return (array.shape, float(array.flat[0])) if array is not None and known else None
    sizes = conversion.scope.shape_value_of(node.inputs[0])
    if sizes is None or not all(is_known(size) for size in sizes.sizes):
        return None
    conversion.replaces([node])
    fill = node.attributes.get("value")
    number = 0.0 if fill is None else float(fill.as_tensor().numpy().reshape(-1)[0])
    return tuple(int(size.coefficient) for size in sizes.sizes), number


def _is_lowest_at(conversion: Conversion, node: onnx_ir.Node) -> bool:
    """Return whether a node puts the lowest float where edges end, and leaves its first input as it is elsewhere."""
    if (node.domain, node.op_type) != ("", "ScatterElements") or node.inputs[2] is None:
        return False
    reduction = node.attributes.get("reduction")
    filled = _filled(conversion, node.inputs[2])
    lowest = (
        filled is not None and filled[1] <= float(LOWEST) and reduction is not None and reduction.as_string() == "min"
    )
    return lowest and node.inputs[1] is conversion.input(1)


def _messages(conversion: Conversion, value: onnx_ir.Value, edge_count: int) -> _Messages:
    """Return what travels along the edges, as far as it is known."""
    found = _Messages(value)
    for _ in range(MOST_BETWEEN):
        node = found.values.producer()
        if node is None or node.domain != "" or node.inputs[0] is None:
            return found
        first, rest = node.inputs[0], node.inputs[1:]
        match node.op_type:
            case "Identity":
                found.values = first
            case "Mul" if rest[0] is not None and _is_weighted(conversion, found, (first, rest[0]), edge_count):
                pass
            case "Slice" if _is_whole(conversion, rest, edge_count):
                found.values = first
            case "Gather" | "GatherND" | "GatherElements" if rest[0] is not None:
                found.sources = _sources(conversion, node, rest[0])
                found.values = first
            case _:
                return found
        found.nodes.append(node)
        if found.sources is not None:
            return found
    return found


def _is_weighted(
    conversion: Conversion, found: _Messages, operands: tuple[onnx_ir.Value, onnx_ir.Value], edge_count: int
) -> bool:
    """Note the weights of edges that messages are multiplied by; return whether they are such."""
    for messages, factor in (operands, operands[::-1]):
        array = conversion.scope.constant_of(factor)
        if array is None or array.dtype != np.float32:
            continue
        if array.size != 1 and (array.ndim < 2 or array.shape[-2:] != (edge_count, 1) or array.size != edge_count):
            return False
        weights = np.broadcast_to(array.astype(np.float32, copy=False).reshape(-1), (edge_count,))
        found.weights = weights if found.weights is None else found.weights * weights
        found.values = messages
        return True
    return False


def _is_whole(conversion: Conversion, bounds: Sequence[onnx_ir.Value | None], edge_count: int) -> bool:
    """Return whether a Slice of [E, F] leaves nothing out: exporters cut updates to the size of their index."""
    values = [None if bound is None else conversion.scope.shape_value_of(bound) for bound in bounds]
    known = [[size.coefficient for size in value.sizes if is_known(size)] for value in values if value is not None]
    if len(known) != len(bounds) or len(known) != 2:
        return False
    starts, ends = known
    # the updates are no larger than the index, which has as many features as the nodes: that is checked by onnxruntime
    return len(starts) == len(ends) == 2 and not any(starts) and ends[0] >= edge_count


def _sources(conversion: Conversion, node: onnx_ir.Node, index: onnx_ir.Value) -> Indices | None:
    """Return the source of each edge, where a node gathers rows by constants."""
    axis = node.attributes.get("axis")
    number = 0 if axis is None else axis.as_int()
    # inside of functions values have no types of their own
    nodes = node.inputs[0]
    sizes = None if nodes is None else conversion.scope.sizes_of_onnx_value(nodes)
    shape = sizes if sizes is not None else node.outputs[0].shape
    rank = None if shape is None else len(shape)
    if node.op_type == "GatherElements":
        return _index_of_rows(conversion, index) if number in (-2, (rank or 2) - 2) else None
    array = conversion.scope.constant_of(index)
    if array is None or array.dtype.kind != "i":
        return None
    if node.op_type == "GatherND":
        batch = node.attributes.get("batch_dims")
        rows = array.ndim == 2 and array.shape[1] == 1 and (batch is None or batch.as_int() == 0)
        return array.reshape(-1).astype(np.int64) if rows else None
    if array.ndim != 1 or number not in (-2, (rank or 2) - 2):
        return None
    return array.astype(np.int64)


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

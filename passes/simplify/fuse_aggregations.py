"""Let aggregations over a graph take what stands behind them: what scales nodes, the node itself, bias and activation.

```mlir
%a = pebble.aggregate %x, %g : ...
%b = pebble.div %a, %degree : (tensor<3x8xf32>, tensor<3x1xf32>) -> tensor<3x8xf32>
%c = pebble.mul %x, %one_and_epsilon : ...
%d = pebble.add %b, %c : ...
%e = pebble.add %d, %bias : ...
%y = pebble.activate <relu> %e : ...
// ->
%y = pebble.aggregate %x, %g_scaled_with_diagonal bias %bias activation <relu> : ...
```

So a mean is a sum whose edges weigh one over the degree, and a node that counts itself has an edge to itself. What is
taken has no other reader; a maximum takes bias and activation alone, and so do sums over edges that a call brings.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass

from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, DivOp, MulOp
from ...dialect.ops.graphs import AggregateOp, OverEdges, OverEdgesOp
from ...dialect.tensors import shape_of
from ...sparse.csr import CscMatrix
from ...sparse.edges import EdgeList
from ..analysis.per_feature_constants import entries_per_feature, single_entry
from ..rewriting.erase_unused import erase_unused
from ..rewriting.parameters import place_constant
from ..rewriting.replacing import absorb


class FuseAggregations(ModulePass):
    """Fold what stands behind aggregations into their edges, bias and activation."""

    name = "pebble-fuse-aggregations"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for aggregate in [found for found in op.walk() if isinstance(found, OverEdges)]:
            while _takes_reader(aggregate):
                pass
        _share_graphs(op)
        erase_unused(op.body)


def _share_graphs(module: ModuleOp) -> None:
    """Let aggregations over equal graphs read the first one's constant."""
    known: dict[Attribute, SSAValue] = {}
    for aggregate in (found for found in module.walk() if isinstance(found, OverEdgesOp)):
        if isinstance(aggregate.graph.owner, SparseConstantOp):
            graph = aggregate.graph.owner
            key = ArrayAttr([graph.result_type, graph.pointers, graph.rows, graph.values])
            position = list(aggregate.operands).index(aggregate.graph)
            aggregate.operands[position] = known.setdefault(key, aggregate.graph)


def _takes_reader(aggregate: OverEdges) -> bool:
    if aggregate.activation is not None:
        return False
    reader = aggregate.result.get_user_of_unique_use()
    match reader:
        case ActivateOp():
            aggregate.activation = reader.activation
        case BinaryOp() if reader.result.type == aggregate.result.type:
            other = reader.right if reader.left is aggregate.result else reader.left
            if not _is_bias(aggregate, reader, other) and not (
                isinstance(aggregate, AggregateOp)
                and not aggregate.of_call
                and (_is_scale(aggregate, reader) or _is_self(aggregate, reader))
            ):
                return False
        case _:
            return False
    absorb(reader, aggregate)
    return True


def _is_bias(aggregate: OverEdgesOp, reader: BinaryOp, other: SSAValue) -> bool:
    """Take a sum with a constant per feature as the bias."""
    entries = entries_per_feature(other) if isinstance(reader, AddOp) else None
    if entries is None or aggregate.bias is not None:
        return False
    features = shape_of(aggregate.result)[-1]
    if shape_of(other) == (features,):
        _move_before(other, aggregate)
        aggregate.operands = [*aggregate.operands, other]
        return True
    constant = ConstantOp(np.broadcast_to(entries, (features,)).copy())
    aggregate.operands = [*aggregate.operands, place_constant(constant, aggregate, other)]
    return True


def _is_scale(aggregate: AggregateOp, reader: BinaryOp) -> bool:
    """Take a product or quotient with a constant per node into the edges that end there."""
    if not aggregate.is_plain or not isinstance(reader, MulOp | DivOp):
        return False
    swapped = reader.left is not aggregate.result
    factors = _per_node(reader.left if swapped else reader.right, aggregate)
    if factors is None or (swapped and isinstance(reader, DivOp)):
        return False
    graph = aggregate.edges
    with np.errstate(all="ignore"):
        scale = 1.0 / factors.astype(np.float64) if isinstance(reader, DivOp) else factors.astype(np.float64)
        values = (graph.values * scale[graph.columns]).astype(np.float32)
    # a node without edges is 0 times its factor: NaN or inf would show there
    if not np.isfinite(scale).all() or not np.isfinite(values).all():
        return False
    _set_graph(aggregate, graph._replace(values=values))
    return True


def _per_node(value: SSAValue, aggregate: AggregateOp) -> NDArray[np.float32] | None:
    """Return the entry of each node [targets] of a constant that is the same for all features."""
    if not isinstance(value.owner, ConstantOp):
        return None
    array, nodes = value.owner.array, aggregate.edges.shape[1]
    if array.ndim == 0 or array.size == 1:
        return np.full(nodes, array.reshape(-1)[0], np.float32)
    if array.ndim < 2 or array.shape[-2] != nodes or array.size != nodes * array.shape[-1]:
        return None
    rows = array.reshape(nodes, -1)
    return rows[:, 0] if (rows == rows[:, :1]).all() else None


class _OwnValue(NamedTuple):
    """A value times a number."""

    value: SSAValue
    factor: float


def _is_self(aggregate: AggregateOp, reader: BinaryOp) -> bool:
    """Take a sum with the node's own value, maybe times a number, as an edge from each node to itself."""
    graph = aggregate.edges
    if not isinstance(reader, AddOp) or not aggregate.is_plain or graph.shape[0] != graph.shape[1]:
        return False
    own = _own_value(reader.right if reader.left is aggregate.result else reader.left)
    if own.value is not aggregate.x:
        return False
    nodes = np.arange(graph.shape[0])
    edges = EdgeList(
        np.concatenate((graph.rows, nodes)),
        np.concatenate((graph.columns, nodes)),
        np.concatenate((graph.values, np.full(len(nodes), own.factor, np.float32))),
    )
    _set_graph(aggregate, edges.matrix(graph.shape))
    return True


def _own_value(value: SSAValue) -> _OwnValue:
    op = value.owner
    if isinstance(op, MulOp):
        for own, factor in ((op.left, op.right), (op.right, op.left)):
            number = single_entry(factor)
            if number is not None and op.result.type == own.type:
                return _OwnValue(own, number)
    return _OwnValue(value, 1.0)


def _set_graph(aggregate: AggregateOp, graph: CscMatrix) -> None:
    aggregate.operands[1] = place_constant(SparseConstantOp(graph), aggregate, aggregate.graph)


def _move_before(value: SSAValue, aggregate: OverEdgesOp) -> None:
    """Let a constant stand before an aggregation that it stood behind."""
    owner, block = value.owner, aggregate.parent
    if isinstance(owner, ConstantOp) and block is not None and not owner.is_before_in_block(aggregate):
        owner.detach()
        block.insert_op_before(owner, aggregate)

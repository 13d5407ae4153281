"""References of the ops of `pebble`: results on numpy arrays of any float dtype."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from xdsl.ir import Operation

from ...foundation.bfloat import rounded_to_bfloat
from ...foundation.extensible_table import ExtensibleTable
from ..attributes.activations import ActivationAttr, Floats, activate
from ..attributes.weighted_graph import WeightedGraph
from ..ops.attention import Attention, AttentionOp, PastAttentionOp
from ..ops.constants import SparseConstantOp
from ..ops.elementwise import ActivateOp, AddOp, ConvertOp, DivOp, MulOp, PreluOp, SubOp
from ..ops.graphs import LOWEST, AggregateOp, AttendEdgesOp, EdgeListOp, SortEdgesOp
from ..ops.grouped_layers import GroupedLayersOp
from ..ops.images import Conv2dOp, Depthwise2dOp, Interleave2dOp, Pool2dOp, Resample2dOp
from ..ops.layers import (
    BatchMatmulTransposeBOp,
    BatchNormOp,
    LayerNormOp,
    LinearOp,
    LogSoftmaxOp,
    ReduceMeanOp,
    RmsNormOp,
    SoftmaxOp,
)
from ..ops.movement import ConcatOp, ReshapeOp, SplitOp, TakeOp, TransposeOp
from ..ops.network import NetworkOp
from ..ops.recurrences import RecurrenceOp
from ..ops.training.edge_slopes import EdgeSlopesOp, EdgeTotalsOp
from ..ops.training.gradients import SampledProductOp, SumRowsOp
from ..tensors import shape_of
from .array_operators import OPERATORS, Array
from .images import conv2d, depthwise2d, interleave2d, pool2d, resample2d
from .quantized import run_convert, run_linear
from .recurrences import run_recurrence

# Reference of `pebble.network` on numpy arrays of any float dtype, depth by depth.


def run_network(network: WeightedGraph, inputs: Sequence[Floats]) -> Floats:
    """Return the output neurons [..., outputs] for inputs [..., features] each."""
    first = np.concatenate(inputs, axis=-1)
    graph, input_count, rows = network.graph, first.shape[-1], first.reshape(-1, first.shape[-1]).T
    values = np.zeros((graph.neuron_count, rows.shape[1]), dtype=first.dtype)
    values[:input_count] = rows
    depths, by_target = graph.depths, graph.incoming.indices
    for depth in range(int(depths.max(initial=-1)) + 1):
        neurons = np.flatnonzero(depths == depth)
        neurons = neurons[neurons >= input_count]
        values[neurons] = network.biases[neurons - input_count, None].astype(first.dtype)
        incoming = by_target[depths[graph.targets[by_target]] == depth]
        if len(incoming):
            products = network.weights[incoming, None].astype(first.dtype) * values[graph.sources[incoming]]
            targets, starts = np.unique(graph.targets[incoming], return_index=True)
            values[targets] += np.add.reduceat(products, starts, axis=0)
        numbers = network.activation_of[neurons - input_count]
        for number, activation in enumerate(network.activations):
            values[neurons[numbers == number]] = activate(activation, values[neurons[numbers == number]])
    return values[graph.outputs].T.reshape(*first.shape[:-1], len(graph.outputs))


Reference = Callable[..., Floats | Sequence[Floats]]
"""(op, an array for each operand) -> the result, or an array for each result."""


def _linear(op: LinearOp, x: Floats, weight: Floats, bias: Floats | None = None, *rest: Floats) -> Floats:
    if op.times is not None:
        return run_linear(op, x, weight, *([] if bias is None else [bias]), *rest)
    if op.is_rounded:
        x, weight = (rounded_to_bfloat(one.astype(np.float32)).astype(one.dtype) for one in (x, weight))
    product = x @ weight
    result = product if bias is None else product + bias
    return result if op.activation is None else activate(op.activation, result)


def _activate(op: ActivateOp, x: Floats) -> Floats:
    return activate(op.activation, x)


def _elementwise(function: Callable[[Floats, Floats], Floats]) -> Reference:
    def reference(_: Operation, left: Floats, right: Floats) -> Floats:
        return function(left, right)

    return reference


def _prelu(_: PreluOp, x: Floats, slope: Floats) -> Floats:
    return np.where(x >= 0, x, x * slope)


def _softmax(_: SoftmaxOp, x: Floats) -> Floats:
    powers = np.exp(x - _largest(x))
    return powers / powers.sum(axis=-1, keepdims=True)


def _log_softmax(_: LogSoftmaxOp, x: Floats) -> Floats:
    shifted = x - _largest(x)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _largest(x: Floats) -> Floats:
    return x.max(axis=-1, keepdims=True, initial=-np.inf)


def _layer_norm(op: LayerNormOp, x: Floats, scale: Floats, bias: Floats | None = None) -> Floats:
    centred = x - x.mean(axis=-1, keepdims=True)
    result = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + op.epsilon.value.data) * scale
    return result if bias is None else result + bias


def _rms_norm(op: RmsNormOp, x: Floats, scale: Floats) -> Floats:
    return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + op.epsilon.value.data) * scale


def _batch_norm(op: BatchNormOp, x: Floats, *parameters: Floats) -> Floats:
    along_axis_1 = (-1,) + (1,) * (x.ndim - 2)
    scale, bias, mean, variance = (parameter.reshape(along_axis_1) for parameter in parameters)
    return (x - mean) / np.sqrt(variance + op.epsilon.value.data) * scale + bias


def _reduce_mean(_: ReduceMeanOp, x: Floats) -> Floats:
    return x.mean(axis=-1, keepdims=True)


def _attention(op: Attention, q: Floats, k: Floats, v: Floats, *further: Floats) -> Floats:
    masks, past = further[: len(further) - len(op.past)], further[len(further) - len(op.past) :]
    heads, (queries, keys) = op.head_counts, (q.shape[1], k.shape[1])
    q, k, v = (_heads_first(x, count) for x, count in zip((q, k, v), (*heads, heads.keys), strict=True))
    if past:
        k, v = (np.concatenate(both, axis=2) for both in zip(past, (k, v), strict=True))
    k, v = (x.repeat(heads.queries // heads.keys, axis=1) for x in (k, v))
    roundings = op.weighting.roundings
    scores = _rounded(q @ k.swapaxes(2, 3) * op.weighting.scale, roundings.products)
    scores = _rounded(sum(masks, start=scores), roundings.scores)
    if op.weighting.causal:
        scores = np.where(np.tri(queries, k.shape[2], k.shape[2] - keys, dtype=np.bool_), scores, -np.inf)
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - _largest(scores))
        weights: Floats = powers / powers.sum(axis=-1, keepdims=True)
    if op.weighting.nan_as_zero:
        weights[np.isnan(weights)] = 0.0
    weights = _rounded(weights, roundings.weights)
    return (weights @ v).swapaxes(1, 2).reshape(len(q), queries, heads.queries * op.value_size)


def _rounded(x: Floats, roundings: Sequence[ActivationAttr]) -> Floats:
    for one in roundings:
        x = activate(one, x)
    return x


def _aggregate(op: AggregateOp, x: Floats, graph: Array, bias: Floats | None = None) -> Floats:
    if op.maximum is None:
        result = _matrix(graph, x).T @ x
    else:
        result = np.full((*x.shape[:-2], graph.shape[1] if graph.ndim > 1 else len(x), x.shape[-1]), LOWEST, x.dtype)
        sources, targets = (graph["source"], graph["target"]) if graph.dtype.names else np.nonzero(graph)
        for source, target in zip(sources, targets, strict=True):
            result[..., target, :] = np.maximum(result[..., target, :], x[..., source, :])
        result[..., np.bincount(targets, minlength=result.shape[-2]) == 0, :] = 0.0
    result = result if bias is None else result + bias
    return result if op.activation is None else activate(op.activation, result)


def _matrix(graph: Array, x: Floats) -> Floats:
    """Return a graph [sources, targets] as a matrix, also one of edges that a call brings."""
    if not graph.dtype.names:
        return graph
    matrix = np.zeros((len(x), len(x)), x.dtype)
    np.add.at(matrix, (graph["source"], graph["target"]), graph["weight"])
    return matrix


def _edge_list(_: EdgeListOp, nodes: Floats, *ends: Array) -> Sequence[Array]:
    found = OPERATORS["EdgeList"]({}, np.array(nodes.shape), *ends)
    return found if isinstance(found, list) else [found]


def _sort_edges(_: SortEdgesOp, __: Floats, sources: Array, targets: Array, weights: Floats) -> Array:
    edges = np.empty(len(targets), [("source", "i4"), ("target", "i4"), ("weight", weights.dtype)])
    edges["source"], edges["target"], edges["weight"] = sources, targets, weights
    return edges[np.argsort(targets, kind="stable")]


def _sampled_product(op: SampledProductOp, x: Floats, y: Floats, _: Floats) -> Floats:
    product = x.T @ y
    if not isinstance(op.weight.owner, SparseConstantOp):
        return product.T.ravel()
    pattern = op.weight.owner.weight
    return product[pattern.rows, pattern.columns]


def _sum_rows(_: SumRowsOp, x: Floats) -> Floats:
    return x.sum(axis=-2)


def _attend_edges(op: AttendEdgesOp, x: Floats, scores: Floats, graph: Array, bias: Floats | None = None) -> Floats:
    (heads, activation, epsilon, from_zero), graph = op.softmax, _matrix(graph, x)
    edge_scores = _edge_scores(scores, heads, activation)
    counts = graph[:, :, np.newaxis]
    start = 0.0 if from_zero else np.finfo(x.dtype).min
    largest = np.max(edge_scores, axis=0, where=counts != 0, initial=start, keepdims=True)
    weights = counts * np.exp(np.where(counts != 0, edge_scores - largest, -np.inf))
    sums = weights.sum(axis=0, keepdims=True) + epsilon
    weights = np.divide(weights, sums, out=np.zeros_like(weights), where=sums != 0)
    result = np.einsum("sth,shc->thc", weights, x.reshape(len(x), heads, -1)).reshape(x.shape)
    result = result if bias is None else result + bias
    return result if op.activation is None else activate(op.activation, result)


def _edge_scores(scores: Floats, heads: int, activation: ActivationAttr | None) -> Floats:
    """Return the scores [sources, targets, heads] of edges between all nodes."""
    sums = scores[:, np.newaxis, :heads] + scores[np.newaxis, :, heads:]
    return sums if activation is None else activate(activation, sums)


def _edge_totals(op: EdgeTotalsOp, scores: Floats, graph: Array) -> Floats:
    heads, activation, epsilon, from_zero = op.softmax
    edge_scores, counts = _edge_scores(scores, heads, activation), graph[:, :, np.newaxis]
    start = 0.0 if from_zero else LOWEST
    largest = np.max(edge_scores, axis=0, where=counts != 0, initial=start)
    powers = counts * np.exp(np.where(counts != 0, edge_scores - largest, -np.inf))
    is_read = (graph != 0).any(axis=0)[:, np.newaxis]
    return np.where(is_read, largest + np.log(np.where(is_read, powers.sum(axis=0) + epsilon, 1.0)), LOWEST)


def _edge_slopes(op: EdgeSlopesOp, x: Floats, scores: Floats, totals: Floats, graph: Array) -> Floats:
    heads, activation, *_ = op.softmax
    # axes are neighbours and nodes, whichever of them are sources
    ends = scores if op.sources is None else np.concatenate((scores[:, heads:], scores[:, :heads]), axis=1)
    edge_scores, counts = _edge_scores(ends, heads, activation), graph[:, :, np.newaxis]
    of_target = totals[np.newaxis] if op.sources is None else totals[:, np.newaxis, :heads]
    weights = counts * np.exp(np.where(counts != 0, edge_scores - of_target, -np.inf))
    is_low = _edge_scores(ends, heads, None) <= 0
    slope = 1.0 if activation is None else activation.values[0]
    slopes = weights * np.where(is_low, slope, 1.0)
    parts = x.reshape(len(x), heads, -1)
    of_neighbour = np.ones((len(x), heads), x.dtype) if op.sources is None else totals[:, heads:]
    sums = [np.einsum("sth,shc->thc", some, parts).reshape(x.shape) for some in (weights, slopes)]
    return np.concatenate([*sums, np.einsum("sth,sh->th", slopes, of_neighbour)], axis=1)


def _heads_first(x: Floats, heads: int) -> Floats:
    samples, rows, features = x.shape
    return x.reshape(samples, rows, heads, features // heads).swapaxes(1, 2)


def _reshape(op: ReshapeOp, x: Floats) -> Floats:
    return x.reshape(op.target.result_shape(x.shape))


def _transpose(op: TransposeOp, x: Floats) -> Floats:
    return x.transpose(op.order)


def _concat(op: ConcatOp, *parts: Floats) -> Floats:
    return np.concatenate(parts, axis=op.axis.value.data)


def _split(op: SplitOp, x: Floats) -> Sequence[Floats]:
    axis = op.axis.value.data
    ends = np.cumsum([shape_of(part)[axis] for part in op.parts])
    return np.split(x, ends[:-1], axis)


def _take(op: TakeOp, x: Floats) -> Floats:
    return np.take(x, [op.place.value.data], op.axis.value.data).squeeze(op.axis.value.data)


def _product(op: BatchMatmulTransposeBOp, x: Floats, y: Floats) -> Floats:
    del op
    return x @ y.swapaxes(-1, -2)


def _network(op: NetworkOp, *inputs: Floats) -> Sequence[Floats]:
    ends = np.cumsum([shape_of(output)[-1] for output in op.outputs])
    return np.split(run_network(op.weighted_graph, inputs), ends[:-1], -1)


def _grouped_layers(op: GroupedLayersOp, x: Floats, *parameters: Floats) -> Floats:
    values = x.reshape(-1, x.shape[-1]).T
    for layer, weight, bias in zip(op.layers, parameters[::2], parameters[1::2], strict=True):
        values = values if layer.order is None else values[layer.order]
        groups = len(values) // layer.group_inputs
        grouped = weight.reshape(groups, -1, layer.group_inputs) @ values.reshape(groups, layer.group_inputs, -1)
        values = grouped.reshape(layer.outputs, -1) + bias[:, None]
        values = values if layer.activation is None else activate(layer.activation, values)
    values = values if op.last_order is None else values[op.last_order]
    return values.T.reshape(*x.shape[:-1], len(values))


REFERENCES: Final = ExtensibleTable[type[Operation], Reference](
    {
        LinearOp: _linear,
        ConvertOp: run_convert,
        ActivateOp: _activate,
        AddOp: _elementwise(np.add),
        SubOp: _elementwise(np.subtract),
        MulOp: _elementwise(np.multiply),
        DivOp: _elementwise(np.divide),
        PreluOp: _prelu,
        SoftmaxOp: _softmax,
        LogSoftmaxOp: _log_softmax,
        LayerNormOp: _layer_norm,
        RmsNormOp: _rms_norm,
        BatchNormOp: _batch_norm,
        ReduceMeanOp: _reduce_mean,
        AttentionOp: _attention,
        PastAttentionOp: _attention,
        Conv2dOp: conv2d,
        Depthwise2dOp: depthwise2d,
        Pool2dOp: pool2d,
        Interleave2dOp: interleave2d,
        Resample2dOp: resample2d,
        AggregateOp: _aggregate,
        AttendEdgesOp: _attend_edges,
        EdgeListOp: _edge_list,
        SortEdgesOp: _sort_edges,
        SampledProductOp: _sampled_product,
        SumRowsOp: _sum_rows,
        EdgeTotalsOp: _edge_totals,
        EdgeSlopesOp: _edge_slopes,
        ReshapeOp: _reshape,
        TransposeOp: _transpose,
        ConcatOp: _concat,
        SplitOp: _split,
        TakeOp: _take,
        BatchMatmulTransposeBOp: _product,
        NetworkOp: _network,
        GroupedLayersOp: _grouped_layers,
        RecurrenceOp: run_recurrence,
    }
)
"""References of the ops that have no body and are no constants, by op type."""

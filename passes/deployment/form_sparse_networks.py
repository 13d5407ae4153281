"""Move layers with sparse weights, and what runs row by row around them, into sparse networks.

```mlir
%h = pebble.linear %x, %w kernel <count_blocks from 1, "density 0.100"> : ...
%y = pebble.layer_norm %h scale %s epsilon 1.0e-05 : ...
%z = pebble.foreign "ai.onnx::MatMul" at 7 reads %y, ...
// ->
%y = pebble.sparse_network %x dims [["d0", "64"]] because "1 of 1 weights sparse, 0.100 of the work" : ... {
^bb0(%a : tensor<?x64xf32>):
  %h = pebble.linear %a, %w kernel <count_blocks from 1, "density 0.100"> : ...
  %n = pebble.layer_norm %h scale %s epsilon 1.0e-05 : ...
  pebble.yield %n : ...
}
%z = pebble.foreign "ai.onnx::MatMul" at 7 reads %y, ...
```

A network is one of the clusters of `redpebble.passes.analysis.clusters`: as large as possible, without a path that
leaves it and comes back, all of its ops row by row on the same rows, or attentions between such rows. It must hold a
layer that gains: whose kernels, as `pebble-choose-kernels` chose them, are predicted to take less time than a dense
layer does in onnxruntime. The rows that count are those that the model fixes, else `rows`; else any: then it is slower
for no number of them. Layers with dense kernels stay with the runtime, which is as good at them, except for those that
cost less than leaving the network and coming back, and those that gain clearly at the rows that are known. What stands
at the ends of a network and takes less time in onnxruntime, such as a sigmoid of many values, stays there: see
`redpebble.passes.deployment.dear_ends`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence, Set
from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, ModuleOp, StringAttr, f64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException, VerifyException

from ...dialect.attributes.activations import OF_FEW_INSTRUCTIONS, ActivationAttr
from ...dialect.ops.attention import Attention
from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, MulOp
from ...dialect.ops.foreign import INT64, INTEGERS, ForeignOp
from ...dialect.ops.graphs import EdgeListOp, OverEdges, OverEdgesOp, SortEdgesOp
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, Resample2dOp
from ...dialect.ops.layers import LinearOp, float_layers
from ...dialect.ops.movement import ReshapeOp
from ...dialect.ops.recurrences import RecurrenceOp
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.sparse_network import SparseNetworkOp
from ...dialect.provenance import VALUES, node_name, set_provenance, take_value_names, value_name
from ...dialect.shape_inference import argument_shapes, described_shapes, result_shapes
from ...dialect.symbolic_sizes import Size, SymbolicShape
from ...dialect.tensors import DYNAMIC, shape_of
from ...kernels.activation_prices import activation_us, runtime_activation_us
from ...kernels.dense_work import OVERHEADS
from ...kernels.families import is_dense
from ...kernels.image_prices import ImageShares, image_shares
from ...kernels.machine import DEFAULT_PRICES, Machine, MachineOptions
from ..analysis.clusters import Cluster, boundary_of, clusters_of
from ..analysis.dominance import moving_ops
from ..analysis.layer_costs import few_bits_at
from ..analysis.rowwise import Rows, dynamic_operands
from ..analysis.weights import connection_count, weight_of
from ..images.code_borders import clusters_of_images
from ..images.fuse_convolutions import codes_between
from ..images.image_layers import (
    LEAST_GAIN,
    behind_sparse,
    dense_us,
    image_counts,
    is_sparse_convolution,
    network_us,
    pixels_of,
    reads_or_yields_codes,
)
from ..kernels.kernels_at_rows import ANY_ROWS, ChosenKernels, gains, gains_clearly
from ..rewriting.outline import computing_ops, outline
from ..rewriting.replacing import pass_on
from .recurrence_gain import recurrence_gains

# Ends of sparse networks that stay with the runtime: what it computes in less time, where leaving it costs no more.

CERTAIN: Final = 1.15
"""Time of an activation over onnxruntime's from which on it is longer for certain."""

Activated = LinearOp | Conv2dOp | Depthwise2dOp
"""Layers that an activation can be taken from."""


def node_us(machine: Machine) -> float:
    """Return the microseconds of one more node."""
    return OVERHEADS.get(machine.prices, OVERHEADS[DEFAULT_PRICES]).node


def dear_ends(ops: Sequence[Operation], is_dear: Callable[[Operation, Sequence[Operation]], bool]) -> set[Operation]:
    """Return what ops lose at their ends, one after the other, as long as one `is_dear` beside those that are left."""
    left = list(ops)
    while (end := next((op for op in left if _is_end(op, left) and is_dear(op, left)), None)) is not None:
        left.remove(end)
    return {*ops} - {*left}


def is_dear_image(op: Operation, ops: Sequence[Operation], shares: ImageShares) -> bool:
    """Return whether a network of images takes longer with an op at its end than without it, and the runtime's node."""
    if not isinstance(op, ActivateOp | BinaryOp | Pool2dOp | Resample2dOp) or reads_or_yields_codes(op):
        return False
    without = network_us([one for one in ops if one is not op], shares)
    return without + dense_us([op], shares) + node_us(shares.machine) < network_us(ops, shares)


def is_dear_activation(activation: ActivationAttr | None, values: int, machine: Machine) -> bool:
    """Return whether an activation of so many values at an end takes longer here than as a node of the runtime."""
    if activation is None or activation.kind in {*OF_FEW_INSTRUCTIONS, "quantize"}:
        return False
    kind = activation.kind
    ours, theirs = activation_us(kind, machine), runtime_activation_us(kind, machine)
    return ours > CERTAIN * theirs and values * (ours - theirs) > node_us(machine)


def split_ends(
    ops: Sequence[Operation], is_dear: Callable[[Activated], bool], shapes: MutableMapping[SSAValue, SymbolicShape]
) -> list[ActivateOp]:
    """Take from layers at the end of `ops` the activations that are dear, in place: they stand nowhere yet.

    The shapes of their results are added to `shapes`.
    """
    made: list[ActivateOp] = []
    for op in ops:
        if not isinstance(op, Activated) or op.activation is None or not _ends(op, ops) or not is_dear(op):
            continue
        if isinstance(op, LinearOp | Conv2dOp) and op.times is not None:
            continue
        activate = ActivateOp(op.result, op.activation)
        op.result.replace_uses_with_if(activate.result, lambda use, made=activate: use.operation is not made)
        op.activation = None
        take_value_names(op, activate)
        # what it yields now has no name in the model
        op.attributes.pop(VALUES, None)
        op.result.name_hint = None
        shapes[activate.result] = shapes[op.result]
        made.append(activate)
    return made


def _is_end(op: Operation, ops: Collection[Operation]) -> bool:
    return len(ops) > 1 and (_ends(op, ops) or all(value.owner not in ops for value in dynamic_operands(op)))


def _ends(op: Operation, ops: Collection[Operation]) -> bool:
    """Return whether nothing among `ops` reads what an op yields."""
    return all(use.operation not in ops for result in op.results for use in result.uses)


LAYERS: Final = LinearOp | Conv2dOp | OverEdgesOp | RecurrenceOp
"""Ops after which a network is called."""

SMALL_DENSE: Final = 4096
"""Weights of a dense layer that takes about as long as the call of a node."""

LEFT: Final = "pebble.left"
"""The reason why a function's convolutions were left alone."""


@dataclass(frozen=True)
class FormSparseNetworks(MachineOptions, ModulePass):
    """Move layers with sparse weights into sparse networks."""

    name = "pebble-form-sparse-networks"

    rows: int = 0
    """The rows that layers get at once, where the model does not fix them; 0 for any number of them."""

    takes_dense: bool = False
    """Whether dense convolutions on codes that sparse ones feed, or that feed them, come along in any case."""

    @staticmethod
    def on(machine: Machine, rows: int, *, takes_dense: bool) -> "FormSparseNetworks":
        """Return the pass for a machine."""
        return FormSparseNetworks(**FormSparseNetworks.numbers(machine), rows=rows, takes_dense=takes_dense)

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.rows < 0:
            raise PassFailedException(f"{self.name}: expected rows of 0 or more, got {self.rows}")
        try:
            known = _Known(self.rows, self.machine, self.takes_dense)
        except ValueError as error:
            raise PassFailedException(f"{self.name}: {error}") from error
        with moving_ops(self.name, op) as functions:
            for func in functions:
                _form_networks(func, known)


class _Known(NamedTuple):
    """The rows that matter, 0 for any; the machine; whether dense convolutions on codes are taken in any case."""

    rows: int
    machine: Machine
    takes_dense: bool


def _form_networks(func: FuncOp, known: _Known) -> None:
    if any(isinstance(op, Conv2dOp) for op in func.body.block.ops):
        _form_image_networks(func, image_shares(known.machine), takes_dense=known.takes_dense)
        codes_between(func)  # where no network was formed, nothing crosses its border
    ops, rows = computing_ops(func.body.block), Rows(_shapes(func))
    sorts = [op for op in ops if isinstance(op, EdgeListOp | SortEdgesOp)]
    weight_bytes = sum(_weight_bytes(op) for op in float_layers(ops))
    gaining = {op for op in ops if _gains(op, rows, weight_bytes, known)}
    beside = {op for op in ops if _gains_beside(op, rows, weight_bytes, known)}
    counts = {op: count for op in ops if (count := _count(op, rows, gaining | beside)) is not None}
    # a recurrence is a network of its own: no other op has rows of steps and of states
    recurrences = (op for op in ops if isinstance(op, RecurrenceOp) and op in gaining)
    counts |= {op: Size.symbol(f"%recurrence {number}") for number, op in enumerate(recurrences)}

    def is_dear(op: ActivateOp | Activated) -> bool:
        # of rows that nobody knows there is one at least
        values = (rows.count(op.result).constant or known.rows or 1) * shape_of(op.result)[-1]
        return is_dear_activation(op.activation, values, known.machine)

    def network(members: Sequence[Operation]) -> list[Operation] | None:
        if not (inside := gaining.intersection(members)):
            return None
        ends = [] if known.takes_dense else split_ends(members, is_dear, rows.shapes)
        return [_network(members, rows, inside), *ends]

    clusters = _clusters(ops, counts, rows)
    for cluster in clusters:
        if cluster.is_joined and gaining.intersection(cluster.ops):
            for end in dear_ends(cluster.ops, lambda op, _: isinstance(op, ActivateOp) and is_dear(op)):
                del counts[end]
    outline(func.body.block, _clusters(ops, counts, rows), network)
    for op in reversed(sorts):
        if not any(result.uses.get_length() for result in op.results):
            func.body.block.erase_op(op)


def _form_image_networks(func: FuncOp, shares: ImageShares, *, takes_dense: bool) -> None:
    """Move convolutions into sparse networks, with what runs on images beside them, where all gain enough together."""
    ops, rows = computing_ops(func.body.block), Rows(_shapes(func))
    counts = image_counts(ops, rows.shapes)
    taken = behind_sparse(counts, shares, takes_dense=takes_dense)
    before = dense_us(_from(taken, counts), shares)
    for cluster in clusters_of_images(func.body.block, taken):
        if cluster.is_joined and any(map(is_sparse_convolution, cluster.ops)):
            for end in dear_ends(cluster.ops, lambda op, left: is_dear_image(op, left, shares)):
                del taken[end]
    clusters = clusters_of_images(func.body.block, taken)
    if computing_ops(func.body.block) != ops:
        rows = Rows(_shapes(func))
    gains = {cluster.ops: _gain_us(cluster.ops, shares) for cluster in clusters if cluster.is_joined}
    saved = sum(gain for gain in gains.values() if gain > 0)
    ratio = before / (before - saved) if saved else 1.0
    if ratio < LEAST_GAIN:
        func.attributes[LEFT] = StringAttr(f"convolutions would be {ratio:.2f}x as fast, taken are {LEAST_GAIN}x")
        return

    def is_dear(op: Activated) -> bool:
        return is_dear_activation(op.activation, pixels_of(op.result), shares.machine)

    def network(members: Sequence[Operation]) -> list[Operation] | None:
        if gains[tuple(members)] <= 0:
            return None
        ends = [] if takes_dense else split_ends(members, is_dear, rows.shapes)
        made = _network(members, rows, set(filter(is_sparse_convolution, members)))
        made.image_us = FloatAttr(network_us(members, shares), f64)
        made.dense_image_us = FloatAttr(dense_us(members, shares), f64)
        return [made, *ends]

    outline(func.body.block, clusters, network)


def _from(taken: Collection[Operation], ops: Iterable[Operation]) -> list[Operation]:
    """Return the ops that are taken, and those that read what these yield: what is before them counts nowhere."""
    reached = {*taken}
    for op in ops:
        if any(value.owner in reached for value in op.operands):
            reached.add(op)
    return [op for op in ops if op in reached]


def _gain_us(ops: Sequence[Operation], shares: ImageShares) -> float:
    """Return the microseconds of an image that a cluster is predicted to save; none without sparse convolutions."""
    return dense_us(ops, shares) - network_us(ops, shares) if any(map(is_sparse_convolution, ops)) else 0.0


def _shapes(func: FuncOp) -> dict[SSAValue, SymbolicShape]:
    """Return the symbolic shape of every tensor of a function in which ONNX nodes were kept."""
    shapes = argument_shapes(func)
    for index, op in enumerate(op for op in func.body.block.ops if op.results):
        for result, shape in zip(op.results, _result_shapes(op, index, shapes), strict=False):
            if shape is not None and result.type in INTEGERS:
                shapes[result] = shape
            elif shape is not None:
                # a type may know a number where the symbols do not
                extents = zip(shape_of(result), shape, strict=True)
                shapes[result] = tuple(size if extent == DYNAMIC else Size.known(extent) for extent, size in extents)
    return shapes


def _result_shapes(
    op: Operation, index: int, shapes: Mapping[SSAValue, SymbolicShape]
) -> Sequence[SymbolicShape | None]:
    if isinstance(op, ForeignOp):
        return described_shapes(op)
    try:
        return result_shapes(op, shapes)
    except VerifyException:
        # sizes that are no product of others, a sum for example: equal to nothing but themselves
        return [
            tuple(Size.symbol(f"%op{index}.{number}.{axis}") for axis in range(len(shape_of(result))))
            for number, result in enumerate(op.results)
        ]


def _count(op: Operation, rows: Rows, gaining: Set[Operation]) -> Size | None:
    """Return the number of rows of an op that a sparse network may hold, else None."""
    # a network sorts its edges itself: numbers of nodes do not leave it
    if isinstance(op, ForeignOp | SparseNetworkOp | EdgeListOp | SortEdgesOp | RecurrenceOp) or not op.results:
        return None
    if isinstance(op, Attention):
        return rows.count(op.q) if len({rows.leading(value) for value in (op.q, op.k, op.v)}) == 1 else None
    if isinstance(op, LinearOp) and op.times is not None:
        return rows.count(op.x)
    if isinstance(op, OverEdges):
        # a graph between different nodes is a network of its own: no other op has rows of both
        before, after = (rows.count(value) for value in (op.x, op.result))
        return before if before == after else before * Size.symbol(f"%to {after}")
    if any(len(shape_of(value)) < 2 for value in (*dynamic_operands(op), *op.results)):
        return None
    if isinstance(op, ActivateOp) and _decides_codes(op, gaining):
        return None
    if isinstance(op, LinearOp) and op not in gaining and _size(op) > SMALL_DENSE:
        return None
    return rows.rowwise_count(op)


def _decides_codes(op: ActivateOp, gaining: Set[Operation]) -> bool:
    """Return whether a power of values that the runtime yields is rounded by its range.

    Its last bits would make other codes there, and the power of all values takes longer than a sparse layer may save.
    """
    reads = (use.operation for use in op.result.uses)
    is_rounded = any(isinstance(reader, LinearOp) and reader.finds_codes for reader in reads)
    if not is_rounded or op.activation.kind in OF_FEW_INSTRUCTIONS:
        return False
    pending, seen = [op.x], set[SSAValue]()
    while pending:
        source = pending.pop().owner
        if source in gaining:
            return False
        if isinstance(source, ActivateOp | AddOp | MulOp):
            more = [value for value in source.operands if value not in seen]
            seen.update(more)
            pending += more
    return True


def _has_sparse_kernels(op: LinearOp, rows: Rows, weight_bytes: float, known: _Known) -> bool:
    """Return whether a layer gains over the runtime, beside so many bytes of dense weights in its function."""
    if op.kernel is None or not (isinstance(op.weight.owner, SparseConstantOp) or few_bits_at(op.weight) is not None):
        return False
    fixed, kernels = _fixed_rows(op, rows, known), _kernels(op, weight_bytes)
    if kernels is None:
        return not any(map(is_dense, op.kernel.choices.values()))
    return gains(kernels, [fixed] if fixed else ANY_ROWS, known.machine)


def _gains_beside(op: Operation, rows: Rows, weight_bytes: float, known: _Known) -> bool:
    """Return whether a dense layer gains clearly at the rows that are known, in a network of others that gain."""
    if not isinstance(op, LinearOp) or op.times is not None or not isinstance(op.weight.owner, ConstantOp):
        return False
    fixed, kernels = _fixed_rows(op, rows, known), _kernels(op, weight_bytes)
    return bool(fixed) and kernels is not None and gains_clearly(kernels, fixed, known.machine)


def _fixed_rows(op: LinearOp, rows: Rows, known: _Known) -> int:
    """Return the rows of a layer, 0 where any may come."""
    return rows.count(op.x).constant or known.rows


def _kernels(op: LinearOp, weight_bytes: float) -> ChosenKernels | None:
    """Return the kernels of a layer beside so many bytes of dense weights in its function; None without their times.

    Weights of layers that gain nothing count as well: the runtime reads them between two uses of this one.
    """
    us = {} if op.kernel is None else {**op.kernel.predicted, **op.kernel.measured}
    if op.kernel is None or not us:
        return None
    inputs, outputs = shape_of(op.weight)
    other_bytes = weight_bytes - _weight_bytes(op)
    return ChosenKernels(inputs, outputs, op.kernel.choices, us, other_bytes, few_bits_at(op.weight))


def _weight_bytes(op: LinearOp) -> float:
    """Return the bytes of a layer's weight as onnxruntime would read it."""
    known = few_bits_at(op.weight)
    return 4.0 * _size(op) if known is None else known.bytes(*shape_of(op.weight))


def _size(op: LinearOp) -> int:
    inputs, outputs = shape_of(op.weight)
    return inputs * outputs


def _clusters(ops: Sequence[Operation], counts: Mapping[Operation, Size], rows: Rows) -> list[Cluster]:
    """Return clusters whose inputs have one shape of rows each, in an order of execution."""
    clusters = clusters_of(ops, counts)
    mixed = [
        op
        for cluster in clusters
        if cluster.is_joined and not _one_shape_of_rows(cluster.ops, rows)
        for op in cluster.ops
        if isinstance(op, ReshapeOp)
    ]
    if not mixed:
        return clusters
    # inputs whose rows agree in number only: without reshapes between them there are none such
    return clusters_of(ops, {op: count for op, count in counts.items() if op not in mixed})


def _gains(op: Operation, rows: Rows, weight_bytes: float, known: _Known) -> bool:
    if isinstance(op, LinearOp):
        # layers on codes that gain nothing were left to the runtime
        return op.times is not None or _has_sparse_kernels(op, rows, weight_bytes, known)
    if isinstance(op, RecurrenceOp):
        steps, samples, _ = rows.shapes[op.x]
        if op.lengths is not None and len(rows.shapes.get(op.lengths, ())) != 1:
            return False
        return recurrence_gains(op, steps, samples, known.machine)
    return isinstance(op, OverEdgesOp)


def _one_shape_of_rows(ops: Sequence[Operation], rows: Rows) -> bool:
    apart = {value for op in ops if isinstance(op, Attention) for value in (op.mask, *op.past)}
    apart |= {op.graph for op in ops if isinstance(op, OverEdgesOp)}
    return len({rows.leading(value) for value in boundary_of(ops).inputs if value not in apart}) == 1


def _network(ops: Sequence[Operation], rows: Rows, gaining: set[Operation]) -> SparseNetworkOp:
    """Return a sparse network that computes `ops`; users of their results now read its."""
    members, ops = ops, [*_sorts_of(ops), *ops]
    inputs, outputs = boundary_of(ops)
    outputs = tuple(output for output in outputs if output.owner in members)
    body = SparseNetworkOp.body_for(inputs)
    inner: dict[SSAValue, SSAValue] = dict(zip(inputs, body.block.args, strict=True))
    for op in ops:
        body.block.add_op(op.clone(value_mapper=inner))
    body.block.add_op(YieldOp([inner[output] for output in outputs]))
    network = SparseNetworkOp(inputs, _dims(inputs, rows), [output.type for output in outputs], body)
    network.reason = StringAttr(_reason(ops, gaining))
    first = next(op for op in ops if isinstance(op, LAYERS))
    set_provenance(network, node_name(first), [value_name(output) for output in outputs])
    for output, result in zip(outputs, network.outputs, strict=True):
        rows.shapes[result] = rows.shapes[output]
    pass_on(outputs, network.outputs)
    return network


def _sorts_of(ops: Sequence[Operation]) -> list[Operation]:
    """Return the sorts of edges that ops read, and the edges, in an order of execution."""
    sorts = dict.fromkeys(op.graph.owner for op in ops if isinstance(op, OverEdgesOp) and op.of_call)
    lists = dict.fromkeys(op.sources.owner for op in sorts if isinstance(op, SortEdgesOp))
    return [op for op in (*lists, *sorts) if isinstance(op, Operation)]


def _dims(inputs: Sequence[SSAValue], rows: Rows) -> list[list[str]]:
    """Return a word for every axis: equal networks get equal words, whatever the model calls its sizes."""
    names: dict[Size, str] = {}
    for value in inputs:
        for size in rows.shapes[value]:
            if size.constant is None:
                names.setdefault(size, f"d{len(names)}")
    return [
        # of numbers of nodes [edges] or [edges, 1], the first size says all
        [names.get(size, str(size)) if value.type != INT64 or not axis else "1" for axis, size in enumerate(shape)]
        for value, shape in ((value, rows.shapes[value]) for value in inputs)
    ]


def _reason(ops: Sequence[Operation], gaining: set[Operation]) -> str:
    linear = [op for op in ops if isinstance(op, LinearOp | Conv2dOp)]
    graphs = [op for op in ops if isinstance(op, OverEdgesOp)]
    if any(op.of_call for op in graphs):
        return f"{len(graphs)} sums over edges, {len(linear)} layers"
    if graphs:
        edges = sum(len(op.edges.values) for op in graphs)
        return f"{len(graphs)} sums over {edges} edges, {len(linear)} layers"
    recurrences = [op for op in ops if isinstance(op, RecurrenceOp)]
    if recurrences:
        arrays = [array for op in recurrences for array in op.weight_arrays]
        share = sum(map(np.count_nonzero, arrays)) / max(1, sum(array.size for array in arrays))
        return f"{len(recurrences)} {recurrences[0].kind.data}, {share:.3f} of the work"
    weights = [op.weight for op in linear]
    sparse = len(gaining.intersection(linear))
    connections = sum(connection_count(weight) for value in weights if (weight := weight_of(value)) is not None)
    share = connections / max(1, sum(prod(shape_of(value)) for value in weights))
    return f"{sparse} of {len(weights)} weights sparse, {share:.3f} of the work"

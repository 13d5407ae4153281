"""Make layers that only sum, activate and renumber one graph of neurons and connections.

```mlir
%h = pebble.linear %x, %w bias %b activation <relu> : (tensor<?x2xf32>, ...) -> tensor<?x1xf32>
%y = pebble.linear %h, %v : (tensor<?x1xf32>, ...) -> tensor<?x1xf32>
// ->
%y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> ...
```

Biases and activations belong to neurons, a residual sum is connections of weight 1; concat, split, reshape and
transpose of features are renumberings. Softmax, normalisations, products of two values, foreign ops and what moves rows
cut a model into several graphs. Which ops come together: see `redpebble.passes.analysis.clusters`, here with the rows
of `NetworkRows`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, ShapedType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.weighted_graph import WeightedGraph
from ...dialect.ops.axis_maps import axis_map_of
from ...dialect.ops.constants import ConstantOp, constant_array, is_constant
from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, DivOp, MulOp, PreluOp, SubOp
from ...dialect.ops.foreign import ForeignOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import INFERRED, ConcatOp, ReshapeOp, SplitOp, TargetShapeAttr, TransposeOp, copied
from ...dialect.ops.network import NetworkOp
from ...dialect.shape_inference import argument_shapes, result_shapes
from ...dialect.symbolic_sizes import Size, SymbolicShape, product
from ...dialect.tensors import DYNAMIC, is_f32_tensor, shape_of, size_of
from ...sparse.csr import CscMatrix
from ...sparse.neuron_graph import NeuronGraph
from ..analysis.clusters import boundary_of, clusters_of
from ..analysis.dominance import moving_ops
from ..analysis.rowwise import dynamic_operands
from ..analysis.weights import weight_of
from ..rewriting.erase_unused import erase_unused
from ..rewriting.outline import computing_ops, outline

# Graph of neurons of some ops, under construction.
#
# The features of a value are either neurons or sums, which become neurons once something needs their values: an
# activation (which belongs to the neuron), a weight, more than one reader. So bias, activation and the addends of a
# residual belong to the neuron of the linear layer before them wherever nothing else reads what lies between.


Ids = NDArray[np.int64]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sums:
    """Features of `shape`; feature f is biases[f] + the sum of weights[e] * neuron sources[e] over features[e] = f."""

    shape: tuple[int, ...]
    features: Ids
    sources: Ids
    weights: Doubles
    biases: Doubles

    @staticmethod
    def copies(neurons: Ids) -> "Sums":
        """Return each neuron as a sum of one connection of weight 1."""
        count = neurons.size
        return Sums(neurons.shape, np.arange(count), neurons.reshape(-1), np.ones(count), np.zeros(count))

    def scaled(self, factors: Doubles) -> "Sums":
        """Return feature f times factors[f]."""
        return Sums(
            self.shape, self.features, self.sources, self.weights * factors[self.features], self.biases * factors
        )

    def plus(self, other: "Sums") -> "Sums":
        """Return the sums of two values of the same shape."""
        return Sums(
            self.shape,
            np.concatenate((self.features, other.features)),
            np.concatenate((self.sources, other.sources)),
            np.concatenate((self.weights, other.weights)),
            self.biases + other.biases,
        )

    def selected(self, chosen: Ids) -> "Sums":
        """Return the features `chosen`, each at most once, in the shape of `chosen`."""
        new_number = np.full(len(self.biases), -1, dtype=np.int64)
        new_number[chosen.reshape(-1)] = np.arange(chosen.size)
        stays = new_number[self.features] >= 0
        entries = new_number[self.features[stays]], self.sources[stays], self.weights[stays]
        return Sums(chosen.shape, *entries, self.biases[chosen.reshape(-1)])

    @staticmethod
    def nothing(biases: Doubles, shape: tuple[int, ...]) -> "Sums":
        """Return features without connections."""
        empty = np.zeros(0, dtype=np.int64)
        return Sums(shape, empty, empty, np.zeros(0), biases)

    def followed_by(self, other: "Sums") -> "Sums":
        """Return the features of both, one after the other along a single axis."""
        count = len(self.biases)
        return Sums(
            (count + len(other.biases),),
            np.concatenate((self.features, count + other.features)),
            np.concatenate((self.sources, other.sources)),
            np.concatenate((self.weights, other.weights)),
            np.concatenate((self.biases, other.biases)),
        )


Features = Ids | Sums
"""Features of a value of the graph: the neurons that they are, in their shape, or sums that are none yet."""


@dataclass
class NetworkBuilder:
    """Neurons and connections so far; neurons are numbered as they come, so that connections run upwards."""

    leading_axes: dict[SSAValue, int]
    """Number of first axes that are rows, by value."""
    features: dict[SSAValue, Features] = field(default_factory=dict[SSAValue, Features])
    neuron_count: int = 0
    sources: list[Ids] = field(default_factory=list[Ids])
    targets: list[Ids] = field(default_factory=list[Ids])
    weights: list[Doubles] = field(default_factory=list[Doubles])
    biases: list[Doubles] = field(default_factory=list[Doubles])
    activations: list[ActivationAttr] = field(default_factory=list[ActivationAttr])
    activation_of: list[Ids] = field(default_factory=list[Ids])

    def add_input(self, value: SSAValue) -> None:
        """Make the features of a value inputs; all inputs come before the first op."""
        self.features[value] = self._new_neurons(self._shape(value))

    def add(self, op: Operation) -> None:
        """Add what an op sums, activates or renumbers.

        Raises:
            ValueError: results of the op are no neurons.
        """
        match op:
            case LinearOp():
                self._set(op.result, self._activated(self._linear(op), op.activation))
            case ActivateOp():
                self._set(op.result, self._activated(self._sums(op.x), op.activation))
            case PreluOp():
                slope = constant_array(op.right)
                assert slope is not None
                activation = ActivationAttr("leaky_relu", (float(slope.reshape(-1)[0]),))
                self._set(op.result, self._activated(self._sums(op.left), activation))
            case BinaryOp():
                self._set(op.result, self._binary(op))
            case ReshapeOp():
                self._select(op.x, op.result, self._numbers(op.x))
            case TransposeOp():
                leading = self.leading_axes[op.x]
                order = [axis - leading for axis in op.order[leading:]]
                self._select(op.x, op.result, self._numbers(op.x).transpose(order))
            case SplitOp():
                axis = op.axis.value.data - self.leading_axes[op.x]
                ends = np.cumsum([self._shape(part)[axis] for part in op.parts])
                for part, numbers in zip(op.parts, np.split(self._numbers(op.x), ends[:-1], axis), strict=True):
                    self._select(op.x, part, numbers)
            case ConcatOp():
                self._set(op.result, self._joined(op))
            case _:
                raise ValueError(f"{op.name} is no part of a graph of neurons")

    def neurons(self, value: SSAValue) -> Ids:
        """Return the neurons that the features of a value are, making some where they are sums."""
        features = self.features[value]
        if isinstance(features, Sums):
            features = self._neurons_of(features, None)
            self.features[value] = features
        return features

    def finish(self, results: Sequence[SSAValue]) -> WeightedGraph:
        """Return the graph whose outputs are the features of `results`, without the neurons they do not need.

        A feature that is an input, or in the results already, becomes a neuron of its own: one connection of weight 1.
        """
        input_count = self.neuron_count - sum(len(biases) for biases in self.biases)
        chosen: list[Ids] = []
        for value in results:
            neurons = self.neurons(value).reshape(-1)
            earlier = np.concatenate([np.zeros(0, dtype=np.int64), *chosen])
            _, firsts = np.unique(neurons, return_index=True)
            is_first = np.zeros(len(neurons), dtype=np.bool_)
            is_first[firsts] = True
            copied = ~is_first | (neurons < input_count) | np.isin(neurons, earlier)
            own = neurons.copy()
            own[copied] = self._new_targets(Sums.copies(neurons[copied]), None)
            chosen.append(own)
        ends = _ids(self.sources), _ids(self.targets)
        network = WeightedGraph(
            NeuronGraph(self.neuron_count, *ends, np.arange(input_count), np.concatenate(chosen)),
            _doubles(self.weights),
            _doubles(self.biases),
            tuple(self.activations),
            _ids(self.activation_of),
        )
        return without_dead_neurons(network)

    def _shape(self, value: SSAValue) -> tuple[int, ...]:
        """Return the known sizes of the features' axes."""
        return shape_of(value)[self.leading_axes[value] :]

    def _numbers(self, value: SSAValue) -> Ids:
        """Return the number of each feature of a value, in its shape."""
        shape = self._shape(value)
        return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)

    def _set(self, value: SSAValue, features: Features) -> None:
        """Keep the features of a result in its own shape; what is read more than once must be neurons."""
        shape = self._shape(value)
        if isinstance(features, Sums):
            self.features[value] = Sums(shape, features.features, features.sources, features.weights, features.biases)
            if value.uses.get_length() != 1:
                self.neurons(value)
        else:
            self.features[value] = features.reshape(shape)

    def _select(self, source: SSAValue, result: SSAValue, numbers: Ids) -> None:
        features = self.features[source]
        chosen = features.selected(numbers) if isinstance(features, Sums) else features.reshape(-1)[numbers]
        self._set(result, chosen)

    def _sums(self, value: SSAValue) -> Sums:
        features = self.features[value]
        return features if isinstance(features, Sums) else Sums.copies(features)

    def _activated(self, sums: Sums, activation: ActivationAttr | None) -> Features:
        return sums if activation is None else self._neurons_of(sums, activation)

    def _linear(self, op: LinearOp) -> Sums:
        weight = weight_of(op.weight)
        assert weight is not None
        matrix = weight if isinstance(weight, CscMatrix) else CscMatrix.from_dense(weight)
        bias = constant_array(op.bias) if op.bias is not None else None
        biases = np.zeros(matrix.shape[1]) if bias is None else bias.astype(np.float64)
        stays = matrix.values != 0
        sources = self.neurons(op.x).reshape(-1)[matrix.rows[stays]]
        return Sums((matrix.shape[1],), matrix.columns[stays], sources, matrix.values[stays].astype(np.float64), biases)

    def _binary(self, op: BinaryOp) -> Sums:
        shape = self._shape(op.result)
        if isinstance(op, MulOp | DivOp):
            value, constant = (op.left, op.right) if constant_array(op.left) is None else (op.right, op.left)
            factors = self._constant(constant, op.result)
            return self._broadcast(value, shape).scaled(1.0 / factors if isinstance(op, DivOp) else factors)
        left, right = (self._addend(value, op.result) for value in (op.left, op.right))
        return left.plus(right.scaled(np.full(len(right.biases), -1.0)) if isinstance(op, SubOp) else right)

    def _addend(self, value: SSAValue, result: SSAValue) -> Sums:
        shape = self._shape(result)
        if constant_array(value) is None:
            return self._broadcast(value, shape)
        return Sums.nothing(self._constant(value, result), shape)

    def _constant(self, value: SSAValue, result: SSAValue) -> Doubles:
        """Return a constant's number for each feature of `result`."""
        array = constant_array(value)
        assert array is not None
        shape = self._shape(result)
        trailing = array.reshape(array.shape[max(0, array.ndim - len(shape)) :])
        return np.broadcast_to(trailing, shape).astype(np.float64).reshape(-1)

    def _broadcast(self, value: SSAValue, shape: tuple[int, ...]) -> Sums:
        if self._shape(value) == shape:
            return self._sums(value)
        return Sums.copies(np.broadcast_to(self.neurons(value), shape))

    def _joined(self, op: ConcatOp) -> Features:
        """Return the features of a concat: sums where all parts are, else neurons."""
        axis = op.axis.value.data - self.leading_axes[op.result]
        if not all(isinstance(self.features[part], Sums) for part in op.parts):
            return np.concatenate([self.neurons(part) for part in op.parts], axis)
        firsts: list[Ids] = []
        joined = Sums.nothing(np.zeros(0), (0,))
        for part in op.parts:
            firsts.append(len(joined.biases) + self._numbers(part))
            joined = joined.followed_by(self._sums(part))
        return joined.selected(np.concatenate(firsts, axis))

    def _neurons_of(self, sums: Sums, activation: ActivationAttr | None) -> Ids:
        """Return neurons for sums; a sum that is one neuron as it is stays that neuron."""
        count = len(sums.biases)
        result = np.full(count, -1, dtype=np.int64)
        if activation is None:
            single = np.bincount(sums.features, minlength=count)[sums.features] == 1
            plain = single & (sums.weights == 1.0) & (sums.biases[sums.features] == 0.0)
            result[sums.features[plain]] = sums.sources[plain]
        new = np.flatnonzero(result < 0)
        result[new] = self._new_targets(sums.selected(new), activation)
        return result.reshape(sums.shape)

    def _new_neurons(self, shape: tuple[int, ...]) -> Ids:
        count = int(np.prod(shape))
        self.neuron_count += count
        return np.arange(self.neuron_count - count, self.neuron_count, dtype=np.int64).reshape(shape)

    def _new_targets(self, sums: Sums, activation: ActivationAttr | None) -> Ids:
        """Make every sum a neuron; connections between the same neurons become one."""
        keys = sums.features * max(1, self.neuron_count) + sums.sources
        unique, key_of = np.unique(keys, return_inverse=True)
        features, sources = np.divmod(unique, max(1, self.neuron_count))
        neurons = self._new_neurons((len(sums.biases),))
        self.sources.append(sources)
        self.targets.append(neurons[features])
        self.weights.append(np.bincount(key_of, weights=sums.weights, minlength=len(unique)).astype(np.float64))
        self.biases.append(sums.biases)
        if activation is not None and activation not in self.activations:
            self.activations.append(activation)
        number = -1 if activation is None else self.activations.index(activation)
        self.activation_of.append(np.full(len(neurons), number, dtype=np.int64))
        return neurons


def without_dead_neurons(network: WeightedGraph) -> WeightedGraph:
    """Return the graph without the neurons from which no connection leads to an output; inputs stay."""
    graph, input_count = network.graph, network.input_count
    needed = graph.is_output.copy()
    while True:
        before = int(needed.sum())
        needed[graph.sources[needed[graph.targets]]] = True
        if int(needed.sum()) == before:
            break
    needed[:input_count] = True
    number = np.cumsum(needed) - 1
    kept, inner = needed[graph.targets], needed[input_count:]
    ends = number[graph.sources[kept]], number[graph.targets[kept]]
    return WeightedGraph(
        NeuronGraph(int(needed.sum()), *ends, graph.inputs, number[graph.outputs]),
        network.weights[kept],
        network.biases[inner],
        network.activations,
        network.activation_of[inner],
    )


def _ids(parts: list[Ids]) -> Ids:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _doubles(parts: list[Doubles]) -> NDArray[np.float32]:
    return np.concatenate([np.zeros(0), *parts]).astype(np.float32)


# Ops that only sum, activate and renumber features, so that their results are neurons of one graph.


@dataclass(frozen=True)
class NetworkRows:
    """The symbolic shapes of a function's values, and the rows of the ops that can be part of a graph."""

    shapes: dict[SSAValue, SymbolicShape]

    @staticmethod
    def of(func: FuncOp) -> "NetworkRows":
        """Return the rows of the values in the body of `func`; sizes of which nothing is known get their own names."""
        rows = NetworkRows(argument_shapes(func))
        for op in func.body.block.ops:
            rows.shapes.update(rows.shapes_of_results(op))
        return rows

    def shapes_of_results(self, op: Operation) -> dict[SSAValue, SymbolicShape]:
        """Return the shapes of an op's results that are tensors."""
        tensors = [result for result in op.results if isinstance(result.type, ShapedType)]
        if not isinstance(op, ForeignOp):
            # a sum of sizes has no name, as in a concat along the batch
            with suppress(VerifyException):
                return dict(zip(tensors, result_shapes(op, self.shapes), strict=True))
        return {result: _own_sizes(result, f"%{len(self.shapes)}.{index}") for index, result in enumerate(tensors)}

    def leading_axes(self, value: SSAValue, rows: Size) -> int | None:
        """Return how many first axes of a value make `rows`, the others having known sizes; None where none do."""
        shape = self.shapes[value]
        for axes in range(len(shape)):
            if product(shape[:axes]) == rows and DYNAMIC not in shape_of(value)[axes:]:
                return axes
        return None

    def of_ops(self, ops: list[Operation]) -> dict[Operation, Size]:
        """Return the rows of each op that can be part of a graph; `ops` stand in block order."""
        known: dict[Operation, Size] = {}
        for op in ops:
            operands = dynamic_operands(op)
            # inputs that are ids have a shape but no features, and what a foreign op yields may have neither
            values = (*operands, *op.results)
            if not operands or any(value not in self.shapes or not is_f32_tensor(value.type) for value in values):
                continue
            # movement continues the graph that its operand is in, whatever the last axis of its result is
            producers = [
                known[operand.owner]
                for operand in operands
                if isinstance(operand.owner, Operation) and operand.owner in known
            ]
            own = [product(self.shapes[operands[0]][:-1])]
            candidates = own if isinstance(op, LinearOp) else [*producers, *own]
            fitting = [rows for rows in candidates if self._fits(op, rows)]
            if fitting:
                known[op] = fitting[0]
        return known

    def _fits(self, op: Operation, rows: Size) -> bool:
        """Return whether an op only sums, activates and renumbers the features of `rows` rows."""
        axes = [self.leading_axes(value, rows) for value in (*dynamic_operands(op), *op.results)]
        known = [count for count in axes if count is not None]
        if len(known) < len(axes):
            return False
        same = self._same_axes(op, known)
        if isinstance(op, ReshapeOp):
            unknown = [
                shape_of(value)[:count].count(DYNAMIC) for value, count in zip((op.x, op.result), known, strict=True)
            ]
            # the way back from other leading axes is a reshape, too, which can infer only one of them
            return same or max(unknown) <= 1
        return same and _keeps_rows(op, known[0]) and _is_affine(op, known[0])

    def _same_axes(self, op: Operation, axes: list[int]) -> bool:
        """Return whether all operands and results, constants left out, have the same leading axes."""
        values = (*dynamic_operands(op), *op.results)
        leading = [
            (self.shapes[value][:count], shape_of(value)[:count]) for value, count in zip(values, axes, strict=True)
        ]
        return all(shape == leading[0] for shape in leading)


def _own_sizes(value: SSAValue, name: str) -> SymbolicShape:
    """Return the shape of a value, its unknown sizes called after `name`."""
    return tuple(
        Size.symbol(f"{name}.{axis}") if size == DYNAMIC else Size.known(size)
        for axis, size in enumerate(shape_of(value))
    )


def _keeps_rows(op: Operation, leading_axes: int) -> bool:
    """Return whether the first axes of the operands are those of the results, and what has no such axes is constant."""
    axis_map = axis_map_of(op)
    if axis_map is None:
        return False
    rows = axis_map.results[0][:leading_axes]
    for index, (value, axes) in enumerate(zip(op.operands, axis_map.operands, strict=True)):
        if is_constant(value):
            if axis_map.join is not None:
                return False
        elif index in axis_map.parameters or axes[:leading_axes] != rows:
            return False
    return all(axes[:leading_axes] == rows for axes in axis_map.results)


def _is_affine(op: Operation, leading_axes: int) -> bool:
    """Return whether an op sums its operands' features, each times a number, moves them or applies an activation."""
    match op:
        case BinaryOp():
            return _is_affine_binary(op, leading_axes)
        case LinearOp(times=None) | ActivateOp() | ConcatOp() | SplitOp() | TransposeOp():
            return True
        case _:
            return False


def _is_affine_binary(op: BinaryOp, leading_axes: int) -> bool:
    """Return whether the result is a sum of the operands' features, each times a number that is finite."""
    constants = [value.owner.array for value in op.operands if isinstance(value.owner, ConstantOp)]
    rank = len(shape_of(op.result))
    for array in constants:
        padded = (1,) * (rank - array.ndim) + array.shape
        if array.ndim > rank or any(size != 1 for size in padded[:leading_axes]) or not np.all(np.isfinite(array)):
            return False
    match op:
        case AddOp() | SubOp():
            return True
        case MulOp():
            return len(constants) == 1
        case DivOp():
            return is_constant(op.right) and not is_constant(op.left) and _divides(constants[0])
        case PreluOp():
            return is_constant(op.right) and not is_constant(op.left) and constants[0].size == 1
        case _:
            return False


def _divides(array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bool:
    """Return whether the reciprocals of a constant are finite in single precision."""
    with np.errstate(all="ignore"):
        return bool(np.all(np.isfinite(np.float32(1.0) / array)))


@dataclass(frozen=True)
class FlattenNetwork(ModulePass):
    """Replace connected layers by `pebble.network`."""

    name = "pebble-flatten-network"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with moving_ops(self.name, op) as functions:
            for func in functions:
                _flatten(func)
            erase_unused(op.body)


def _flatten(func: FuncOp) -> None:
    ops, rows = computing_ops(func.body.block), NetworkRows.of(func)
    known = rows.of_ops(ops)

    def network(members: Sequence[Operation]) -> list[Operation] | None:
        has_layers = any(isinstance(op, LinearOp) for op in members)
        return _Region(rows, known[members[0]], members).build() if has_layers else None

    outline(func.body.block, clusters_of(ops, known), network)


@dataclass(frozen=True)
class _Region:
    """Ops in block order that become one graph, and the rows of all their values."""

    rows: NetworkRows
    count: Size
    ops: Sequence[Operation]

    def build(self) -> list[Operation]:
        """Return the network and reshapes around it; users of what the ops computed now read what it computes."""
        inputs, results = boundary_of(self.ops)
        produced = [result for op in self.ops for result in op.results]
        builder = NetworkBuilder({value: self._axes(value) for value in (*inputs, *produced)})
        for value in inputs:
            builder.add_input(value)
        for op in self.ops:
            builder.add(op)
        before = [self._with_rank_of(inputs[0], value) for value in inputs]
        flat = [value if reshape is None else reshape.result for value, reshape in zip(inputs, before, strict=True)]
        network = NetworkOp(flat, builder.finish(results), [self._feature_count(value) for value in results])
        after: list[Operation] = []
        for old, new in zip(results, network.outputs, strict=True):
            new.name_hint = old.name_hint
            after += self._replace(old, new)
        return [*(reshape for reshape in before if reshape is not None), network, *after]

    def _axes(self, value: SSAValue) -> int:
        axes = self.rows.leading_axes(value, self.count)
        assert axes is not None
        return axes

    def _feature_count(self, value: SSAValue) -> int:
        return size_of(shape_of(value)[self._axes(value) :])

    def _with_rank_of(self, first: SSAValue, value: SSAValue) -> ReshapeOp | None:
        """Return the reshape of an input to one axis of features behind the leading axes of `first`, if any."""
        leading, own = shape_of(first)[: self._axes(first)], shape_of(value)[: self._axes(value)]
        features = self._feature_count(value)
        if shape_of(value) == (*leading, features):
            return None
        entries = [copied(axis) for axis in range(len(own))] if own == leading else _inferred(leading)
        return ReshapeOp(value, TargetShapeAttr([*entries, features]))

    def _replace(self, old: SSAValue, new: SSAValue) -> list[Operation]:
        """Let users of `old` read `new`, reshaped where the shapes differ; return the reshape."""
        if new.type == old.type:
            self.rows.shapes[new] = self.rows.shapes[old]
            old.replace_all_uses_with(new)
            return []
        axes, shape = self._axes(old), shape_of(old)
        same = shape[:axes] == shape_of(new)[:-1]
        entries = [copied(axis) for axis in range(axes)] if same else _inferred(shape[:axes])
        reshape = ReshapeOp(new, TargetShapeAttr([*entries, *shape[axes:]]))
        value = Rewriter.replace_value_with_new_type(reshape.result, old.type)
        self.rows.shapes[value] = self.rows.shapes[old]
        old.replace_all_uses_with(value)
        return [reshape]


def _inferred(leading: tuple[int, ...]) -> list[int]:
    """Return leading axes as entries of a reshape target, in which one of unknown size follows from the others."""
    return [INFERRED if size == DYNAMIC else size for size in leading]

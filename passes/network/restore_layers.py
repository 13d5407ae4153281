"""Make a graph of neurons layers again: neurons of one depth and one activation are a linear layer.

```mlir
%y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> ...
// ->
%h = pebble.linear %x, %w bias %b activation <relu> : (tensor<?x2xf32>, ...) -> tensor<?x1xf32>
%y = pebble.linear %h, %v bias %c : (tensor<?x1xf32>, ...) -> tensor<?x1xf32>
```

The way back of `pebble-flatten-network`. A layer reads a concat of the layers that its sources are in. A result is a
layer as it is, or reads a concat of those that its neurons are in, through connections of weight 1.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.weighted_graph import WeightedGraph
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.movement import ConcatOp
from redpebble.dialect.ops.network import NetworkOp
from redpebble.dialect.tensors import shape_of
from redpebble.sparse.csr import CscMatrix

Ids = NDArray[np.int64]


class RestoreLayers(ModulePass):
    """Replace every `pebble.network` by layers, whatever its order."""

    name = "pebble-restore-layers"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for network in [found for found in op.walk() if isinstance(found, NetworkOp)]:
            layers = _Layers(network.weighted_graph)
            results = layers.build(network)
            block = network.parent_block()
            assert block is not None
            block.insert_ops_before(layers.ops, network)
            for old, new in zip(network.outputs, results, strict=True):
                new.name_hint = old.name_hint
                old.replace_all_uses_with(new)
            block.erase_op(network)


class _Group(NamedTuple):
    """A value whose features are neurons."""

    value: SSAValue
    neurons: Ids


class _Connections(NamedTuple):
    """Into some neurons, which are numbered from 0 in their order."""

    sources: Ids
    targets: Ids
    weights: NDArray[np.float32]


@dataclass
class _Layers:
    """The layers so far."""

    network: WeightedGraph
    groups: list[_Group] = field(default_factory=list[_Group])
    ops: list[Operation] = field(default_factory=list[Operation])

    def build(self, op: NetworkOp) -> list[SSAValue]:
        """Append all layers; return a value for each result of `op`."""
        first = 0
        for value in op.inputs:
            width = shape_of(value)[-1]
            self.groups.append(_Group(value, np.arange(first, first + width)))
            first += width
        graph, input_count = self.network.graph, self.network.input_count
        kinds = np.stack((graph.depths[input_count:], self.network.activation_of))
        pairs: list[tuple[int, int]] = np.unique(kinds, axis=1).T.tolist()
        for depth, number in pairs:
            neurons = np.flatnonzero((kinds[0] == depth) & (kinds[1] == number)) + input_count
            activation = None if number < 0 else self.network.activations[number]
            self.groups.append(_Group(self._layer(neurons, activation), neurons))
        ends = np.cumsum([shape_of(value)[-1] for value in op.outputs])
        return [self._gathered(part) for part in np.split(graph.outputs, ends[:-1])]

    def _layer(self, neurons: Ids, activation: ActivationAttr | None) -> SSAValue:
        place = np.full(self.network.graph.neuron_count, -1, dtype=np.int64)
        place[neurons] = np.arange(len(neurons))
        graph = self.network.graph
        into = np.flatnonzero(place[graph.targets] >= 0)
        connections = _Connections(graph.sources[into], place[graph.targets[into]], self.network.weights[into])
        bias = ConstantOp(self.network.biases[neurons - self.network.input_count])
        self.ops.append(bias)
        return self._linear(connections, bias.result, activation)

    def _gathered(self, neurons: Ids) -> SSAValue:
        """Return a value whose features are these neurons."""
        for group in self.groups:
            if np.array_equal(group.neurons, neurons):
                return group.value
        count = len(neurons)
        connections = _Connections(neurons, np.arange(count), np.ones(count, dtype=np.float32))
        bias = ConstantOp(np.zeros(count, dtype=np.float32))
        self.ops.append(bias)
        return self._linear(connections, bias.result, None)

    def _linear(self, connections: _Connections, bias: SSAValue, activation: ActivationAttr | None) -> SSAValue:
        x, neurons = self._sources(np.unique(connections.sources))
        row = np.full(self.network.graph.neuron_count, -1, dtype=np.int64)
        row[neurons] = np.arange(len(neurons))
        rows, outputs = row[connections.sources], shape_of(bias)[0]
        by_column = np.lexsort((rows, connections.targets))
        pointers = np.zeros(outputs + 1, dtype=np.int64)
        np.cumsum(np.bincount(connections.targets, minlength=outputs), out=pointers[1:])
        shape = (len(neurons), outputs)
        weight = SparseConstantOp(CscMatrix(shape, pointers, rows[by_column], connections.weights[by_column]))
        linear = LinearOp(x, weight.result, bias, activation)
        self.ops += [weight, linear]
        return linear.result

    def _sources(self, needed: Ids) -> tuple[SSAValue, Ids]:
        """Return a value with the groups that `needed` neurons are in, and its neurons; the first group for none."""
        groups = [group for group in self.groups if np.isin(group.neurons, needed).any()] or self.groups[:1]
        if len(groups) == 1:
            return groups[0].value, groups[0].neurons
        values = [group.value for group in groups]
        concat = ConcatOp(values, len(shape_of(values[0])) - 1)
        self.ops.append(concat)
        return concat.result, np.concatenate([group.neurons for group in groups])

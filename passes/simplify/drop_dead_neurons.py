"""Drop neurons that no connection leaves or enters.

```mlir
%h = pebble.linear %x, %w bias %b activation <relu> : (tensor<?x4xf32>, tensor<4x3xf32>, ...) -> tensor<?x3xf32>
%y = pebble.linear %h, %v bias %c : (tensor<?x3xf32>, tensor<3x2xf32>, ...) -> tensor<?x2xf32>
// -> row 0 of %v and column 1 of %w are zero
%h = pebble.linear %x, %w_2 bias %b_2 activation <relu> : (tensor<?x4xf32>, tensor<4x1xf32>, ...) -> tensor<?x1xf32>
%y = pebble.linear %h, %v_2 bias %c_plus_constant : (tensor<?x1xf32>, tensor<1x2xf32>, ...) -> tensor<?x2xf32>
```

A neuron without outgoing connections in any layer that reads it is dropped. A neuron without incoming ones is the
constant activation(bias): it is added to the biases of its readers, then dropped. Elementwise ops with constants may
stand between. Dropping may leave other neurons dead, so this is repeated until nothing changes. At least one neuron
stays in a layer. A neuron that touches NaN or inf stays, and so do the model's inputs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from ...dialect.attributes.activations import activate
from ...dialect.ops.layers import LinearOp
from ...dialect.semantics.interpreter import evaluate
from ..analysis.weights import Doubles, Mask, has_incoming, has_outgoing, product_with, without_inputs
from ..rewriting.erase_unused import erase_unused
from ..rewriting.neuron_edits import (
    Neurons,
    finite_neurons,
    keep_neurons,
    layers_with_neurons,
    neurons_of,
)
from ..rewriting.parameters import bias_of, set_bias, set_weight, weight_of_linear


class DropDeadNeurons(ModulePass):
    """Drop neurons without outgoing or incoming connections."""

    name = "pebble-drop-dead-neurons"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        layers = layers_with_neurons(op)
        # neurons without readers die from the last layer to the first, constants the other way round: each sweep in its
        # direction finishes a chain of layers, so two or three rounds do for most models
        changed = True
        while changed:
            dropped = sum(_drop_dead(layer) for layer in reversed(layers))
            changed = dropped + sum(_drop_dead(layer) for layer in layers) > 0
        erase_unused(op.body)


def _drop_dead(layer: LinearOp) -> bool:
    """Drop the dead neurons of one layer; return whether there were any."""
    neurons = neurons_of(layer)
    if neurons is None:
        return False
    unread = ~np.logical_or.reduce([has_outgoing(weight_of_linear(reader)) for reader in neurons.readers])
    constant = ~has_incoming(weight_of_linear(layer)) & ~unread
    if not (unread | constant).any():
        return False
    finite = finite_neurons(neurons)
    dropped = (unread | constant) & finite
    if dropped.all() and len(dropped):
        dropped[0] = False
    if not dropped.any():
        return False
    biases = _biases_with_constants(neurons, constant & dropped)
    if not all(np.isfinite(bias.astype(np.float32)).all() for bias in biases):
        return False
    _drop(neurons, dropped, biases)
    return True


def _drop(neurons: Neurons, dropped: Mask, biases: list[Doubles]) -> None:
    kept = np.flatnonzero(~dropped)
    keep_neurons(neurons, kept)
    for reader, bias in zip(neurons.readers, biases, strict=True):
        set_weight(reader, without_inputs(weight_of_linear(reader), kept))
        if not np.array_equal(bias, bias_of(reader)):
            set_bias(reader, bias)


def _biases_with_constants(neurons: Neurons, constant: Mask) -> list[Doubles]:
    """Return the readers' biases after the neurons in `constant` were added to them."""
    values = _values_without_input(neurons)
    biases: list[Doubles] = []
    for reader in neurons.readers:
        row = np.where(constant, values[reader.x], 0.0)
        with np.errstate(all="ignore"):
            biases.append(bias_of(reader) + product_with(row, weight_of_linear(reader)))
    return biases


def _values_without_input(neurons: Neurons) -> dict[SSAValue, NDArray[Any]]:
    """Return what every value between the layer and its readers holds [neurons] when all inputs are zero."""
    layer = neurons.layer
    bias = bias_of(layer)
    values: dict[SSAValue, NDArray[Any]] = {
        layer.result: bias if layer.activation is None else np.asarray(activate(layer.activation, bias))
    }
    for step in neurons.steps:
        operands = tuple(
            values[operand] if step.entries is None or operand is step.source else step.entries.astype(np.float64)
            for operand in step.op.operands
        )
        (values[step.op.result],) = evaluate(step.op, operands, np.float64)
    return values

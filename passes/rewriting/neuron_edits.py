"""The neurons between a linear layer and the linear layers that read it, and how some of them are taken out.

A neuron is a column of the layer's weight, an entry of its bias and of the constants behind it, and a row of its
readers' weights. Only neurons that nothing but linear layers reads can be taken out: what is returned, added to another
value, normalised or reshaped has a width that somebody relies on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.constants import ConstantOp
from ...dialect.ops.elementwise import ActivateOp, BinaryOp, DivOp
from ...dialect.ops.layers import LinearOp
from ...dialect.tensors import f32_tensor, shape_of
from ..analysis.finiteness import has_nonfinite_parameter, nonfinite_values
from ..analysis.per_feature_constants import featurewise_operands
from ..analysis.weights import Floats, Indices, Mask, finite_inputs, finite_outputs, without_outputs
from .parameters import (
    bias_of,
    has_constant_parameters,
    place_constant,
    set_bias,
    set_weight,
    weight_of_linear,
)

PARTIAL: Final = frozenset({"log", "reciprocal", "sqrt"})
"""Activations that make NaN or inf of finite values, which a connection of weight 0 passes on: 0 * NaN is NaN."""


@dataclass(frozen=True)
class Step:
    """An elementwise op between a layer and its readers."""

    op: ActivateOp | BinaryOp
    source: SSAValue
    """The operand that holds the neurons."""
    constant: SSAValue | None
    entries: Floats | None
    """[neurons] or [1] where the op has a constant."""


@dataclass(frozen=True)
class Neurons:
    """The outputs of a linear layer, the elementwise ops behind it, sources first, and the layers that read them."""

    layer: LinearOp
    steps: tuple[Step, ...]
    readers: tuple[LinearOp, ...]

    @property
    def count(self) -> int:
        """The number of neurons."""
        return shape_of(self.layer.result)[-1]


def layers_with_neurons(module: ModuleOp) -> list[LinearOp]:
    """Return the linear layers, in block order, that read finite values when the model's inputs are finite."""
    nonfinite = nonfinite_values(module)
    return [op for op in module.walk() if isinstance(op, LinearOp) and op.x not in nonfinite]


def neurons_of(layer: LinearOp) -> Neurons | None:
    """Return the neurons of a layer, or None where something relies on all of them or parameters are no constants."""
    if not has_constant_parameters(layer) or is_partial(layer.activation):
        return None
    steps: list[Step] = []
    readers: list[LinearOp] = []
    for reader in _readers(layer.result, steps):
        if reader is None:
            return None
        if reader not in readers:
            readers.append(reader)
    return Neurons(layer, tuple(steps), tuple(readers)) if readers else None


def _readers(value: SSAValue, steps: list[Step]) -> Iterator[LinearOp | None]:
    """Yield the layers that read `value` through elementwise ops, which it adds to `steps`; None for other readers."""
    # not by recursion: there may be thousands of ops one behind the other
    pending = [(value, iter(list(value.uses)))]
    while pending:
        read, uses = pending[-1]
        use = next(uses, None)
        if use is None:
            pending.pop()
            continue
        reader = use.operation
        step = _step(reader, read)
        if step is not None:
            steps.append(step)
            pending.append((step.op.result, iter(list(step.op.result.uses))))
        elif isinstance(reader, LinearOp) and use.index == 0 and has_constant_parameters(reader):
            yield reader
        else:
            yield None


def _step(op: Operation, value: SSAValue) -> Step | None:
    if isinstance(op, ActivateOp) and not is_partial(op.activation):
        return Step(op, value, None, None)
    operands = featurewise_operands(op) if isinstance(op, BinaryOp) else None
    if operands is None or not isinstance(op, BinaryOp) or operands.value is not value:
        return None
    if isinstance(op, DivOp) and operands.constant is op.left:
        return None
    return Step(op, value, operands.constant, operands.entries)


def is_partial(activation: ActivationAttr | None) -> bool:
    """Return whether an activation may make NaN or inf of finite values."""
    return activation is not None and (activation.kind.data in PARTIAL or has_nonfinite_parameter(activation))


def finite_neurons(neurons: Neurons) -> Mask:
    """Return for each neuron whether all constants that it touches are finite (and no divisor is 0), [neurons]."""
    finite = finite_outputs(weight_of_linear(neurons.layer)) & np.isfinite(bias_of(neurons.layer))
    for step in neurons.steps:
        if step.entries is not None:
            finite &= np.isfinite(step.entries)
            if isinstance(step.op, DivOp):
                finite &= step.entries != 0.0
    for reader in neurons.readers:
        finite &= finite_inputs(weight_of_linear(reader))
    return finite


def keep_neurons(neurons: Neurons, kept: Indices) -> None:
    """Take all neurons but `kept` (ascending) out of layer and steps; the caller changes the readers' weights."""
    layer = neurons.layer
    bias = bias_of(layer)[kept]
    set_weight(layer, without_outputs(weight_of_linear(layer), kept))
    set_bias(layer, bias)
    _retype(layer.result, len(kept))
    for step in neurons.steps:
        if step.constant is not None and step.entries is not None and len(step.entries) > 1:
            constant = ConstantOp(np.ascontiguousarray(step.entries[kept]))
            index = 0 if step.op.operands[0] is step.constant else 1
            step.op.operands[index] = place_constant(constant, step.op, step.constant)
        _retype(step.op.result, len(kept))


def _retype(value: SSAValue, features: int) -> None:
    Rewriter.replace_value_with_new_type(value, f32_tensor((*shape_of(value)[:-1], features)))

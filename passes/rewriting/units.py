"""Units: what a layer makes many of, and all that holds numbers for each of them.

| of       | a unit is | columns of | numbers for each                                | rows that read it |
|----------|-----------|------------|-------------------------------------------------|-------------------|
| `linear` | a neuron  | its weight | bias, multiplier of sums, constants of ops behind | 1                 |
| `conv2d` | a channel | its weight | bias, multiplier, depthwise windows behind      | taps of a window  |

Only units that nothing but layers of the same kind reads can be taken out or moved: what is returned, added to another
value, normalised or reshaped has a width that somebody relies on. Codes are integers of eight bits that stand for
values, scale * (code - zero): between layers on codes all of it is exact. A neuron without incoming connections has one
code, whose products are integers that join the biases of the next layer. It stays behind an activation other than relu,
whose values are rounded before they become codes, and where biases or weights would be greater than such layers may
have.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.attributes.activations import ActivationAttr, activate
from ...dialect.attributes.codes import code_tensor, codes_in
from ...dialect.ops.constants import ConstantOp, constant_array, is_constant
from ...dialect.ops.elementwise import ActivateOp, BinaryOp, DivOp
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, Resample2dOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.quantized_layers import GREATEST_BIAS, GREATEST_WEIGHT
from ...dialect.semantics.interpreter import evaluate
from ...dialect.tensors import f32_tensor, shape_of
from ..analysis.finiteness import is_partial, nonfinite_values
from ..analysis.per_feature_constants import featurewise_operands
from ..analysis.weights import (
    Doubles,
    Indices,
    Mask,
    Weight,
    constant_for,
    finite_inputs,
    finite_outputs,
    inputs_at,
    outputs_at,
    product_with,
    weight_of,
)
from .parameters import place_constant, set_bias

GREATEST_FLOAT: Final = float(np.finfo(np.float32).max)

Layered = LinearOp | Conv2dOp
Step = ActivateOp | BinaryOp | Depthwise2dOp | Pool2dOp | Resample2dOp
"""An op that keeps units apart."""

STEPS: Final = {LinearOp: (ActivateOp, BinaryOp), Conv2dOp: (ActivateOp, Depthwise2dOp, Pool2dOp, Resample2dOp)}
"""Steps that may stand behind a layer; a binary op has constants along the last axis, where no channels are."""


class Layer(NamedTuple):
    """A layer with a weight [units it reads * taps, units it makes]."""

    op: Layered

    @property
    def on_codes(self) -> bool:
        """Whether weight and bias are integers."""
        return self.op.times is not None

    @property
    def is_known(self) -> bool:
        """Whether weight and bias are constants."""
        return weight_of(self.op.weight) is not None and (self.op.bias is None or is_constant(self.op.bias))

    @property
    def weight(self) -> Weight:
        """The weight.

        Raises:
            ValueError: it is no constant.
        """
        weight = weight_of(self.op.weight)
        if weight is None:
            raise ValueError("the weight is no constant")
        return weight

    @property
    def bias(self) -> Doubles:
        """The bias [units], zeros where there is none."""
        if self.op.bias is None:
            return np.zeros(self.weight.shape[1])
        return _array(self.op.bias).astype(np.float64)

    @property
    def taps(self) -> int:
        """The rows of the weight for each unit that the layer reads."""
        return len(self.op.window.taps) if isinstance(self.op, Conv2dOp) else 1

    def rows(self, units: Indices) -> Indices:
        """Return the rows of the weight for some units that the layer reads."""
        return (units[:, None] * self.taps + np.arange(self.taps)).reshape(-1)

    def by_unit(self, rows: Mask) -> Mask:
        """Return what holds for rows of the weight as [units, taps]."""
        return rows.reshape(-1, self.taps)

    def with_values(self, values: Doubles) -> Doubles:
        """Return the bias after it took what units that always have these values [units] add."""
        with np.errstate(all="ignore"):
            return np.asarray(self.bias + product_with(np.repeat(values, self.taps), self.weight))

    def holds_bias(self, bias: Doubles) -> bool:
        """Return whether the layer may have a bias."""
        greatest = GREATEST_BIAS if self.on_codes else GREATEST_FLOAT
        return bool((np.abs(bias) <= greatest).all())

    def excess(self, entries: NDArray[np.float32]) -> int:
        """Return how many entries of a weight are greater than the layer may have, or no numbers."""
        greatest = GREATEST_WEIGHT if self.on_codes else GREATEST_FLOAT
        return int(np.count_nonzero(~(np.abs(entries) <= greatest)))

    def set_weight(self, weight: Weight) -> None:
        """Let the layer use a weight; its result keeps its type."""
        self.op.operands[1] = place_constant(constant_for(weight), self.op, self.op.weight)

    def set_bias(self, bias: Doubles) -> None:
        """Let the layer add `bias` [units], rounded to single precision."""
        set_bias(self.op, bias)


@dataclass(frozen=True)
class Constant:
    """An operand with numbers for each unit, or one for all, along the last axis of `array`."""

    op: Operation
    operand: int
    array: NDArray[np.float32]


@dataclass(frozen=True)
class Units:
    """The units of a layer, the ops that they go through, sources first, and the layers that read them, as they are."""

    layer: Layer
    steps: tuple[Step, ...]
    constants: tuple[Constant, ...]
    """Constants of the steps, and of the layer beside weight and bias."""
    readers: tuple[Layer, ...]

    @property
    def count(self) -> int:
        """The number of units."""
        return self.layer.weight.shape[1]

    @property
    def numbers(self) -> list[NDArray[np.float32]]:
        """The numbers that tell units apart beside their columns: rows [units]."""
        rows = [self.layer.bias.astype(np.float32)]
        for constant in self.constants:
            if constant.array.shape[-1] > 1 or self.count == 1:
                rows.extend(constant.array.reshape(-1, self.count))
        return rows

    def finite(self) -> Mask:
        """Return for each unit whether all constants that it touches are finite, and no divisor is 0, [units]."""
        finite = finite_outputs(self.layer.weight) & np.isfinite(self.layer.bias)
        for constant in self.constants:
            rows = constant.array.reshape(-1, constant.array.shape[-1])
            finite &= np.isfinite(rows).all(axis=0)
            if isinstance(constant.op, DivOp):
                finite &= (rows != 0.0).all(axis=0)
        for step in self.steps:
            if isinstance(step, Resample2dOp):
                finite &= np.isfinite(step.fill.value.data)
        for reader in self.readers:
            finite &= reader.by_unit(finite_inputs(reader.weight)).all(axis=1)
        return finite

    def values_without_input(self) -> list[Doubles]:
        """Return what each reader gets of each unit [units] that no connection enters, NaN where that may vary."""
        op = self.layer.op
        if op.times is not None:
            codes, bias = codes_in(op.result.type), self.layer.bias.astype(np.float32)
            values = np.full(self.count, np.nan)
            # values of other activations, and floats, are rounded
            if codes is not None and op.on_codes.rounds_sums:
                values = op.on_codes.results(bias, _array(op.times), codes).astype(np.float64)
            # the largest of equal codes is that code
            return [_read(reader.op, values) for reader in self.readers]
        held: dict[SSAValue, Doubles] = {op.result: _activated(op.activation, self.layer.bias)}
        for step in self.steps:
            held[step.results[0]] = _behind(step, held)
        return [_read(reader.op, held[reader.op.operands[0]]) for reader in self.readers]

    def take(self, which: Indices, weights: list[Weight] | None = None) -> None:
        """Let unit i become unit `which[i]`; the readers get their rows of these, or `weights` instead."""
        layer = self.layer
        bias = layer.bias[which]
        layer.set_weight(outputs_at(layer.weight, which))
        # a bias of zeros is dropped, and moves the operands behind it
        for constant in self.constants:
            if constant.array.shape[-1] > 1:
                _place(constant.op, constant.operand, np.ascontiguousarray(constant.array[..., which]))
        if layer.op.bias is not None:
            layer.set_bias(bias)
        axis = 1 if isinstance(layer.op, Conv2dOp) else -1
        for op in (layer.op, *self.steps):
            shape, codes = [*shape_of(op.results[0])], codes_in(op.results[0].type)
            shape[axis] = len(which)
            made = f32_tensor(shape) if codes is None else code_tensor(codes, shape)
            Rewriter.replace_value_with_new_type(op.results[0], made)
        for index, reader in enumerate(self.readers):
            reader.set_weight(inputs_at(reader.weight, reader.rows(which)) if weights is None else weights[index])


def layers_with_units(module: ModuleOp) -> list[Layer]:
    """Return the layers, in block order, that read finite values when the model's inputs are finite."""
    nonfinite = nonfinite_values(module)
    return [Layer(op) for op in module.walk() if isinstance(op, LinearOp | Conv2dOp) and op.x not in nonfinite]


def units_of(layer: Layer) -> Units | None:
    """Return the units of a layer, or None where something relies on all of them or parameters are no constants."""
    op = layer.op
    if not layer.is_known or is_partial(op.activation) or (isinstance(op, Conv2dOp) and op.residual is not None):
        return None
    steps: list[Step] = []
    constants = [*constants_of_layer(layer)]
    readers: list[Layer] = []
    pending: list[SSAValue] = [op.result]
    while pending:
        value = pending.pop()
        for use in value.uses:
            reader = use.operation
            if isinstance(reader, type(op)) and use.index == 0 and Layer(reader).is_known:
                readers.append(Layer(reader))
                continue
            found = _constants(reader, value) if isinstance(reader, STEPS[type(op)]) else None
            if found is None:
                return None
            steps.append(cast("Step", reader))
            constants += found
            pending.append(reader.results[0])
    return Units(layer, tuple(steps), tuple(constants), tuple(readers)) if readers else None


def constants_of_layer(layer: Layer) -> tuple[Constant, ...]:
    """Return the constants of a layer beside weight and bias."""
    op = layer.op
    return (Constant(op, len(op.operands) - 1, _array(op.times)),) if op.times is not None else ()


def _constants(step: Operation, value: SSAValue) -> list[Constant] | None:
    """Return the constants of a step that units go through as `value`, or None where it is no such step."""
    match step:
        case ActivateOp():
            return None if is_partial(step.activation) else []
        case BinaryOp():
            found = featurewise_operands(step)
            if found is None or found.value is not value:
                return None
            index = 0 if found.constant is step.left else 1
            return None if isinstance(step, DivOp) and index == 0 else [Constant(step, index, found.entries)]
        case Depthwise2dOp() if value is not step.x or is_partial(step.activation):
            return None
        case Depthwise2dOp():
            operands = step.operands[1:]
            known = all(map(is_constant, operands))
            return [Constant(step, 1 + at, _array(one)) for at, one in enumerate(operands)] if known else None
        case _:
            return []


def _behind(step: Step, held: dict[SSAValue, Doubles]) -> Doubles:
    """Return what units hold behind a step; windows may read pads beside a value that is not 0."""
    if isinstance(step, BinaryOp | ActivateOp):
        operands = [held[one] if one in held else _entries(one) for one in step.operands]
        return np.asarray(evaluate(step, tuple(operands), np.float64)[0])
    values = held[step.operands[0]]
    stays = values == 0
    if isinstance(step, Depthwise2dOp):
        stays &= _activated(step.activation, np.zeros(1) if step.bias is None else _entries(step.bias)) == 0
    if isinstance(step, Resample2dOp):
        stays &= step.fill.value.data == 0
    return np.where(stays, 0.0, np.nan)


def _read(reader: Layered, values: Doubles) -> Doubles:
    """Return what a reader gets of values: its pads are zeros."""
    has_pads = isinstance(reader, Conv2dOp) and any(reader.window.pad_sizes)
    return np.where(values == 0, values, np.nan) if has_pads else values


def _activated(activation: ActivationAttr | None, values: Doubles) -> Doubles:
    return np.asarray(values if activation is None else activate(activation, values), np.float64)


def _entries(value: SSAValue) -> Doubles:
    return _array(value).reshape(-1).astype(np.float64)


def _array(value: SSAValue) -> NDArray[np.float32]:
    array = constant_array(value)
    assert array is not None
    return array.astype(np.float32, copy=False)


def _place(op: Operation, index: int, array: NDArray[np.float32]) -> None:
    op.operands[index] = place_constant(ConstantOp(array), op, op.operands[index])

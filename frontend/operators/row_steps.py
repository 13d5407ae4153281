"""Steps that change values one by one: products with numbers, and roundings to codes.

```
scaled  = Mul(x, number)                                     or Div by one
rounded = DequantizeLinear(QuantizeLinear(x, s, z), s, z)
```

They may be taken before what moves values, or behind it.
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from xdsl.ir import SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.elementwise import ActivateOp, MulOp
from ..folding.known_sizes import is_known
from .conversion import Conversion
from .patterns import Match, Once, Pattern, is_read
from .quantized_operands import codes_attribute, made_by, output_kind

MOST_STEPS: Final = 8
"""Operators one behind the other that a scale is computed by: each may read two others."""


class Scaled(NamedTuple):
    """A value times a number, and the node that says so."""

    node: onnx_ir.Node
    before: onnx_ir.Value
    factor: float


class Rounded(NamedTuple):
    """A value that is rounded to codes, and the nodes that do so: the last one first."""

    before: onnx_ir.Value
    rounding: ActivationAttr
    nodes: tuple[onnx_ir.Node, onnx_ir.Node]


class RowSteps(NamedTuple):
    """A value, what is done to it one after the other, and a number that it is multiplied with in the end."""

    value: onnx_ir.Value
    steps: tuple[ActivationAttr | float, ...] = ()
    factor: float = 1.0

    @staticmethod
    def of(conversion: Conversion, value: onnx_ir.Value) -> "RowSteps":
        """Return the steps behind which a value is what it is."""
        steps: list[ActivationAttr | float] = []
        factor = 1.0
        while True:
            if (rounding := rounded(conversion, value)) is not None:
                steps.append(rounding.rounding)
                value = rounding.before
            elif (product := scaled(conversion, value)) is None:
                return RowSteps(value, tuple(reversed(steps)), factor)
            else:
                value = product.before
                if steps:
                    steps.append(product.factor)
                else:
                    factor *= product.factor

    def on(self, conversion: Conversion, x: SSAValue) -> SSAValue:
        """Return what the steps make of the value, which may have been moved; the factor is left out."""
        for step in self.steps:
            if isinstance(step, ActivationAttr):
                x = conversion.emit(ActivateOp(x, step)).result
            else:
                number = conversion.emit_constant(np.full(1, step, np.float32), "")
                x = conversion.emit(MulOp(x, number)).result
        return x


def rounded(conversion: Conversion, value: onnx_ir.Value, readers: int | None = None) -> Rounded | None:
    """Return a value before it was rounded to codes by one scale and zero that are given; None where it was not.

    With `readers`, so many nodes read the value, and only one its codes.
    """
    back = value.producer() if made_by(value, "DequantizeLinear") else None
    codes = None if back is None else back.inputs[0]
    there = None if codes is None else codes.producer()
    if back is None or there is None or there.op_type != "QuantizeLinear" or there.inputs[0] is None:
        return None
    if readers is not None and not (is_read(value, readers) and is_read(there.outputs[0])):
        return None
    kind, parameters = output_kind(there), ([*node.inputs, None][1:3] for node in (there, back))
    first, second = (codes_attribute(conversion, scale, zero, kind) for scale, zero in parameters)
    if first is None or first != second:
        return None
    return Rounded(there.inputs[0], first.rounding, (back, there))


@dataclass(frozen=True)
class Rounding(Pattern):
    """A value that is rounded to codes, again and again: the hole gets the roundings, the first one first.

    Nothing else reads what is rounded, nor the codes; the result has so many readers. None for any.
    """

    name: str
    inside: Pattern
    readers: int | None = 1

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        value, readers = match.behind(value), self.readers
        roundings: list[ActivationAttr] = []
        while (found := rounded(match.conversion, value, readers)) is not None:
            roundings.append(found.rounding)
            match.nodes += found.nodes
            value, readers = found.before, None if readers is None else 1
        match.bind(self.name, tuple(reversed(roundings)))
        (self.inside if readers is None else Once(self.inside, readers)).meet(value, match)


def scaled(conversion: Conversion, value: onnx_ir.Value) -> Scaled | None:
    """Return a value before it was multiplied with a number or divided by one; None where it was not."""
    node = value.producer()
    if node is None or node.domain != "" or node.op_type not in ("Mul", "Div") or None in node.inputs:
        return None
    left, right = node.inputs
    assert left is not None
    assert right is not None
    number = number_of_value(conversion, right)
    if number is not None and node.op_type == "Div":
        return Scaled(node, left, 1.0 / number) if number else None
    if number is not None:
        return Scaled(node, left, number)
    number = number_of_value(conversion, left)
    return Scaled(node, right, number) if number is not None and node.op_type == "Mul" else None


def number_of_value(conversion: Conversion, value: onnx_ir.Value, most: int = MOST_STEPS) -> float | None:
    """Return the only number of a float constant that widens nothing, or one that follows from sizes, else None."""
    array = conversion.scope.constant_of(value)
    if array is not None:
        single = array.dtype == np.float32 and array.size == 1 and array.ndim <= 1
        return float(array.reshape(-1)[0]) if single else None
    node = value.producer()
    if node is None or node.domain != "" or None in node.inputs or most == 0:
        return None
    operands = [operand for operand in node.inputs if operand is not None]
    if node.op_type == "Cast":
        to_float = node.attributes.get_int("to", 0) == onnx_ir.DataType.FLOAT
        size = _size(conversion, operands[0])
        return (size or number_of_value(conversion, operands[0], most - 1)) if to_float else None
    computed = operands if node.op_type in ("Sqrt", "Div") else []
    match [number_of_value(conversion, operand, most - 1) for operand in computed]:
        case [float() as number] if number >= 0.0:
            return math.sqrt(number)
        case [float() as number, float() as divisor] if divisor != 0.0:
            return number / divisor
        case _:
            return None


def _size(conversion: Conversion, value: onnx_ir.Value) -> float | None:
    """Return an integer that follows from sizes and is the same in every call, else None."""
    known = conversion.scope.shape_value_of(value)
    if known is None or len(known.sizes) != 1 or not is_known(known.sizes[0]):
        return None
    return float(known.sizes[0].coefficient)

"""Let sparse convolutions compute with codes of eight bits, by ranges of their values that samples show.

```mlir
%h = pebble.conv2d %x, %w residual %r window <...> activation <relu> : ...
%y = pebble.conv2d %h, %v window <...> : ...
// ->
%s = pebble.quantized_conv2d %x, %a, %b, %m codes <...> window <...> output <...> : ...
%t = pebble.add %s, %r : ...
%u = pebble.activate <relu> %t : ...
%h = pebble.activate <quantize ...> %u : ...
%y = pebble.quantized_conv2d %h, %c, %d, %n codes <...> window <...> : ...
```

What one of them reads is rounded where it is made, for all that read it, so that it lies in memory as bytes, and so are
summands of sums and the sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import FloatAttr, ModuleOp, f64
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp
from redpebble.dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, QuantizedConv2dOp
from redpebble.dialect.ops.quantized_layers import QuantizedLayer
from redpebble.dialect.provenance import copy_provenance, node_name
from redpebble.dialect.semantics.interpreter import Observed, evaluate
from redpebble.kernels.machine import Machine
from redpebble.passes.images.convolution_kernels import dense_convolution_us
from redpebble.tuning.sample_codes import (
    MOST_CHANGE,
    NO_INTEGERS,
    NO_RANGE,
    Floats,
    change_of,
    changed_text,
    codes_of,
    integer_parameters,
    layer_text,
)


def sparse_convolutions(module: ModuleOp) -> list[Conv2dOp]:
    """Return sparse convolutions of constants."""
    found = [op for op in module.walk() if isinstance(op, Conv2dOp) and isinstance(op.weight.owner, SparseConstantOp)]
    return [op for op in found if op.bias is None or isinstance(op.bias.owner, ConstantOp)]


def _is_beside_depthwise(op: Conv2dOp) -> bool:
    """Return whether a depthwise convolution, which takes and yields floats, is before a convolution or behind it.

    Rounding what that one yields or reads costs more than is gained by the products.
    """
    readers = (use.operation for use in op.result.uses)
    return isinstance(_source(op.x).owner, Depthwise2dOp) or any(isinstance(one, Depthwise2dOp) for one in readers)


def quantize_convolutions(convolutions: Sequence[Conv2dOp], observed: Observed, machine: Machine) -> list[str]:
    """Quantize convolutions unless their results change too much; return the reasons why others are left as they are.

    Raises:
        InterpretationError: a result is not known.
    """
    rounding = _Rounding(observed)
    beside = {op for op in convolutions if _is_beside_depthwise(op)}
    left = [f"{layer_text(op)} is beside a depthwise convolution" for op in convolutions if op in beside]
    left += [text for op in convolutions if op not in beside and (text := _left(op, rounding, machine))]
    rounding.insert()
    return left


@dataclass
class _Rounding:
    """Codes that values are to be rounded to."""

    observed: Observed
    _codes: dict[SSAValue, CodesAttr | None] = field(default_factory=dict[SSAValue, CodesAttr | None])
    _wanted: set[SSAValue] = field(default_factory=set[SSAValue])

    def array(self, value: SSAValue) -> Floats:
        """Return what samples make of a value."""
        return np.asarray(self.observed.values[value], np.float32)

    def codes(self, value: SSAValue) -> CodesAttr | None:
        """Return the codes of a value, before a pooling of the largest, which moves them."""
        source = _source(value)
        if source not in self._codes:
            self._codes[source] = codes_of(self.array(source))
        return self._codes[source]

    def want(self, value: SSAValue) -> None:
        """Let a value be rounded."""
        self._wanted.add(_source(value))

    def move(self, old: SSAValue, new: SSAValue) -> None:
        """Let a value stand for another one."""
        self.observed.values[new] = self.observed.values[old]
        self._codes[new] = self._codes.pop(old, None) or codes_of(self.array(new))
        if old in self._wanted:
            self._wanted.remove(old)
            self._wanted.add(new)

    def insert(self) -> None:
        """Round all values that are to be, for all that read them."""
        for value in self._wanted:
            codes = self.codes(value)
            if codes is None:
                continue
            made = ActivateOp(value, codes.rounding)
            owner = value.owner
            point = InsertPoint.after(owner) if isinstance(owner, Operation) else InsertPoint.at_start(owner)
            Rewriter.insert_op(made, point)
            value.replace_uses_with_if(made.result, lambda use, own=made: use.operation is not own)


def _source(value: SSAValue) -> SSAValue:
    """Return what a convolution yields, before poolings of the largest, which move codes as well; else the value."""
    source = value
    while isinstance(source.owner, Pool2dOp) and source.owner.kind.data == "max":
        source = source.owner.x
    return source if isinstance(source.owner, ActivateOp | Conv2dOp | Depthwise2dOp | QuantizedConv2dOp) else value


def _left(op: Conv2dOp, rounding: _Rounding, machine: Machine) -> str:
    """Let a convolution compute with integers; return the reason why another one is left as it is."""
    codes = rounding.codes(op.x)
    assert isinstance(op.weight.owner, SparseConstantOp)
    bias = None if op.bias is None else constant_array(op.bias)
    if codes is None:
        return f"{layer_text(op)} {NO_RANGE}"
    parameters = integer_parameters(op.weight.owner.weight, bias, codes)
    if parameters is None:
        return f"{layer_text(op)} {NO_INTEGERS}"
    weight, added, multiplier = (constant.results[0] for constant in parameters)
    own = None if op.residual is not None else op.activation
    made = QuantizedConv2dOp(op.x, QuantizedLayer(node_name(op), weight, added, multiplier, codes, own), op.window)
    arrays = [np.asarray(constant_array(one), np.float32) for one in (weight, added, multiplier)]
    (result,) = evaluate(made, [rounding.array(op.x), *arrays], np.float32)
    ops: list[Operation] = [*parameters, made]
    rounding.observed.values[made.result] = result
    if op.residual is not None:
        ops += _with_sum(op, made, rounding)
    last = ops[-1].results[0]
    change = change_of([rounding.array(op.result)], [rounding.array(last)])
    if change > MOST_CHANGE:
        for one in reversed(ops):
            one.drop_all_references()
        return f"{layer_text(op)} {changed_text(change)}"
    rounding.want(op.x)
    if op.residual is not None:
        for value in (made.result, op.residual, last):
            rounding.want(value)
    rounding.move(op.result, last)
    made.dense_us = FloatAttr(dense_convolution_us(op, machine), f64)
    copy_provenance(op, made)
    last.name_hint = op.result.name_hint
    Rewriter.replace_op(op, ops, [last])
    return ""


def _with_sum(op: Conv2dOp, made: QuantizedConv2dOp, rounding: _Rounding) -> list[Operation]:
    """Return the sum and the activation behind a convolution, and note what samples make of them."""
    assert op.residual is not None
    added = AddOp(made.result, op.residual)
    value = rounding.array(made.result) + rounding.array(op.residual)
    rounding.observed.values[added.result] = value
    if op.activation is None:
        return [added]
    activated = ActivateOp(added.result, op.activation)
    (rounding.observed.values[activated.result],) = evaluate(activated, [value], np.float32)
    return [added, activated]

"""Let sparse convolutions compute with codes of eight bits, by ranges of their values that samples show.

```mlir
%h = pebble.conv2d %x, %w residual %r window <...> activation <relu> : ...
%y = pebble.conv2d %h, %v window <...> : ...
// ->
%q = pebble.convert %x : ... -> tensor<...x!pebble.codes<#a>>
%s = pebble.conv2d %q, %a bias %b times %m window <...> : ... -> tensor<...x!pebble.codes<#b>>
%f = pebble.convert %s : ...
%t = pebble.add %f, %r : ...
%u = pebble.activate <relu> %t : ...
%h = pebble.convert %u : ... -> tensor<...x!pebble.codes<#c>>
%y = pebble.conv2d %h, %c bias %d times %n window <...> : ...
```

Depthwise and dense convolutions beside them are quantized, too, where that gains: see
`redpebble.tuning.gaining_convolutions`. An input of these convolutions is rounded where it is made, for all its
readers, and lies in memory as bytes. Also rounded are sums with their summands, and inputs of activations of many
instructions, which then become tables."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from xdsl.dialects.builtin import FloatAttr, f64
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ..dialect.attributes.activations import OF_FEW_INSTRUCTIONS, ActivationAttr
from ..dialect.attributes.codes import CodesAttr
from ..dialect.ops.constants import ConstantOp, constant_array
from ..dialect.ops.elementwise import ActivateOp, AddOp, ConvertOp
from ..dialect.ops.images import Conv2dOp
from ..dialect.ops.quantized_layers import QuantizedLayer
from ..dialect.provenance import copy_provenance, node_name
from ..dialect.semantics.interpreter import Observed, evaluate
from ..kernels.machine import Machine
from ..passes.images.image_layers import is_sparse_convolution
from .gaining_convolutions import (
    BESIDE,
    Convolution,
    gaining_convolutions,
    matrix_of,
    runtime_us,
    source_of,
)
from .sample_codes import (
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


class Outcome(NamedTuple):
    """Sparse convolutions that compute with codes, others that do, and why some are left that gain or are sparse."""

    sparse: int
    others: int
    left: list[str]


def quantize_convolutions(convolutions: Sequence[Convolution], observed: Observed, machine: Machine) -> Outcome:
    """Quantize those that gain unless their results change too much.

    Raises:
        InterpretationError: a result is not known.
    """
    rounding, chosen = _Rounding(observed), gaining_convolutions(convolutions, machine)
    sparse = {op for op in convolutions if is_sparse_convolution(op)}
    left = [f"{layer_text(op)} {BESIDE}" for op in convolutions if op in sparse and op not in chosen]
    reasons = {op: _left(op, rounding, machine) for op in chosen}
    rounding.insert()
    done = [op for op, reason in reasons.items() if not reason]
    count = sum(op in sparse for op in done)
    return Outcome(count, len(done) - count, [*left, *filter(None, reasons.values())])


@dataclass
class _Rounding:
    """Codes that values are to be rounded to."""

    observed: Observed
    _codes: dict[SSAValue, CodesAttr | None] = field(default_factory=dict[SSAValue, CodesAttr | None])
    _wanted: set[SSAValue] = field(default_factory=set[SSAValue])

    def array(self, value: SSAValue) -> Floats:
        return np.asarray(self.observed.values[value], np.float32)

    def codes(self, value: SSAValue) -> CodesAttr | None:
        """Return the codes of a value, before a pooling of the largest, which moves them."""
        source = source_of(value)
        if source not in self._codes:
            self._codes[source] = codes_of(self.array(source))
        return self._codes[source]

    def want(self, value: SSAValue) -> None:
        self._wanted.add(source_of(value))

    def move(self, old: SSAValue, new: SSAValue) -> None:
        """Let a value stand for another one."""
        self.observed.values[new] = self.observed.values[old]
        self._codes[new] = self._codes.pop(old, None) or codes_of(self.array(new))
        if old in self._wanted:
            self._wanted.remove(old)
            self._wanted.add(new)

    def insert(self) -> None:
        """Insert the rounding of every wanted value before all its readers."""
        for value in self._wanted:
            codes = self.codes(value)
            if codes is None:
                continue
            made = ActivateOp(value, codes.rounding)
            owner = value.owner
            point = InsertPoint.after(owner) if isinstance(owner, Operation) else InsertPoint.at_start(owner)
            Rewriter.insert_op(made, point)
            value.replace_uses_with_if(made.result, lambda use, own=made: use.operation is not own)


def _left(op: Convolution, rounding: _Rounding, machine: Machine) -> str:
    """Let a convolution compute with integers; return the reason why another one is left as it is."""
    codes = rounding.codes(op.x)
    bias = None if op.bias is None else constant_array(op.bias)
    if codes is None:
        return f"{layer_text(op)} {NO_RANGE}"
    is_dense = isinstance(op, Conv2dOp) and isinstance(op.weight.owner, ConstantOp)
    parameters = integer_parameters(matrix_of(op), bias, codes, is_dense=is_dense)
    if parameters is None:
        return f"{layer_text(op)} {NO_INTEGERS}"
    weight, added, multiplier = (constant.results[0] for constant in parameters)
    residual = op.residual if isinstance(op, Conv2dOp) else None
    own = op.activation if residual is None and not _is_long(op.activation) else None
    convert = ConvertOp(op.x, codes)
    layer = QuantizedLayer(node_name(op), weight, added, multiplier, codes, own)
    made = Conv2dOp.of_codes(convert.result, layer, op.window)
    arrays = [np.asarray(constant_array(one), np.float32) for one in (weight, added, multiplier)]
    (bytes_read,) = evaluate(convert, [rounding.array(op.x)], np.float32)
    (result,) = evaluate(made, [bytes_read, *arrays], np.float32)
    ops: list[Operation] = [*parameters, convert, made]
    rounding.observed.values[made.result] = result
    if own is None:
        ops += _behind((made.result, residual), op.activation, rounding)
    last = ops[-1].results[0]
    change = change_of([rounding.array(op.result)], [rounding.array(last)])
    if change > MOST_CHANGE:
        for one in reversed(ops):
            one.drop_all_references()
        return f"{layer_text(op)} {changed_text(change)}"
    rounding.want(op.x)
    if last is not made.result:
        inner = last.owner.operands[0] if _is_long(op.activation) and isinstance(last.owner, ActivateOp) else last
        for value in (made.result, residual, inner, last):
            if value is not None:
                rounding.want(value)
    rounding.move(op.result, last)
    made.dense_us = FloatAttr(runtime_us(op, machine), f64)
    copy_provenance(op, made)
    Rewriter.replace_op(op, ops, [last])
    return ""


def _is_long(activation: ActivationAttr | None) -> bool:
    """Return whether an activation takes longer than to round what it reads, whose codes a table then maps."""
    return activation is not None and activation.kind not in OF_FEW_INSTRUCTIONS


def _behind(
    parts: tuple[SSAValue, SSAValue | None], activation: ActivationAttr | None, rounding: _Rounding
) -> list[Operation]:
    """Return the sum with another value and the activation behind a convolution, and note what samples make of them."""
    (last, residual), values, ops = parts, rounding.observed.values, list[Operation]()
    if residual is not None:
        added = AddOp(last, residual)
        values[added.result] = rounding.array(last) + rounding.array(residual)
        ops.append(added)
        last = added.result
    if activation is not None:
        activated = ActivateOp(last, activation)
        (values[activated.result],) = evaluate(activated, [rounding.array(last)], np.float32)
        ops.append(activated)
    return ops

"""Drop dead neurons between quantized layers, and merge those that always have the same code.

```mlir
%y = pebble.quantized_layers %x, %w, %b, %m, %v, %c, %n codes [#a, #d] ... :
    (tensor<?x4xf32>, tensor<4x3xf32>, ..., tensor<3x2xf32>, tensor<2xf32>, ...) -> tensor<?x2xf32>
// -> row 0 of %v is zero, or column 1 of %w is, or columns 1 and 2 of %w are equal, with their biases and multipliers
%y = pebble.quantized_layers %x, %w_2, %b_2, %m_2, %v_2, %c_2, %n codes [#a, #d] ... :
    (tensor<?x4xf32>, tensor<4x2xf32>, ..., tensor<2x2xf32>, tensor<2xf32>, ...) -> tensor<?x2xf32>
```

All of it is exact: a neuron without incoming connections has one code, that of its bias, whose products are integers
that join the biases of the next layer. Such a neuron stays behind an activation other than relu, whose values are
rounded before they become codes. So does whatever would make biases or weights greater than layers may have. One neuron
stays at least.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from ...dialect.attributes.codes import CodesAttr
from ...dialect.ops.constants import ConstantOp, constant_array
from ...dialect.ops.quantized_layers import GREATEST_BIAS, GREATEST_WEIGHT, QuantizedLayer, QuantizedLayersOp
from ...dialect.provenance import copy_provenance
from ...dialect.semantics.quantized import constant_steps, rounds_sums
from ...sparse.csr import CscMatrix
from ..analysis.weights import (
    Doubles,
    Floats,
    Indices,
    Weight,
    constant_for,
    entries_of,
    has_incoming,
    has_outgoing,
    product_with,
    weight_of,
    with_inputs_added,
    without_inputs,
    without_outputs,
)
from ..rewriting.erase_unused import erase_unused
from ..rewriting.parameters import place_constant


class _Layer(NamedTuple):
    """A layer, and its constants."""

    layer: QuantizedLayer
    weight: Weight
    bias: Floats
    multiplier: Floats


class ReduceQuantizedLayers(ModulePass):
    """Drop and merge neurons between quantized layers."""

    name = "pebble-reduce-quantized-layers"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for inner in list(op.walk()):
            if isinstance(inner, QuantizedLayersOp) and len(inner.layers) > 1:
                _reduce(inner)
        erase_unused(op.body)


def _reduce(op: QuantizedLayersOp) -> None:
    """Let layers have fewer neurons, if some are dead or equal."""
    read = [_read(layer) for layer in op.layers]
    before = [one for one in read if one is not None]
    if len(before) < len(read):
        return
    layers = before
    while True:
        reduced = _reduced(layers)
        if all(one.weight.shape == other.weight.shape for one, other in zip(layers, reduced, strict=True)):
            break
        layers = reduced
    if layers is before:
        return
    placed = [_placed(op, *pair) for pair in zip(layers, before, strict=True)]
    made = QuantizedLayersOp(op.x, placed, op.output, yields_bytes=op.yields_bytes)
    assert op.parent is not None
    op.parent.insert_op_before(made, op)
    copy_provenance(op, made)
    made.result.name_hint = op.result.name_hint
    op.result.replace_all_uses_with(made.result)
    op.detach()
    op.erase()


def _read(layer: QuantizedLayer) -> _Layer | None:
    weight, bias, multiplier = weight_of(layer.weight), constant_array(layer.bias), constant_array(layer.multiplier)
    if weight is None or bias is None or multiplier is None:
        return None
    return _Layer(layer, weight, bias.astype(np.float32), multiplier.astype(np.float32))


def _reduced(layers: Sequence[_Layer]) -> list[_Layer]:
    """Return layers without the neurons that are dead or equal between each and the next."""
    made = list(layers)
    for index in range(len(made) - 1):
        codes = made[index + 1].layer.codes
        for change in (_without_unread, _without_constant, _without_equal):
            made[index], made[index + 1] = change(made[index], made[index + 1], codes)
    return made


def _without_unread(before: _Layer, after: _Layer, _: CodesAttr) -> tuple[_Layer, _Layer]:
    return _keep(before, after, has_outgoing(after.weight))


def _without_constant(before: _Layer, after: _Layer, codes: CodesAttr) -> tuple[_Layer, _Layer]:
    constant = ~has_incoming(before.weight)
    if not constant.any() or not rounds_sums(before.layer):
        return before, after
    steps = np.where(constant, constant_steps(before.layer, before.bias, before.multiplier, codes), 0.0)
    bias: Doubles = after.bias.astype(np.float64) + product_with(steps.astype(np.float64), after.weight)
    if np.abs(bias).max(initial=0.0) > GREATEST_BIAS:
        return before, after
    kept = ~constant
    if len(kept) and not kept.any():
        # the neuron that stays adds what it added before
        kept[0] = True
        bias = bias - product_with(np.where(kept, steps, 0.0).astype(np.float64), after.weight)
    return _keep(before, after._replace(bias=bias.astype(np.float32)), kept)


def _without_equal(before: _Layer, after: _Layer, _: CodesAttr) -> tuple[_Layer, _Layer]:
    first = _first_equal(before)
    kept = np.flatnonzero(first == np.arange(len(first)))
    if len(kept) == len(first):
        return before, after
    merged = with_inputs_added(after.weight, np.searchsorted(kept, first), len(kept))
    if np.abs(entries_of(merged)).max(initial=0.0) > GREATEST_WEIGHT:
        return before, after
    return _with_outputs(before, kept), after._replace(weight=merged)


def _first_equal(layer: _Layer) -> Indices:
    """Return for each neuron the first one with the same connections, bias and multiplier, itself where none has."""
    weight = layer.weight if isinstance(layer.weight, CscMatrix) else CscMatrix.from_dense(layer.weight)
    known: dict[tuple[bytes, ...], int] = {}
    first = np.arange(weight.shape[1])
    for neuron, (start, end) in enumerate(zip(weight.pointers[:-1], weight.pointers[1:], strict=True)):
        numbers = np.array([layer.bias[neuron], layer.multiplier[neuron]], np.float32)
        key = (weight.rows[start:end].tobytes(), weight.values[start:end].tobytes(), numbers.tobytes())
        first[neuron] = known.setdefault(key, neuron)
    return first


def _keep(before: _Layer, after: _Layer, neurons: NDArray[np.bool_]) -> tuple[_Layer, _Layer]:
    """Return layers between which these neurons are left, one at least."""
    if neurons.all():
        return before, after
    kept = np.flatnonzero(neurons) if neurons.any() else np.zeros(1, np.int64)
    return _with_outputs(before, kept), after._replace(weight=without_inputs(after.weight, kept))


def _with_outputs(layer: _Layer, kept: Indices) -> _Layer:
    return _Layer(layer.layer, without_outputs(layer.weight, kept), layer.bias[kept], layer.multiplier[kept])


def _placed(op: QuantizedLayersOp, layer: _Layer, before: _Layer) -> QuantizedLayer:
    """Return a layer whose constants that changed stand before an op."""
    known = layer.layer
    values: list[SSAValue] = []
    for now, then, value in (
        (layer.weight, before.weight, known.weight),
        (layer.bias, before.bias, known.bias),
        (layer.multiplier, before.multiplier, known.multiplier),
    ):
        constant = constant_for(now) if isinstance(now, CscMatrix) or now.ndim > 1 else ConstantOp(now)
        values.append(value if now is then else place_constant(constant, op, value))
    weight, bias, multiplier = values
    return known._replace(weight=weight, bias=bias, multiplier=multiplier)

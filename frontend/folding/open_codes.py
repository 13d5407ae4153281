"""Operators that compute with codes become those of floats between DequantizeLinear and QuantizeLinear, in place.

before: `y = QLinearConv(x, xs, xz, w, ws, wz, ys, yz, b)`
after:  `c = Conv(DequantizeLinear(x, xs, xz), DequantizeLinear(w, ws, wz), DequantizeLinear(b, xs * ws))
y = QuantizeLinear(c, ys, yz)`

So there is one form of each. A runtime that knows both computes the same. What moves codes, such as a pooling of the
largest, does so between the same nodes. Graphs with convolutions on codes are opened, and those with products of two
activations, as of attention, alone: layers have forms of their own, see `redpebble.frontend.operators.quantized`.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from .dequantized_constants import mostly_zeros
from .known_constants import constant_array, initializer_of

CONVOLUTION: Final = "QLinearConv"

PRODUCT: Final = "QLinearMatMul"


REQUIRED: Final = 8
"""Inputs that it has to have: all but the bias."""


class _Form(NamedTuple):
    """The operator of floats, the inputs that are codes, before their scale and zero, and the scale of the result."""

    operator: str
    codes: tuple[int, ...]
    result: int


FORMS: Final = {
    "QLinearAdd": _Form("Add", (0, 3), 6),
    "QLinearMul": _Form("Mul", (0, 3), 6),
    "QLinearAveragePool": _Form("AveragePool", (0,), 3),
    "QLinearGlobalAveragePool": _Form("GlobalAveragePool", (0,), 3),
    "QLinearLeakyRelu": _Form("LeakyRelu", (0,), 3),
    "QLinearSigmoid": _Form("Sigmoid", (0,), 3),
}
"""Operators of com.microsoft."""

MOVING: Final = frozenset({"Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators whose results are codes of their first input."""

MAKERS: Final = {"QuantizeLinear": 1, CONVOLUTION: 6, **{name: form.result for name, form in FORMS.items()}}
"""Operators that yield codes -> which input is their scale, before the zero."""


def open_codes(model: onnx_ir.Model, stays: Callable[[onnx_ir.Node], bool], *, gaining: bool) -> bool:
    """Open the operators on codes of a graph with such convolutions, or its products; return whether it has any.

    Where it is to be `gaining`, only sparse ones count that do not stay.
    """
    convolutions = [node for node in model.graph if node.op_type == CONVOLUTION]
    opened = any(not gaining or (_is_sparse(node, model.ir_version) and not stays(node)) for node in convolutions)
    products = [node for node in model.graph if _is_of_activations(node, model.ir_version)]
    opening = _Opening(model)
    for node in list(model.graph) if opened else products:
        opening.add(node)
    return opened or bool(products)


def _is_sparse(node: onnx_ir.Node, version: int) -> bool:
    *_, weight, _, zero = node.inputs[:6]
    return mostly_zeros(weight, zero, version)


def _is_of_activations(node: onnx_ir.Node, version: int) -> bool:
    """Return whether a node multiplies two activations by their codes."""
    if (node.domain, node.op_type) != ("", PRODUCT) or None in node.inputs[:REQUIRED] or len(node.inputs) < REQUIRED:
        return False
    return all(
        value is not None and constant_array(value, version) is None for value in (node.inputs[0], node.inputs[3])
    )


Parameters = tuple[onnx_ir.Value | None, onnx_ir.Value | None]
"""Scale and zero of codes."""


class _Opening:
    def __init__(self, model: onnx_ir.Model) -> None:
        self._model, self._graph = model, model.graph
        self._known: dict[onnx_ir.Value, Parameters] = {}
        self._made: dict[tuple[onnx_ir.Value | None, ...], onnx_ir.Value] = {}

    def add(self, node: onnx_ir.Node) -> None:
        """Open a node, if it is one to open, and note the codes that it yields."""
        inputs = [*node.inputs, *[None] * 9]
        if node.op_type in MAKERS:
            place = MAKERS[node.op_type]
            self._known[node.outputs[0]] = (inputs[place], inputs[place + 1])
        if node.op_type == CONVOLUTION and node.domain == "" and None not in inputs[:REQUIRED]:
            self._open_convolution(node, inputs)
        elif _is_of_activations(node, self._model.ir_version):
            parts = [self._floats(node, inputs[first], inputs[first + 1], inputs[first + 2]) for first in (0, 3)]
            self._replace(node, "MatMul", parts, (inputs[6], inputs[7]))
        elif node.op_type in FORMS and node.domain == "com.microsoft" and not _has_channels_last(node):
            form = FORMS[node.op_type]
            parts = [self._floats(node, inputs[first], inputs[first + 1], inputs[first + 2]) for first in form.codes]
            self._replace(node, form.operator, parts, (inputs[form.result], inputs[form.result + 1]))
        elif node.op_type == "QLinearConcat" and node.domain == "com.microsoft":
            triples = [(*inputs[first : first + 3],) for first in range(2, len(node.inputs), 3)]
            self._replace(
                node,
                "Concat",
                [self._floats(node, codes, scale, zero) for codes, scale, zero in triples],
                (inputs[0], inputs[1]),
            )
        elif node.op_type in MOVING and inputs[0] in self._known and len(node.outputs) == 1:
            scale, zero = self._known[inputs[0]]
            self._replace(
                node, node.op_type, [self._floats(node, inputs[0], scale, zero), *node.inputs[1:]], (scale, zero)
            )

    def _open_convolution(self, node: onnx_ir.Node, inputs: Sequence[onnx_ir.Value | None]) -> None:
        x, scale, zero, weight, weight_scale, weight_zero, *after = inputs
        parts = [self._floats(node, x, scale, zero), self._floats(node, weight, weight_scale, weight_zero, axis=0)]
        if after[2] is not None:
            sizes = [self._array(value) for value in (scale, weight_scale)]
            if sizes[0] is None or sizes[1] is None or sizes[0].size != 1:
                return
            product = (sizes[0].reshape(-1).astype(np.float32) * sizes[1].astype(np.float32)).reshape(sizes[1].shape)
            step = initializer_of(f"{node.outputs[0].name}_bias_scale", onnx_ir.tensor(product))
            self._graph.register_initializer(step)
            parts.append(self._floats(node, after[2], step, None, axis=0))
        self._replace(node, "Conv", parts, (after[0], after[1]))

    def _array(self, value: onnx_ir.Value | None) -> NDArray[np.generic] | None:
        return None if value is None else constant_array(value, self._model.ir_version)

    def _floats(
        self,
        node: onnx_ir.Node,
        codes: onnx_ir.Value | None,
        scale: onnx_ir.Value | None,
        zero: onnx_ir.Value | None,
        axis: int | None = None,
    ) -> onnx_ir.Value:
        """Return the floats of codes, the same for all that read them, before the first of these."""
        known = self._made.get((codes, scale, zero))
        if known is not None:
            return known
        place = f"{node.outputs[0].name}_{'' if codes is None else codes.name}_floats"
        attributes = {} if axis is None else {"axis": axis}
        made = onnx_ir.node("DequantizeLinear", [codes, scale, zero], attributes, name=place)
        result = made.outputs[0]
        result.name, result.type = place, onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
        result.shape = None if codes is None else codes.shape
        self._graph.insert_before(node, made)
        self._made[codes, scale, zero] = result
        return result

    def _replace(
        self, node: onnx_ir.Node, operator: str, inputs: Sequence[onnx_ir.Value | None], parameters: Parameters
    ) -> None:
        """Put an operator of floats, and the rounding of its result, into the place of a node."""
        old = node.outputs[0]
        attributes = [value for name, value in node.attributes.items() if name != "channels_last"]
        made = onnx_ir.Node("", operator, inputs, attributes, name=node.name)
        floats = made.outputs[0]
        floats.name, floats.type = f"{old.name}_values", onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
        floats.shape = old.shape
        rounding = onnx_ir.node("QuantizeLinear", [floats, *parameters], name=f"{old.name}_rounding")
        result = rounding.outputs[0]
        result.type, result.shape = old.type, old.shape
        self._graph.insert_before(node, [made, rounding])
        name = old.name
        old.name = f"{name}_before"
        result.name = name
        for use in list(old.uses()):
            use.node.replace_input_with(use.idx, result)
        for index, output in enumerate(self._graph.outputs):
            if output is old:
                self._graph.outputs[index] = result
        self._known[result] = parameters
        self._graph.remove(node, safe=True)


def _has_channels_last(node: onnx_ir.Node) -> bool:
    attribute = node.attributes.get("channels_last")
    return attribute is not None and attribute.as_int() != 0

"""Quantized linear layers, in each of the forms in which quantizers and runtimes write them.

`Gemm` or `MatMul` of two DequantizeLinear, `MatMulInteger` with Add, Cast and Mul behind it, `QGemm`, `QLinearMatMul`
and `MatMulIntegerToFloat` all become `pebble.linear` of the codes that `pebble.convert` makes of floats. Where codes
pass from node to node, the nodes that yield them stand as long as others read them, and the layer is made where its
floats, or those of a later layer, are asked for.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir
from xdsl.ir import SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.codes import CodesAttr
from ...dialect.ops.elementwise import ActivateOp, AddOp, ConvertOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.quantized_layers import GREATEST_BIAS, QuantizedLayer
from ...kernels.byte_times import gains
from ...sparse.densities import STORED_SPARSE
from .conversion import Conversion, Converter, NotCovered, YieldsCodes
from .quantized_operands import (
    Addend,
    Codes,
    Floats,
    Integers,
    IntegerWeight,
    ScaledSums,
    addend_of,
    array_of,
    codes_attribute,
    dequantized_weight,
    fault_of_codes,
    made_by,
    number_of,
    output_kind,
    producer_of,
    scaled_sums,
    sparse_weight_of,
    weight_of,
)

YIELDS_CODES: Final = "it yields quantized values, and nothing covered makes floats of them"
"""The reason why a node stays that is part of no layer."""

NO_KERNEL_OF_BYTES: Final = "no sparse kernel of bytes is predicted to be faster for every batch"


def quantized_or(other: Converter, quantized: Converter) -> Converter:
    """Return the converter of an operator that may be a quantized layer, or part of one."""

    def convert(conversion: Conversion) -> Sequence[SSAValue]:
        return quantized(conversion) or other(conversion)

    return convert


def convert_product(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the layer of a Gemm or MatMul of two DequantizeLinear; nothing where it is no such product.

    Raises:
        NotCovered: it is one of a form that is not accepted.
    """
    x, w = conversion.input(0), conversion.input(1)
    if x is None or w is None or not (made_by(x, "DequantizeLinear") and made_by(w, "DequantizeLinear")):
        return ()
    is_gemm = conversion.node.op_type == "Gemm"
    if is_gemm and (conversion.number("alpha", 1.0) != 1.0 or conversion.number("beta", 1.0) != 1.0):
        raise NotCovered("expected alpha=1 and beta=1 of a quantized Gemm, got others")
    if conversion.integer("transA", 0):
        raise NotCovered("expected transA=0 of a quantized Gemm, got 1")
    weight = dequantized_weight(conversion, w, transposed=conversion.integer("transB", 0) != 0)
    if weight is None:
        return ()  # a product of two activations, of attention for example
    codes = dequantized_codes(conversion, x)
    if codes is None:
        raise NotCovered(fault_of_codes(conversion, producer_of(x)))
    addend = addend_of(conversion, conversion.input(2), codes, weight)
    return [_emit(conversion, codes, weight, addend)]


def convert_scaled(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the layer of the Mul behind MatMulInteger, Add and Cast; nothing for another Mul.

    Raises:
        NotCovered: it is of a form that is not accepted.
    """
    found = scaled_sums(conversion)
    if found is None or not made_by(found.sums, "MatMulInteger"):
        return ()
    product = producer_of(found.sums)
    codes, weight = _integer_operands(conversion, product)
    check_scales(found, codes)
    scale, bias = found.scale, found.bias
    if scale.size not in (1, weight.scale.size):
        raise NotCovered(f"expected a scale of 1 or {weight.scale.size} values, got {scale.size}")
    multiplier = np.broadcast_to(scale.reshape(-1), weight.scale.shape)
    if bias is not None:
        bias = np.broadcast_to(bias.reshape(-1), weight.scale.shape)
    kept = codes._replace(nodes=(*codes.nodes, *found.nodes, *weight.nodes, product))
    return [_linear(conversion, kept, weight, multiplier.astype(np.float32), bias)]


def check_scales(found: ScaledSums, codes: Codes) -> None:
    """Check that sums are scaled by the scales of what they are of.

    Raises:
        NotCovered: they are not.
    """
    if codes.codes.is_dynamic != (found.input_scale is not None) or (codes.codes.is_dynamic and found.bias is not None):
        raise NotCovered("expected the scales of its operands as factor, and no bias of dynamic sums, got others")
    if found.input_scale is not None and found.input_scale.producer() is not codes.nodes[0]:
        raise NotCovered("expected the scale of its input, got that of another tensor")


def _integer_operands(conversion: Conversion, node: onnx_ir.Node) -> tuple[Codes, IntegerWeight]:
    """Return the operands of a MatMulInteger; the scale of the weight is 1."""
    x, w, x_zero, w_zero = [*node.inputs, None, None][:4]
    codes = None if x is None else codes_of(conversion, x)
    if codes is None or w is None or not has_zero(conversion, codes, x_zero):
        raise NotCovered("expected one constant scale and zero of the input of MatMulInteger, got others")
    found = sparse_weight_of(conversion, node)
    return codes, weight_of(conversion, (w, None, w_zero), axis=1) if found is None else found[0]


def has_zero(conversion: Conversion, codes: Codes, zero: onnx_ir.Value | None) -> bool:
    """Return whether a value is the zero of codes."""
    if codes.codes.is_dynamic:
        return zero is not None and zero is codes.nodes[0].outputs[2]
    number = 0 if zero is None else number_of(conversion, zero)
    return number is not None and int(number) == codes.codes.zero


def convert_qgemm(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the layer of a QGemm that yields floats.

    Raises:
        NotCovered: it yields codes, or is of a form that is not accepted.
    """
    if conversion.has_input(7):
        raise YieldsCodes(YIELDS_CODES)
    return [_of_qgemm(conversion, conversion.node)]


def convert_codes(_: Conversion) -> Sequence[SSAValue]:
    """Refuse a node that yields codes or sums of them: the layer is made where its floats are asked for.

    Raises:
        YieldsCodes: always.
    """
    raise YieldsCodes(YIELDS_CODES)


def convert_integer_to_float(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the layer of a MatMulIntegerToFloat whose input is quantized by one scale that is given.

    Raises:
        NotCovered: it is of a form that is not accepted.
    """
    x, w, x_scale, w_scale, x_zero, w_zero, bias = [*conversion.node.inputs, *[None] * 7][:7]
    if x is None or w is None:
        raise NotCovered("expected a constant weight of eight bits, got another value")
    codes = codes_of(conversion, x)
    _check_same(conversion, codes, x_scale, x_zero)
    weight = weight_of(conversion, (w, w_scale, w_zero), axis=1)
    assert codes is not None
    return [_emit(conversion, codes, weight, _float_addend(conversion, bias))]


def convert_dynamic(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the layer of a DynamicQuantizeMatMul.

    Raises:
        NotCovered: it is of a form that is not accepted.
    """
    x, w, w_scale, w_zero, bias = [*conversion.node.inputs, *[None] * 3][:5]
    if x is None or w is None:
        raise NotCovered("expected a constant weight of eight bits, got another value")
    codes = Codes(conversion.tensor_of(x), CodesAttr.dynamic(), ())
    weight = weight_of(conversion, (w, w_scale, w_zero), axis=1)
    return [_emit(conversion, codes, weight, _float_addend(conversion, bias))]


def _float_addend(conversion: Conversion, bias: onnx_ir.Value | None) -> Addend:
    floats = array_of(conversion, bias)
    if bias is not None and floats is None:
        raise NotCovered("expected a constant bias, got a computed one")
    return Addend() if floats is None else Addend(floats=floats.reshape(-1).astype(np.float32))


def dequantized_codes(conversion: Conversion, value: onnx_ir.Value) -> Codes | None:
    """Return the codes that a DequantizeLinear makes floats of by the same scale by which they were made."""
    node = producer_of(value)
    scale, zero = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    codes = None if node.inputs[0] is None else codes_of(conversion, node.inputs[0])
    if codes is None:
        return None
    _check_same(conversion, codes, scale, zero)
    return codes._replace(nodes=(*codes.nodes, node))


def _check_same(
    conversion: Conversion, codes: Codes | None, scale: onnx_ir.Value | None, zero: onnx_ir.Value | None
) -> None:
    if codes is not None and codes.codes.is_dynamic:
        if scale is not codes.nodes[0].outputs[1] or not has_zero(conversion, codes, zero):
            raise NotCovered(
                "expected its input to be dequantized by the scale and zero it is quantized by, got others"
            )
        return
    read, number = number_of(conversion, scale), 0 if zero is None else number_of(conversion, zero)
    if codes is None or read is None or number is None:
        raise NotCovered("expected one constant scale and zero of its input, got others")
    if np.float32(read) != np.float32(codes.codes.scale) or int(number) != codes.codes.zero:
        raise NotCovered("expected its input to be dequantized by the scale and zero it is quantized by, got others")


def codes_of(conversion: Conversion, value: onnx_ir.Value) -> Codes | None:
    """Return the codes of a value of bytes: those of a QuantizeLinear, or of a layer that yields them."""
    node = value.producer()
    if node is None:
        return None
    match node.op_type:
        case "QuantizeLinear":
            scale, zero = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
            codes = codes_attribute(conversion, scale, zero, output_kind(node))
            if codes is None or node.inputs[0] is None:
                return None
            return Codes(conversion.tensor_of(node.inputs[0]), codes, (node,))
        case "DynamicQuantizeLinear" if node.inputs[0] is not None and value is node.outputs[0]:
            return Codes(conversion.tensor_of(node.inputs[0]), CodesAttr.dynamic(), (node,))
        case "QGemm" if len(node.inputs) > 8 and node.inputs[7] is not None:
            codes = codes_attribute(conversion, node.inputs[7], node.inputs[8], "u8")
            return None if codes is None else Codes(_of_qgemm(conversion, node), codes, (node,))
        case "QLinearMatMul":
            codes = codes_attribute(conversion, node.inputs[6], node.inputs[7], "u8")
            return None if codes is None else Codes(_of_qlinear(conversion, node), codes, (node,))
        case "QLinearSigmoid" | "QLinearLeakyRelu" if node.inputs[0] is not None and len(node.inputs) > 4:
            codes = codes_attribute(conversion, node.inputs[3], node.inputs[4], "u8")
            return None if codes is None else _activated_codes(conversion, node, codes)
        case _:
            return None


def _activated_codes(conversion: Conversion, node: onnx_ir.Node, codes: CodesAttr) -> Codes | None:
    """Return the codes of an activation of codes, None where these are not known."""
    x, scale, zero = node.inputs[:3]
    before = None if x is None else codes_of(conversion, x)
    if before is None:
        return None
    _check_same(conversion, before, scale, zero)
    alpha = node.attributes["alpha"].as_float() if "alpha" in node.attributes else 0.01
    kind = ActivationAttr("sigmoid") if node.op_type == "QLinearSigmoid" else ActivationAttr("leaky_relu", (alpha,))
    values = conversion.emit(ActivateOp(floats_of(conversion, before), kind)).result
    return Codes(values, codes, (*before.nodes, node))


def floats_of(conversion: Conversion, codes: Codes) -> SSAValue:
    """Return values rounded to codes that are given: a layer that rounds its own, or an activation."""
    owner = codes.floats.owner
    if not isinstance(owner, LinearOp) or owner.codes is None or owner.finds_codes:
        return conversion.emit(ActivateOp(codes.floats, codes.codes.rounding)).result
    rounded = conversion.emit(LinearOp.of_codes(owner.x, owner.on_codes, codes.codes))
    return conversion.emit(ConvertOp(rounded.result)).result


def _of_qgemm(conversion: Conversion, node: onnx_ir.Node) -> SSAValue:
    """Return the floats of a QGemm before they are rounded."""
    x, x_scale, x_zero, w, w_scale, w_zero, c = [*node.inputs, *[None] * 7][:7]
    alpha, *flags = (conversion.attribute_of(node, name) for name in ("alpha", "transA", "transB"))
    trans_a, trans_b = (flag is not None and flag.as_int() != 0 for flag in flags)
    if (alpha is not None and alpha.as_float() != 1.0) or trans_a:
        raise NotCovered("expected alpha=1 and transA=0 of QGemm, got others")
    codes = None if x is None else codes_of(conversion, x)
    _check_same(conversion, codes, x_scale, x_zero)
    assert codes is not None
    if w is None:
        raise NotCovered("expected a constant weight of eight bits, got another value")
    weight = weight_of(conversion, (w, w_scale, w_zero), axis=0 if trans_b else 1)
    bias = None if c is None else array_of(conversion, c)
    if c is not None and bias is None:
        raise NotCovered("expected a constant bias, got a computed one")
    addend = Addend() if bias is None else Addend(integers=bias.reshape(-1).astype(np.int64))
    return _emit(conversion, codes, weight, addend)


def _of_qlinear(conversion: Conversion, node: onnx_ir.Node) -> SSAValue:
    """Return the floats of a QLinearMatMul before they are rounded."""
    x, x_scale, x_zero, w, w_scale, w_zero, *_ = node.inputs
    codes = None if x is None else codes_of(conversion, x)
    _check_same(conversion, codes, x_scale, x_zero)
    assert codes is not None
    if w is None:
        raise NotCovered("expected a constant weight of eight bits, got another value")
    return _emit(conversion, codes, weight_of(conversion, (w, w_scale, w_zero), axis=1), Addend())


def _emit(conversion: Conversion, codes: Codes, weight: IntegerWeight, addend: Addend) -> SSAValue:
    """Return the floats of a layer whose multiplier is that of its codes times the scale of its weight."""
    multiplier = np.float32(codes.codes.scale) * weight.scale
    kept = codes._replace(nodes=(*codes.nodes, *weight.nodes, *addend.nodes))
    result = _linear(conversion, kept, weight, multiplier, addend.integers)
    # a layer with dynamic codes takes it as its own later
    if addend.floats is not None:
        result = conversion.emit(AddOp(result, conversion.emit_constant(addend.floats, ""))).result
    return result


def _linear(
    conversion: Conversion, codes: Codes, weight: IntegerWeight, multiplier: Floats, bias: Integers | None
) -> SSAValue:
    """Return the floats of a layer.

    Raises:
        NotCovered: it is none of ours, or none that gains where nodes may stay.
    """
    if len(conversion.sizes(codes.floats)) < 2:
        raise NotCovered("expected an input of rank 2 or more, got one without rows")
    if not conversion.scope.has_networks:
        raise NotCovered(
            "it computes with quantized values, which is faster in networks of ours alone, and there are none"
        )
    if conversion.scope.only_gaining and weight.matrix.shape[1] == 1:
        raise NotCovered("a layer of one output, which takes less time than what is rounded for it")
    if conversion.scope.only_gaining and not gains(weight.matrix, conversion.scope.machine):
        raise NotCovered(NO_KERNEL_OF_BYTES)
    conversion.replaces(codes.nodes)
    layer, x = emit_layer(conversion, codes.codes, weight, multiplier, bias), codes.floats
    if not codes.codes.is_dynamic:
        x = conversion.emit(ConvertOp(x, codes.codes)).result
    return conversion.emit(LinearOp.of_codes(x, layer)).result


def emit_layer(
    conversion: Conversion, codes: CodesAttr, weight: IntegerWeight, multiplier: Floats, bias: Integers | None
) -> QuantizedLayer:
    """Return a layer, whose constants are emitted.

    Raises:
        NotCovered: its bias is too large.
    """
    sums = np.zeros(weight.matrix.shape[1], np.int64) if bias is None else bias
    if sums.size and np.abs(sums).max() > GREATEST_BIAS:
        raise NotCovered(f"expected a bias up to {GREATEST_BIAS}, got {np.abs(sums).max()}")
    name = f"{weight.name}_integers"
    if weight.matrix.density < STORED_SPARSE:
        emitted = conversion.emit_sparse(lambda: weight.matrix, name, "")
    else:
        emitted = conversion.emit_constant(weight.matrix.to_dense(), name)
    added, scale = (conversion.emit_constant(one.astype(np.float32), "") for one in (sums, multiplier))
    return QuantizedLayer(conversion.node.name or "", emitted, added, scale, codes, None)


QUANTIZED_CONVERTERS: Final[dict[tuple[str, str], Converter]] = {
    ("", "QuantizeLinear"): convert_codes,
    ("", "MatMulInteger"): convert_codes,
    ("com.microsoft", "QuantizeLinear"): convert_codes,
    ("", "QLinearMatMul"): convert_codes,
    ("com.microsoft", "DynamicQuantizeMatMul"): convert_dynamic,
    ("com.microsoft", "QGemm"): convert_qgemm,
    ("com.microsoft", "MatMulIntegerToFloat"): convert_integer_to_float,
}
"""Operators that are quantized layers."""

"""Floats of codes: an activation rounds them."""

from collections.abc import Sequence
from typing import Final

from xdsl.ir import SSAValue

from ...dialect.attributes.codes import CodesAttr
from ...dialect.ops.constants import constant_array
from ...dialect.ops.elementwise import ActivateOp
from ...dialect.ops.foreign import ForeignOp
from ...dialect.ops.images import Conv2dOp
from ...dialect.ops.layers import LinearOp
from ...foundation.rounded_inverses import dividend_of
from .conversion import Conversion, Converter, NotCovered
from .quantized import codes_of, dequantized_codes, floats_of, has_zero
from .quantized_operands import Codes, fault_of_codes, made_by, number_of, yields_floats


def convert_dequantize(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the floats of codes: whatever is rounded to them, rounded.

    Raises:
        NotCovered: it is something else.
    """
    result, kind = conversion.node.outputs[0], conversion.attribute("output_dtype")
    if not yields_floats(kind):
        raise NotCovered("expected results of 32-bit floats, got others")
    rounded = _rounded_steps(conversion)
    if rounded is not None:
        return [rounded]
    codes = dequantized_codes(conversion, result)
    if codes is None or codes.codes.is_dynamic:
        raise NotCovered(fault_of_codes(conversion, conversion.node))
    if conversion.scope.only_gaining and _is_of_runtime(codes):
        raise NotCovered("it belongs to an operator that the runtime computes with quantized values")
    conversion.replaces(codes.nodes)
    return [floats_of(conversion, codes)]


def _rounded_steps(conversion: Conversion) -> SSAValue | None:
    """Return what is rounded as a multiple of the scale it is dequantized by, as our own networks are written; or None.

    The layer of such values has a multiplier that was divided by the scale: it gets the one before.
    """
    source, scale, zero = [*conversion.node.inputs, None][:3]
    size = number_of(conversion, scale)
    codes = None if source is None or not made_by(source, "QuantizeLinear") else codes_of(conversion, source)
    if (
        codes is None
        or size is None
        or codes.codes.scale != 1.0
        or size == 1.0
        or not has_zero(conversion, codes, zero)
    ):
        return None
    value, owner = codes.floats, codes.floats.owner
    activation = owner.activation if isinstance(owner, ActivateOp) and owner.activation.kind == "relu" else None
    if activation is not None and isinstance(owner, ActivateOp):
        value = owner.x
    match value.owner:
        case Conv2dOp(codes=CodesAttr()) | LinearOp(codes=CodesAttr()) as before:
            layer = before.on_codes
        case _:
            return None
    divided = constant_array(layer.multiplier)
    whole = None if divided is None else dividend_of(divided, size)
    if whole is None or layer.activation is not None:
        return None
    conversion.replaces(codes.nodes)
    layer = layer._replace(multiplier=conversion.emit_constant(whole, ""))
    if isinstance(before, Conv2dOp):
        made = conversion.emit(Conv2dOp.of_codes(before.x, layer, before.window)).result
    else:
        made = conversion.emit(LinearOp.of_codes(before.x, layer)).result
    if activation is not None:
        made = conversion.emit(ActivateOp(made, activation)).result
    rounded = CodesAttr(codes.codes.kind, size, codes.codes.zero)
    return conversion.emit(ActivateOp(made, rounded.rounding)).result


def _is_of_runtime(codes: Codes) -> bool:
    """Return whether a rounding belongs to a node that stays: to one on codes before it, or, repeated, behind it."""
    rounded = codes.nodes[0].inputs[0]
    source = None if rounded is None or codes.nodes[0].op_type != "QuantizeLinear" else rounded.producer()
    if source is None or rounded is None:
        return False
    if source.op_type == "DequantizeLinear":
        return source.inputs[1:] == codes.nodes[0].inputs[1:]
    on_codes = any(value is not None and made_by(value, "DequantizeLinear") for value in source.inputs)
    return on_codes and source.op_type == "Conv" and isinstance(codes.floats.owner, ForeignOp)


DEQUANTIZING_CONVERTERS: Final[dict[tuple[str, str], Converter]] = {
    ("", "DequantizeLinear"): convert_dequantize,
    ("com.microsoft", "DequantizeLinear"): convert_dequantize,
}
"""(domain, operator) -> converter."""

"""Zeros in the constant weights of a layer, floats or codes: few of them, and no kernel of ours can gain."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import onnx_ir

from .folding.dequantized_constants import is_dequantized, zero_share
from .folding.known_constants import is_constant


class Weight(NamedTuple):
    """Inputs of an operator that are the weight and its zero, and the axis of the outputs."""

    weight: int
    zero: int | None
    axis: int


WEIGHTS_OF_CODES: Final[Mapping[str, Weight]] = MappingProxyType(
    {
        "ConvInteger": Weight(1, 3, 0),
        "DynamicQuantizeMatMul": Weight(1, 3, -1),
        "MatMulInteger": Weight(1, 3, -1),
        "MatMulIntegerToFloat": Weight(1, 5, -1),
        "QGemm": Weight(3, 5, -1),
        "QLinearConv": Weight(3, 5, 0),
        "QLinearMatMul": Weight(3, 5, -1),
    }
)
"""Operator on codes -> its weight."""


def weight_zeros(node: onnx_ir.Node, version: int) -> float | None:
    """Return the share of zeros in the weight of a layer; None where it is no constant of this graph."""
    codes = WEIGHTS_OF_CODES.get(node.op_type)
    if codes is not None:
        return zero_share(_input(node, codes.weight), _input(node, codes.zero), version, codes.axis)
    for value in node.inputs[:2]:
        if value is None:
            continue
        if is_constant(value, version):
            return zero_share(value, None, version)
        source = value.producer()
        if source is not None and is_dequantized(value) and _is_held(source, version):
            return zero_share(source.inputs[0], _input(source, 2), version)
    return None


def _is_held(dequantize: onnx_ir.Node, version: int) -> bool:
    codes = _input(dequantize, 0)
    return codes is not None and is_constant(codes, version)


def _input(node: onnx_ir.Node, index: int | None) -> onnx_ir.Value | None:
    return node.inputs[index] if index is not None and index < len(node.inputs) else None

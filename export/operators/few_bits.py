"""Layers whose weights are codes of few bits, as the MatMulNBits that they were."""

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from ...dialect.attributes.few_bits import FewBitsAttr
from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.layers import LinearOp
from ..writing.node_builder import NodeBuilder


def emit_few_bits(op: LinearOp, few_bits: FewBitsAttr, x: ir.Value, builder: NodeBuilder) -> ir.Value:
    """MatMulNBits, and an Add for a bias."""
    constant = op.weight.owner
    assert isinstance(constant, ConstantOp | SparseConstantOp)
    weight = constant.array if isinstance(constant, ConstantOp) else constant.weight
    (inputs, outputs), groups = weight.shape, few_bits.groups(weight.shape[0])
    parts: dict[str, NDArray[Any]] = {
        "codes": packed(few_bits.codes(weight), few_bits.bits).reshape(outputs, groups, -1),
        "scales": few_bits.scales,
    }
    if len(few_bits.zeros):
        parts["zeros"] = packed(few_bits.zeros.astype(np.uint8).reshape(outputs, groups), few_bits.bits).reshape(-1)
    constants = [builder.initializers.add_part(op.weight, part, array) for part, array in parts.items()]
    product = builder.of_microsoft(
        "MatMulNBits",
        x,
        *constants,
        K=inputs,
        N=outputs,
        bits=few_bits.bits,
        block_size=few_bits.size,
        accuracy_level=few_bits.accuracy,
    )
    return product if op.bias is None else builder.node("Add", product, builder.bias(op.bias))


def packed(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Return rows of codes [rows, codes] in bytes, of two in a byte the first one as the lower half."""
    if bits == 8:
        return codes
    if codes.shape[1] % 2:
        codes = np.pad(codes, ((0, 0), (0, 1)))
    return codes[:, 0::2] | (codes[:, 1::2] << np.uint8(4))

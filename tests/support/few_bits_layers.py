"""Layers of few bits as the IR has them, packed or in a tile with the kernel that reads codes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.few_bits import FewBitsAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor, shape_of
from redpebble.kernels.family import KernelFamily, LayerWeights
from redpebble.kernels.formats.code_slots import FAMILY, MOST_OF_UNIT, pack
from redpebble.lowering.kernels.kernel_form import layer_weights
from redpebble.sparse.csr import CscMatrix
from tests.support.few_bits import Doubles, FewBits
from tests.support.lowering_modules import Floats, tiled

CASES = {
    "symmetric": FewBits(96, 40, has_bias=True, accuracy=4),
    "groups of 16, odd outputs": FewBits(80, 21, size=16, accuracy=4),
    "groups of 64, a part of a unit": FewBits(200, 7, size=64, zeros=0.5, accuracy=4),
    "groups of 128, less than one": FewBits(70, 33, size=128, accuracy=4),
    "zeros, dense": FewBits(100, 16, has_zeros=True, zeros=0.0, accuracy=4),
    "zeros, sparse": FewBits(260, 35, has_zeros=True, zeros=0.9, accuracy=4, has_bias=True),
    "zeros alone": FewBits(64, 20, zeros=1.0, accuracy=4),
    "all weights of some blocks": FewBits(229, 35, zeros=0.6, accuracy=4),
    "all weights of all blocks, groups of 16": FewBits(100, 37, size=16, zeros=0.0, accuracy=4, has_bias=True),
    "two of four": FewBits(203, 35, of_four=2, accuracy=4, has_bias=True),
    "one of each": FewBits(1, 1, zeros=0.0, accuracy=4),
}


def rounded_product(case: FewBits, x: Floats, most_of_unit: int | None = MOST_OF_UNIT) -> Doubles:
    """The product of inputs that are rounded in units of 32 or 16; units with larger sums of codes are of 16."""
    size = min(32, case.size)
    codes, _, zeros = case.parts
    if size == 32 and case.has_zeros and most_of_unit is not None:
        steps = np.abs(codes.astype(int) - zeros.repeat(case.size, axis=1))[:, : case.inputs]
        steps = np.pad(steps, ((0, 0), (0, -case.inputs % 32))).reshape(case.outputs, -1, 32).sum(axis=2)
        size = 16 if steps.max() > most_of_unit else 32
    padded = np.pad(x, ((0, 0), (0, -case.inputs % size))).reshape(len(x), -(-case.inputs // size), size)
    scales = (np.abs(padded).max(axis=2, keepdims=True, initial=0) / np.float32(127)).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        rounded = np.where(scales > 0, np.rint(padded / scales), 0).astype(np.float64) * scales
    return rounded.reshape(padded.shape[0], padded.shape[1] * size)[:, : case.inputs] @ case.weight + case.bias


def _few_bits(case: FewBits) -> FewBitsAttr:
    _, scales, zeros = case.parts
    return FewBitsAttr(case.bits, case.size, case.accuracy, scales.reshape(-1), zeros.reshape(-1).astype(np.int16))


def constant_of(case: FewBits) -> SparseConstantOp:
    """The weight of a case without its zeros, however dense."""
    return SparseConstantOp(CscMatrix.from_dense(case.weight.astype(np.float32)), _few_bits(case))


def dense_constant_of(case: FewBits) -> ConstantOp:
    """The same with its zeros."""
    return ConstantOp(case.weight.astype(np.float32), _few_bits(case))


def weights_of(case: FewBits) -> LayerWeights:
    """The weight of a case as kernels pack it."""
    return layer_weights(constant_of(case).result, case.bias)


def packed_slots(case: FewBits) -> NDArray[np.void]:
    """The packed array of a case."""
    return pack(weights_of(case))[0]


def layer(
    constant: ConstantOp | SparseConstantOp,
    bias: Floats,
    activation: ActivationAttr | None = None,
    family: KernelFamily = FAMILY,
) -> ModuleOp:
    """A tile of the layer."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        added = ConstantOp(bias)
        op = LinearOp(arguments[0], constant.result, added.result, activation)
        op.kernel = KernelAttr({1: family.name}, "by the test")
        block.add_ops([constant, added, op])
        return [op.result]

    return tiled([f32_tensor((DYNAMIC, shape_of(constant.result)[0]))], body, (1, 4, 24))

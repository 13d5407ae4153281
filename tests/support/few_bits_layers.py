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
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.family import LayerWeights
from redpebble.kernels.formats.code_slots import FAMILY, pack
from redpebble.lowering.kernels.kernel_form import layer_weights
from redpebble.sparse.csr import CscMatrix
from tests.support.few_bits import FewBits
from tests.support.lowering_modules import Floats, tiled


def constant_of(case: FewBits) -> SparseConstantOp:
    """The weight of a case, however dense."""
    _, scales, zeros = case.parts
    few_bits = FewBitsAttr(case.bits, case.size, case.accuracy, scales.reshape(-1), zeros.reshape(-1).astype(np.int16))
    return SparseConstantOp(CscMatrix.from_dense(case.weight.astype(np.float32)), few_bits)


def weights_of(case: FewBits) -> LayerWeights:
    """The weight of a case as kernels pack it."""
    return layer_weights(constant_of(case).result, case.bias)


def packed_slots(case: FewBits) -> NDArray[np.void]:
    """The packed array of a case."""
    return pack(weights_of(case))[0]


def layer(constant: SparseConstantOp, bias: Floats, activation: ActivationAttr | None = None) -> ModuleOp:
    """A tile of the layer."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        added = ConstantOp(bias)
        op = LinearOp(arguments[0], constant.result, added.result, activation)
        op.kernel = KernelAttr({1: FAMILY.name}, "by the test")
        block.add_ops([constant, added, op])
        return [op.result]

    return tiled([f32_tensor((DYNAMIC, constant.weight.shape[0]))], body, (1, 4, 24))

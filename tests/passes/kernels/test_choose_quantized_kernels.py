"""What a dense convolution of codes is said to take in onnxruntime, whose products of groups are slow."""

from collections.abc import Sequence

import numpy as np
import pytest
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ConvertOp
from redpebble.dialect.ops.images import Conv2dOp
from redpebble.dialect.ops.quantized_layers import QuantizedLayer
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.byte_times import DEFAULT
from redpebble.passes.kernels.choose_quantized_kernels import choose_for_convolution
from redpebble.sparse.csr import CscMatrix
from tests.support.lowering_modules import function

CODES = CodesAttr("u8", 0.02, 128)


def dense_us(channels: int, outputs: int, groups: int, size: int) -> float:
    """The price of a 1 x 1 convolution of an image of size x size pixels."""
    found: list[Conv2dOp] = []

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        weight = np.kron(np.eye(groups), np.ones((channels // groups, outputs // groups)))
        values = np.ones(outputs, dtype=np.float32)
        constants = [SparseConstantOp(CscMatrix.from_dense(weight.astype(np.float32))), ConstantOp(values)]
        block.add_ops(constants)
        w, v = (constant.results[0] for constant in constants)
        layer = QuantizedLayer("conv", w, v, v, CODES, None)
        window = WindowAttr((1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
        block.add_op(rounding := ConvertOp(arguments[0], CODES))
        found.append(Conv2dOp.of_codes(rounding.result, layer, window))
        block.add_op(found[0])
        return [found[0].result]

    function([f32_tensor((DYNAMIC, channels, size, size))], body)
    choose_for_convolution(found[0], DEFAULT)
    assert found[0].dense_us is not None
    return found[0].dense_us.value.data


def test_a_dense_convolution_has_the_price_of_its_products_values_and_taps() -> None:
    # 512 x 256 products for each of 100 pixels at 258 a nanosecond, 76 800 values at 0.056 ns, 100 taps at 0.5 ns
    assert dense_us(512, 256, 1, 10) == pytest.approx((512 * 256 * 100 / 258 + 76_800 * 0.056 + 100 * 0.5) / 1e3)


@pytest.mark.parametrize("groups", [2, 4, 32])
def test_a_product_of_groups_takes_eight_times_as_long(groups: int) -> None:
    values = (76_800 * 0.056 + 100 * 0.5) / 1e3
    whole, parts = (dense_us(512, 256, count, 10) - values for count in (1, groups))
    assert parts == pytest.approx(8 * whole / groups)

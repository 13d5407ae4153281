"""Kernels of convolutions whose weights have no zeros."""

import numpy as np
import pytest
from xdsl.ir import Block

from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.ops.images import Conv2dOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.image_prices import IMAGE_SHARES
from redpebble.kernels.machine import Machine
from redpebble.passes.images.convolution_kernels import choose_for_convolutions


@pytest.mark.parametrize(("outputs", "zeros", "is_dense"), [(2, 0, False), (2, 1, True), (32, 0, True)])
def test_few_outputs_without_zeros_have_the_kernel_of_a_sparse_layer(
    outputs: int, zeros: int, *, is_dense: bool
) -> None:
    """A zero that is stored as a weight may meet a NaN, so it stays in a dense product."""
    weight = np.ones((9 * 32, outputs), np.float32)
    weight.ravel()[:zeros] = 0
    x = Block(arg_types=[f32_tensor((DYNAMIC, 32, 18, 36))]).args[0]
    conv = Conv2dOp(x, ConstantOp(weight).results[0], None, WindowAttr((3, 3), pads=(1, 1, 1, 1)))
    choose_for_convolutions([conv], Machine(lanes=8, prices="zen5"))
    assert conv.kernel is not None
    assert (conv.kernel.family_at(64) == "dense_outputs") == is_dense


def test_weights_that_leave_the_caches_between_two_images_are_read_anew() -> None:
    """A product of few pixels takes less time than its weights from memory; in a cache they cost nothing."""

    def times(l2_bytes: int, l3_bytes: int) -> tuple[float, float]:
        weight = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
        weight[np.random.default_rng(1).random((512, 512)) < 0.8] = 0
        x = Block(arg_types=[f32_tensor((DYNAMIC, 512, 1, 1))]).args[0]
        convs = [Conv2dOp(x, ConstantOp(weight).results[0], None, WindowAttr((1, 1))) for _ in range(8)]
        choose_for_convolutions(convs, Machine(lanes=8, prices="zen5", l2_bytes=l2_bytes, l3_bytes=l3_bytes))
        first = convs[0]
        assert first.dense_us is not None
        assert first.kernel is not None
        return first.dense_us.value.data, first.kernel.predicted[8]

    dense, ours = times(1 << 28, 1 << 29)
    far_dense, far_ours = times(1 << 20, 1 << 21)
    assert far_dense > 5 * dense
    assert far_ours > 1.2 * ours


@pytest.mark.parametrize("is_far", [False, True])
def test_sums_hide_a_part_of_the_time_to_read_sparse_weights(monkeypatch: pytest.MonkeyPatch, *, is_far: bool) -> None:
    """Where they come from beyond the second-level cache, and of sparse convolutions alone."""
    weight = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    weight[np.random.default_rng(1).random((512, 512)) < 0.8] = 0
    machine = Machine(prices="emerald_rapids", l2_bytes=1 << 20 if is_far else 1 << 28, l3_bytes=1 << 29)

    def times() -> tuple[float, float]:
        x = Block(arg_types=[f32_tensor((DYNAMIC, 512, 2, 2))]).args[0]
        convs = [Conv2dOp(x, ConstantOp(weight).results[0], None, WindowAttr((1, 1))) for _ in range(8)]
        choose_for_convolutions(convs, machine)
        assert convs[0].dense_us is not None
        assert convs[0].kernel is not None
        return convs[0].dense_us.value.data, convs[0].kernel.predicted[16]

    dense, ours = times()
    shares = IMAGE_SHARES["emerald_rapids"]
    assert shares.weights < 1
    monkeypatch.setitem(IMAGE_SHARES, "emerald_rapids", shares._replace(weights=1.0))
    dense_alike, not_hidden = times()
    assert dense_alike == dense
    assert not_hidden > 1.05 * ours if is_far else not_hidden == ours

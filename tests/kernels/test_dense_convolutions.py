"""Time of dense convolutions in onnxruntime."""

from itertools import product

import numpy as np
import pytest

from redpebble.kernels.dense_convolutions import BLOCK, READING, Axis, dense_image_us, pixel_taps
from redpebble.kernels.machine import Machine

NEAR = Machine(lanes=16, prices="emerald_rapids", l2_bytes=1 << 30, l3_bytes=1 << 31)
FAR = Machine(lanes=16, prices="emerald_rapids", l2_bytes=2 << 20, l3_bytes=64 << 20, l3_ns=0.035, dram_ns=0.035)


def window(size: int, taps: int = 3) -> list[Axis]:
    """A window that yields as many pixels as it gets, along both axes."""
    return [Axis(size, size, taps, pad=taps // 2)] * 2


@pytest.mark.parametrize(
    ("size", "taps", "stride", "dilation", "pad"), [*product((1, 2, 5, 8), (1, 3, 4), (1, 2), (1, 2), (0, 1, 3))]
)
def test_taps_inside_are_the_ones_that_a_window_of_ones_sums_up(
    size: int, taps: int, stride: int, dilation: int, pad: int
) -> None:
    padded = np.pad(np.ones(size, np.int64), pad)
    span = dilation * (taps - 1) + 1
    sums = [padded[first : first + span : dilation].sum() for first in range(0, len(padded) - span + 1, stride)]
    assert Axis(size, len(sums), taps, stride, dilation, pad).taps_inside.tolist() == sums


@pytest.mark.parametrize("size", [1, 4, 14, 56])
def test_pixels_that_stand_alone_are_one_line(size: int) -> None:
    blocks, left = divmod(size * size, BLOCK)
    assert pixel_taps(window(size, 1)) == blocks * BLOCK + max(left, READING if left else 0)


def test_a_pixel_at_an_edge_is_computed_alone() -> None:
    # lines of 8 pixels: two at edges, of two taps each, and six between them; of eight lines two lack a row of taps
    assert pixel_taps(window(8)) == (2 * READING * 2 + 3 * BLOCK) * (6 * 3 + 2 * 2)


@pytest.mark.parametrize(("small", "large"), [(2, 4), (4, 8), (8, 28), (28, 112)])
def test_a_product_of_a_small_image_takes_longer(small: int, large: int) -> None:
    """Against the products of all taps that are inside the image."""
    ratios = [pixel_taps(window(size)) / (3 * size - 2) ** 2 for size in (small, large)]
    assert ratios[0] > ratios[1] >= 1


def test_weights_from_beyond_the_cache_are_waited_for() -> None:
    weights, axes, product_us = 9 * 256 * 256, window(2), 12e-6
    near, far = (dense_image_us(weights, axes, product_us, one, 24e6) for one in (NEAR, FAR))
    assert near == pytest.approx(256 * 256 * pixel_taps(axes) * product_us)
    assert far - near == pytest.approx(4e-3 * weights * 0.035)

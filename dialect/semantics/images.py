"""References of the layers on images: windows of a padded image, as numpy sees them."""

import numpy as np
from numpy.typing import NDArray

from redpebble.dialect.attributes.activations import ActivationAttr, Floats, activate
from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, Resize2dOp


def conv2d(op: Conv2dOp, x: Floats, weight: Floats, *others: Floats) -> Floats:
    """Return the convolution: the product of all windows with a matrix."""
    windows = _windows(op.window, x, 0.0)
    samples, channels, taps, height, width = windows.shape
    columns = windows.reshape(samples, channels * taps, height * width)
    result = (weight.T @ columns).reshape(samples, weight.shape[1], height, width)
    rest = list(others)
    if op.bias is not None:
        result = result + rest.pop(0)[:, None, None]
    if op.residual is not None:
        result = result + rest.pop(0)
    return _activated(op.activation, result)


def depthwise2d(op: Depthwise2dOp, x: Floats, weight: Floats, bias: Floats | None = None) -> Floats:
    """Return the convolution of each channel."""
    result: Floats = np.einsum("nctij,tc->ncij", _windows(op.window, x, 0.0), weight)
    return _activated(op.activation, result if bias is None else result + bias[:, None, None])


def pool2d(op: Pool2dOp, x: Floats) -> Floats:
    """Return the largest value of each window, or the mean."""
    if op.kind.data == "max":
        return _windows(op.window, x, -np.inf).max(axis=2, initial=-np.inf)
    total = _windows(op.window, x, 0.0).sum(axis=2)
    is_there = np.ones_like(x)
    if op.kind.data == "average":
        return total / _windows(op.window, is_there, 0.0).sum(axis=2)
    return total / len(op.window.taps)


def resize2d(op: Resize2dOp, x: Floats) -> Floats:
    """Return the image with each pixel several times."""
    down, across = op.factors
    return x.repeat(down, axis=2).repeat(across, axis=3)


def _activated(activation: ActivationAttr | None, values: Floats) -> Floats:
    return values if activation is None else activate(activation, values)


def _windows(window: WindowAttr, x: Floats, fill: float) -> NDArray[np.floating]:
    """Return the values of all windows, [N, C, taps, H', W']."""
    top, left, bottom, right = window.pad_sizes
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    (height, width), (down, across) = window.result_size(*x.shape[2:]), window.stride
    shifted = [
        padded[
            :,
            :,
            tap.row + top : tap.row + top + (height - 1) * down + 1 : down,
            tap.column + left : tap.column + left + (width - 1) * across + 1 : across,
        ]
        for tap in window.taps
    ]
    if height == 0 or width == 0:
        shifted = [padded[:, :, :height, :width] for _ in window.taps]
    return np.stack(shifted, axis=2)

"""References of the layers on images: windows of a padded image, as numpy sees them."""

import numpy as np
from numpy.typing import NDArray

from ...foundation.bfloat import rounded_to_bfloat
from ..attributes.activations import ActivationAttr, Floats, activate
from ..attributes.resampling import ResamplingAttr
from ..attributes.window import WindowAttr
from ..ops.images import Conv2dOp, Depthwise2dOp, Interleave2dOp, Pool2dOp, Resample2dOp, image_shape
from .quantized import dynamic_steps, run_on_codes


def conv2d(op: Conv2dOp, x: Floats, weight: Floats, *others: Floats) -> Floats:
    """Return the convolution: the product of all windows with a matrix."""
    if op.times is not None:
        return _conv2d_on_codes(op, x, weight, *others)
    if op.is_rounded:
        x, weight = (rounded_to_bfloat(one.astype(np.float32)).astype(one.dtype) for one in (x, weight))
    windows = _windows(op.window, x, 0.0)
    samples, channels, taps, height, width = windows.shape
    columns = windows.reshape(samples, channels * taps, height * width)
    result = _ranked((weight.T @ columns).reshape(samples, weight.shape[1], height, width), x)
    rest = list(others)
    if op.bias is not None:
        result = result + _by_channel(rest.pop(0), x)
    if op.residual is not None:
        result = result + rest.pop(0)
    return _activated(op.activation, result)


def depthwise2d(op: Depthwise2dOp, x: Floats, weight: Floats, bias: Floats | None = None) -> Floats:
    """Return the convolution of each channel."""
    result: Floats = _ranked(np.einsum("nctij,tc->ncij", _windows(op.window, x, 0.0), weight), x)
    return _activated(op.activation, result if bias is None else result + _by_channel(bias, x))


def _conv2d_on_codes(op: Conv2dOp, x: Floats, *parameters: Floats) -> Floats:
    """Return the convolution on codes: a layer of them on the windows of code - zero, which is 0 in pads."""
    values = x.astype(np.float32)
    if op.finds_codes:
        windows, scale = dynamic_steps(values)
    else:
        windows, scale = values - np.float32(op.on_codes.codes.zero), np.float32(1)
    windows = _windows(op.window, windows, 0.0)
    samples, channels, taps, height, width = windows.shape
    rows = windows.reshape(samples, channels * taps, height * width).transpose(0, 2, 1)
    result = run_on_codes(op, rows, scale, parameters)
    return _ranked(result.transpose(0, 2, 1).reshape(samples, result.shape[2], height, width), x).astype(x.dtype)


def pool2d(op: Pool2dOp, x: Floats) -> Floats:
    """Return the largest value of each window, or the mean."""
    if op.kind.data == "max":
        return _ranked(_windows(op.window, x, -np.inf).max(axis=2, initial=-np.inf), x)
    total = _windows(op.window, x, 0.0).sum(axis=2)
    is_there = np.ones_like(x)
    if op.kind.data == "average":
        return _ranked(total / _windows(op.window, is_there, 0.0).sum(axis=2), x)
    return _ranked(total / len(op.window.taps), x)


def resample2d(op: Resample2dOp, x: Floats) -> Floats:
    """Return the rows, and then the columns, that the op asks for."""
    result = image_of(x)
    for axis, resampling in ((2, op.rows), (3, op.columns)):
        result = _resampled(resampling, result, axis, op.fill.value.data)
    return _ranked(result, x)


def interleave2d(op: Interleave2dOp, x: Floats) -> Floats:
    """Return images whose pixels the channels of `x` are."""
    (rows, columns), (_, channels, height, width) = op.parts, image_shape(op.result)
    source = image_of(x)
    result = np.zeros((len(x), channels, rows * source.shape[2], columns * source.shape[3]), x.dtype)
    for part, (first, step) in enumerate(op.channels_of_parts()):
        row, column = divmod(part, columns)
        result[:, :, row::rows, column::columns] = source[:, first : first + step * channels : step]
    return _ranked(result[:, :, :height, :width], x)


def _resampled(resampling: ResamplingAttr, x: Floats, axis: int, fill: float) -> Floats:
    after = [(0, 0)] * x.ndim
    after[axis] = (0, 1)
    room = np.pad(x, after, constant_values=fill)
    shape = [1] * x.ndim
    shape[axis] = -1
    parts = [room.take(tap.indices, axis=axis) * tap.shares.reshape(shape) for tap in resampling.taps]
    return np.sum(parts, axis=0)


def image_of(x: Floats) -> Floats:
    """Return images [N, C, W] as [N, C, 1, W]."""
    return x if x.ndim == 4 else x[:, :, None]


def _ranked(result: Floats, x: Floats) -> Floats:
    """Return images [N, C, 1, W] as [N, C, W] where `x` is so."""
    return result if x.ndim == 4 else result[:, :, 0]


def _by_channel(bias: Floats, x: Floats) -> Floats:
    return bias.reshape((-1,) + (1,) * (x.ndim - 2))


def _activated(activation: ActivationAttr | None, values: Floats) -> Floats:
    return values if activation is None else activate(activation, values)


def _windows(window: WindowAttr, x: Floats, fill: float) -> NDArray[np.floating]:
    """Return the values of all windows, [N, C, taps, H', W']."""
    x = image_of(x)
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

"""Kernels of convolutions: a convolution is a linear layer over pixels, 64 of them a tile."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType

import numpy as np
from xdsl.dialects.builtin import FloatAttr, f64

from ...dialect.attributes.kernels import KernelAttr
from ...dialect.ops.constants import constant_array
from ...dialect.ops.images import Conv2dOp, Interleave2dOp, image_shape
from ...dialect.provenance import node_key
from ...dialect.tensors import shape_of
from ...dialect.wanted_kernels import WantedKernel
from ...kernels.dense_convolutions import Axis, dense_image_us
from ...kernels.dense_work import dense_us
from ...kernels.families import block_counts
from ...kernels.formats.dense_outputs import PANEL
from ...kernels.image_prices import image_shares, machine_of_images
from ...kernels.machine import Machine
from ...kernels.prediction import tiled_us
from ...kernels.tile_widths import PIXELS
from ...kernels.work import Layer as CostLayer
from ..analysis.layer_costs import layers_of
from ..analysis.weights import density
from ..rewriting.units import Layer
from .image_layers import tile_widths_of, tiles_of


def choose_for_convolutions(
    convolutions: Sequence[Conv2dOp],
    machine: Machine,
    wanted: Mapping[str, WantedKernel] = MappingProxyType({}),
    *,
    rounds: bool = False,
) -> None:
    """Write the family that is predicted to be the fastest on each convolution, and the time of a dense one.

    `wanted` are kernels by the name of a convolution. With `rounds` all may be rounded to bfloat16 afterwards.

    Raises:
        ValueError: a weight is no constant, or a convolution cannot have a family.
    """
    if not convolutions:
        return
    layers, loop_bytes = layers_of([conv.weight for conv in convolutions]), sum(map(_dense_bytes, convolutions))
    product, reading = dense_us(PIXELS, machine), machine_of_images(machine)
    for conv, layer in zip(convolutions, layers, strict=True):
        priced = replace(layer, rounded=rounds or conv.is_rounded)
        conv.kernel = _kernel(conv, priced, reading, wanted.get(node_key(conv)))
        conv.dense_us = FloatAttr(_dense_us(conv, product, loop_bytes, machine), f64)


def dense_convolution_us(conv: Conv2dOp, machine: Machine) -> float:
    """Return the microseconds that an image takes by onnxruntime's dense convolution of floats."""
    product = dense_us(PIXELS, machine)
    return image_shares(machine).dense * _dense_us(conv, product, _dense_bytes(conv), machine)


def _dense_us(conv: Conv2dOp, product: float, loop_bytes: int, machine: Machine) -> float:
    """Return the microseconds of an image by a dense product, where every image reads weights of so many bytes.

    `product` is the time of a multiply-add.
    """
    weights, reader = prod(shape_of(conv.weight)), conv.result.get_user_of_unique_use()
    if isinstance(reader, Interleave2dOp):
        # a transposed convolution is one product there, whose parts are summed up
        products = weights * prod(image_shape(conv.result)[2:]) * _used_taps(conv, reader)
        return products * product + machine.far_ns(_dense_bytes(conv), loop_bytes) / 1000
    return dense_image_us(weights, _axes(conv), product, machine, loop_bytes)


def _axes(conv: Conv2dOp) -> list[Axis]:
    """Return the window along rows and columns."""
    window, sizes, places = conv.window, image_shape(conv.x)[2:], image_shape(conv.result)[2:]
    numbers = window.kernel_size, window.stride, window.dilations, window.pad_sizes[:2]
    return [Axis(*one) for one in zip(sizes, places, *numbers, strict=True)]


def _dense_bytes(conv: Conv2dOp) -> int:
    return 4 * prod(shape_of(conv.weight))


def _used_taps(conv: Conv2dOp, reader: Interleave2dOp) -> float:
    """Return the share of taps that are not zero for all channels, of those of each part of a pixel."""
    (rows, columns), taps = reader.parts, len(conv.window.taps)
    matrix = constant_array(conv.weight)
    if matrix is None:
        return 1.0
    parts = matrix.reshape(-1, taps, rows * columns, image_shape(reader.result)[1])
    used = (parts != 0).any(axis=(0, 3))
    return np.count_nonzero(used) / used.size


def _kernel(conv: Conv2dOp, among: CostLayer, machine: Machine, wanted: WantedKernel | None) -> KernelAttr:
    """Return the kernel of a convolution, a layer among others."""
    weight = Layer(conv).weight
    if among.outputs % PANEL and (among.counts == among.inputs).all():
        # dense kernels would fill a panel of outputs with zeros; those of sparse layers do no such work
        among = replace(among, stored="sparse")
    choices, predicted = dict[int, str](), dict[int, float]()
    text = f"density {density(weight):.3f}, {tiles_of(conv)} tiles of pixels"
    for width in tile_widths_of(conv, machine.lanes):
        times = tiled_us(among, width, tiles_of(conv, width), machine)
        best = min(times, key=times.__getitem__)
        if wanted is not None:
            best = wanted.family_at(width, times) or best
        predicted[width] = times.pop(best)
        if best not in list(choices.values())[-1:]:
            choices[width if choices else 1] = best
        if width == PIXELS and times:
            following = min(times, key=times.__getitem__)
            text += f"; next {following} {times[following]:.3g} us"
    blocks = {name: count for name, count in block_counts(among).items() if name in choices.values()}
    return KernelAttr(choices, text, predicted, blocks=blocks)

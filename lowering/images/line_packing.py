"""Packed constants for lines of codes: where bytes go, and the weights of quantized convolutions."""

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from ...dialect.ops.constants import constant_array
from ...dialect.ops.images import QuantizedConv2dOp, WindowOp
from ...kernels import byte_quads
from ...kernels.byte_quads import QuadForm
from ...kernels.tile_widths import PIXELS
from ..quantized.rounding import CodeBounds
from ..quantized.step import bias_of, weight_of
from .geometry import NO_PIXEL, Plane
from .packing import phase_positions
from .windows import OUTSIDE_BYTES

Arrays = list[NDArray[np.generic]]


def outside_line(code: int, _: Operation | None) -> Arrays:
    """Return the row outside of all tiles."""
    return [np.full(OUTSIDE_BYTES, code, dtype=np.uint8)]


def pixel_bits(plane: Plane, _: Operation | None) -> Arrays:
    """Return 64 bits for each tile: which positions are pixels."""
    return [_bits(plane.pixels() != NO_PIXEL)]


def _bits(flags: NDArray[np.bool_]) -> NDArray[np.uint64]:
    return np.packbits(flags.reshape(-1, PIXELS), axis=1, bitorder="little").view(np.uint64).ravel()


def pixel_places(plane: Plane, _: Operation | None) -> Arrays:
    """Return what is known of tiles, whose pixels lie next to each other in an image as ONNX has it.

    These are the number of the first one of each tile, and behind the last tile that of all; for each position the
    pixel of its tile, and for each pixel of a tile its position.
    """
    pixels = plane.pixels().reshape(-1, PIXELS)
    is_pixel = pixels != NO_PIXEL
    counts = is_pixel.sum(axis=1)
    firsts = np.append(0, np.cumsum(counts))
    inward = np.where(is_pixel, pixels - firsts[:-1, None], 0)
    # stable: pixels before what is none, in their order
    outward = np.argsort(~is_pixel, axis=1, kind="stable")
    return [firsts.astype(np.int64), inward.astype(np.uint8), outward.astype(np.uint8)]


def phase_lines(plane: Plane, target: Plane, op: Operation | None) -> Arrays:
    """Return of which lines those of phases are made: see `lines.copying_lines`; one table for each phase."""
    assert isinstance(op, WindowOp)
    found: Arrays = []
    for positions in phase_positions(plane, target, op):
        lines = positions.reshape(-1, PIXELS)
        starts, tiles, places, bits = [0], list[int](), list[NDArray[np.int64]](), list[NDArray[np.bool_]]()
        for line in lines:
            is_pixel = line != NO_PIXEL
            for tile in np.unique(line[is_pixel] // PIXELS).tolist():
                here = is_pixel & (line // PIXELS == tile)
                tiles.append(tile)
                places.append(np.where(here, line % PIXELS, 0))
                bits.append(here)
            starts.append(len(tiles))
        # a table is never empty
        table = np.array([*places, np.zeros(PIXELS)]).astype(np.uint8)
        flags = _bits(np.array([*bits, np.zeros(PIXELS, np.bool_)]))
        found += [np.array(starts, np.int64), np.array([*tiles, 0], np.int64), table, flags]
    return found


def rounding_bounds(codes: CodeBounds, _: Operation | None) -> Arrays:
    """Return the words by which code knows codes."""
    return [codes.words()]


def packed_quads(form: QuadForm, blocks: int, op: Operation | None) -> Arrays:
    """Return the arrays of `quad_layer.PackedQuads` for a convolution; with found codes, bias and multiplier are none.

    Raises:
        ValueError: the multiplier is no constant.
    """
    assert isinstance(op, QuantizedConv2dOp)
    layer, multiplier = op.layer, constant_array(op.multiplier)
    if multiplier is None:
        raise ValueError("the multiplier of a quantized convolution is no constant")
    weight, bounds = weight_of(layer), np.zeros(1, np.int32)
    if op.output is not None:
        positive = op.activation is not None and op.activation.kind == "relu"
        bounds = CodeBounds.of(op.output, positive=positive).words()
        if layer.rounds_sums:
            multiplier = multiplier / np.float32(op.output.scale)
    padding = (0, -weight.shape[1] % byte_quads.QUAD)
    if op.codes.is_dynamic:
        added = constant_array(op.bias)
        assert added is not None
        nothing = np.zeros(1, np.int32)
        return [*byte_quads.pack(weight, blocks, form), nothing, nothing, np.pad(added.astype(np.float32), padding)]
    outputs = [np.pad(one, padding) for one in (bias_of(layer, weight), multiplier.astype(np.float32))]
    return [*byte_quads.pack(weight, blocks, form), *outputs, bounds]

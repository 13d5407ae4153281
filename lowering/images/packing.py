"""Packed constants of image networks: tables of positions, weights in the shares of threads, and those of codes.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from ...dialect.attributes.codes import codes_in
from ...dialect.ops.constants import constant_array
from ...dialect.ops.images import (
    Conv2dOp,
    Depthwise2dOp,
    Interleave2dOp,
    Pool2dOp,
    Resample2dOp,
    WindowOp,
    image_shape,
)
from ...dialect.tensors import shape_of
from ...kernels import byte_quads
from ...kernels.byte_quads import QuadForm
from ...kernels.family import LayerWeights
from ...kernels.formats.count_blocks import pack
from ...kernels.row_segments import FIRST, LAST, PackedBlocks
from ...kernels.tile_widths import PIXELS
from ...sparse.csr import CscMatrix
from ..kernels.kernel_form import layer_weights
from ..kernels.table import kernel_at
from ..quantized.rounding import CodeBounds
from ..quantized.step import bias_of, weight_of
from .geometry import NO_PIXEL, Phases, Plane

Indices = NDArray[np.int64]
Arrays = list[NDArray[np.generic]]


def incoming_pixels(plane: Plane, _: Operation | None) -> list[NDArray[np.int32]]:
    """Return for each position the number of its pixel in an image."""
    return [plane.pixels().astype(np.int32)]


def first_pixels(tile: int, _: Operation | None) -> list[NDArray[np.int32]]:
    """Return for 0 to `tile` pixels, for each position of a tile, the pixel: those come first."""
    return strided_pixels(tile, tile, 1, 0, None)


def strided_pixels(
    tile: int, tile_values: int, stride: int, first: int, _: Operation | None
) -> list[NDArray[np.int32]]:
    """Return the same for every so many pixels from a first one on, counted from the tile in which they begin."""
    position = np.arange(tile)
    tiles, rest = np.divmod(position * stride + first, tile)
    place = tiles * tile_values + rest
    return [np.where(position < np.arange(tile + 1)[:, None], place, NO_PIXEL).astype(np.int32)]


def even_shares(tile: int, op: Operation | None) -> list[NDArray[np.float32]]:
    """Return for each position of a mean the share that each value of its window has: none is a pad."""
    assert isinstance(op, Pool2dOp)
    return [np.full(tile, 1.0 / len(op.window.taps), np.float32)]


def all_positions(tile: int, _: Operation | None) -> list[NDArray[np.int32]]:
    """Return the positions of a tile, and one behind them."""
    return [np.arange(tile + 1, dtype=np.int32)]


def outgoing_pixels(plane: Plane, tile_values: int, _: Operation | None) -> list[NDArray[np.int32]]:
    """Return for each pixel the distance in floats of its position from the first tile."""
    rows, columns = np.divmod(np.arange(plane.height * plane.width), plane.width)
    # whole vectors of the table are read
    found = np.full(-(-len(rows) // plane.tile) * plane.tile, NO_PIXEL)
    found[: len(rows)] = plane.distances(plane.positions(rows, columns), tile_values)
    return [found.astype(np.int32)]


def _rows_and_columns(plane: Plane) -> tuple[Indices, Indices]:
    """Return the row and the column of each position; columns of pads are far outside."""
    row, column = np.divmod(np.arange(plane.tiles * plane.tile), plane.pitch)
    outside = (column >= plane.width) | (row >= plane.height)
    far = 1 << 30
    return np.where(outside, far, row), np.where(outside, far, column)


def phase_pixels(plane: Plane, tile_values: int, target: Plane, op: Operation | None) -> list[NDArray[np.int32]]:
    """Return for each phase, and each of its positions, where the pixel is in the source."""
    assert isinstance(op, WindowOp)
    return [plane.distances(one, tile_values).astype(np.int32) for one in phase_positions(plane, target, op)]


def phase_positions(plane: Plane, target: Plane, op: WindowOp) -> list[Indices]:
    """Return for each phase, and each of its positions, that of the pixel in the source; `NO_PIXEL` for none."""
    phases = Phases.of(op.window)
    rows, columns = _rows_and_columns(target)
    down, across = phases.stride
    return [plane.positions(rows * down + first, columns * across + second) for first, second in phases.offsets]


def _pixels_of(target: Plane) -> tuple[Indices, Indices, NDArray[np.bool_]]:
    """Return the row and the column of each position, 0 where it is no pixel, and whether it is one."""
    row, column = np.divmod(np.arange(target.tiles * target.tile), target.pitch)
    inside = (row < target.height) & (column < target.width)
    return np.where(inside, row, 0), np.where(inside, column, 0), inside


def resampled_positions(plane: Plane, target: Plane, op: Resample2dOp) -> list[Indices]:
    """Return for each pair of taps, and each position, that of the pixel in the source."""
    row, column, inside = _pixels_of(target)
    return [
        np.where(inside, plane.positions(down.indices[row], across.indices[column]), NO_PIXEL)
        for down in op.rows.taps
        for across in op.columns.taps
    ]


def resampled_pixels(plane: Plane, tile_values: int, target: Plane, op: Operation | None) -> Arrays:
    """Return for each position where the pixels are that it has a share of, of two each pair; then the shares."""
    assert isinstance(op, Resample2dOp)
    row, column, _ = _pixels_of(target)
    positions = resampled_positions(plane, target, op)
    found = [plane.distances(one, tile_values).astype(np.int32) for one in positions]
    shares = [down.shares[row] * across.shares[column] for down in op.rows.taps for across in op.columns.taps]
    return [*found] if len(found) == 1 else [*found, *shares]


def interleaved_positions(plane: Plane, target: Plane, op: Interleave2dOp) -> Indices:
    """Return for each position that of the pixel of which it is a part."""
    (rows, columns), (row, column, inside) = op.parts, _pixels_of(target)
    return np.where(inside, plane.positions(row // rows, column // columns), NO_PIXEL)


def interleaved_pixels(plane: Plane, tile_values: int, target: Plane, op: Operation | None) -> Arrays:
    """Return for each position where its pixel is, in the first channel of its part."""
    assert isinstance(op, Interleave2dOp)
    (rows, columns), firsts = op.parts, np.array([first for first, _ in op.channels_of_parts()])
    row, column, _ = _pixels_of(target)
    places = plane.distances(interleaved_positions(plane, target, op), tile_values)
    parts = plane.tile * firsts[row % rows * columns + column % columns]
    return [np.where(places != NO_PIXEL, places + parts, NO_PIXEL).astype(np.int32)]


def minus_infinity_outside(plane: Plane, _: Operation | None) -> list[NDArray[np.float32]]:
    """Return for each position 0, or what is less than all values where it is no pixel."""
    return [np.where(plane.pixels() == NO_PIXEL, -np.inf, 0).astype(np.float32)]


def empty_positions(plane: Plane, _: Operation | None) -> Arrays:
    """Return where the positions of each tile begin that are no pixels, and these, counted in their tile."""
    return _listed(plane.pixels() == NO_PIXEL, plane.tile)


def empty_phases(plane: Plane, target: Plane, op: Operation | None) -> Arrays:
    """Return the same for the phases of a plane, each phase of a tile after the other."""
    assert isinstance(op, WindowOp)
    phases = np.stack(phase_positions(plane, target, op)).reshape(-1, target.tiles, target.tile)
    return _listed(phases.transpose(1, 0, 2).ravel() == NO_PIXEL, target.tile)


def _listed(is_empty: NDArray[np.bool_], tile: int) -> Arrays:
    empty = np.flatnonzero(is_empty)
    starts = np.searchsorted(empty, np.arange(0, len(is_empty) + 1, tile))
    return [starts.astype(np.int64), np.append(empty % tile, 0).astype(np.int32)]


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


def outside_row(value: np.generic, count: int, _: Operation | None) -> Arrays:
    """Return the row outside of all tiles, of floats or of codes."""
    return [np.full(count, value)]


def channel_taps(op: Operation | None) -> list[NDArray[np.float32]]:
    """Return the factors [channels, taps] of a depthwise convolution, and its bias.

    Raises:
        ValueError: one is no constant.
    """
    assert isinstance(op, Depthwise2dOp)
    weight = constant_array(op.weight)
    bias = np.zeros(shape_of(op.weight)[1], np.float32) if op.bias is None else constant_array(op.bias)
    if weight is None or bias is None:
        raise ValueError("a parameter of a depthwise convolution is no constant")
    return [np.ascontiguousarray(weight.T), bias]


def window_shares(plane: Plane, op: Operation | None) -> list[NDArray[np.float32]]:
    """Return for each position of a mean the share that each value of its window has."""
    assert isinstance(op, Pool2dOp)
    _, _, height, width = image_shape(op.x)
    rows, columns = _rows_and_columns(plane)
    down, across = op.window.stride
    counts = np.zeros(len(rows))
    for tap in op.window.taps:
        row, column = rows * down + tap.row, columns * across + tap.column
        counts += (row >= 0) & (row < height) & (column >= 0) & (column < width)
    if op.kind.data == "average_with_pads":
        counts[:] = len(op.window.taps)
    return [(1.0 / np.maximum(1.0, counts)).astype(np.float32)]


def rounding_bounds(codes: CodeBounds, _: Operation | None) -> Arrays:
    """Return the words by which code knows codes."""
    return [codes.words()]


def packed_quads(form: QuadForm, blocks: int, center: int, op: Operation | None) -> Arrays:
    """Return the arrays of `quad_layer.PackedQuads` for a convolution; with found codes, bias and multiplier are none.

    The bias is that of sums of codes less `center`.

    Raises:
        ValueError: the multiplier is no constant.
    """
    assert isinstance(op, Conv2dOp)
    layer, output = op.on_codes, codes_in(op.result.type)
    multiplier = constant_array(layer.multiplier)
    if multiplier is None:
        raise ValueError("the multiplier of a quantized convolution is no constant")
    weight, bounds = weight_of(layer), np.zeros(1, np.int32)
    if output is not None:
        positive = op.activation is not None and op.activation.kind == "relu"
        bounds = CodeBounds.of(output, positive=positive).words()
        if layer.rounds_sums:
            multiplier = multiplier / np.float32(output.scale)
    padding = (0, -weight.shape[1] % byte_quads.QUAD)
    if op.finds_codes:
        nothing = np.zeros(1, np.int32)
        added = np.pad(layer.added.astype(np.float32), padding)
        return [*byte_quads.pack(weight, blocks, form), nothing, nothing, added]
    outputs = [np.pad(one, padding) for one in (bias_of(layer, weight, center), multiplier.astype(np.float32))]
    return [*byte_quads.pack(weight, blocks, form), *outputs, bounds]


def packed_shares(borders: tuple[int, ...], rows: int, tile: int, op: Operation | None) -> Arrays:
    """Return the packed weights of a convolution: one share after the other, each for `rows` inputs after others.

    The kernel is that for tiles of `tile` positions.

    Raises:
        ValueError: the bias is no constant.
    """
    assert isinstance(op, Conv2dOp)
    inputs, outputs = shape_of(op.weight)
    bias = np.zeros(outputs, dtype=np.float32) if op.bias is None else constant_array(op.bias)
    if bias is None:
        raise ValueError("bias is no constant")
    kernel = kernel_at(op.kernel, tile)
    whole = layer_weights(op.weight, bias, kernel.blocks)
    packed: list[NDArray[np.generic]] = []
    # shares one after the other, and in a share the chunks of inputs
    for first, end in pairwise(borders):
        share = whole if len(borders) == 2 else whole.share(first, end)
        if rows >= inputs:
            packed += kernel.family.pack(share)
            continue
        for start in range(0, inputs, rows):
            weight = _rows_between(share.sparse, start, min(inputs, start + rows))
            packed += _continued(pack(LayerWeights(weight, share.bias)), start == 0, start + rows >= inputs)
    return packed


def _rows_between(weight: CscMatrix, first: int, end: int) -> CscMatrix:
    """Return the inputs of a weight from `first` to the one before `end`."""
    inside = (weight.rows >= first) & (weight.rows < end)
    pointers = np.zeros(weight.shape[1] + 1, dtype=np.int64)
    np.cumsum(np.bincount(weight.columns[inside], minlength=weight.shape[1]), out=pointers[1:])
    return CscMatrix((end - first, weight.shape[1]), pointers, weight.rows[inside] - first, weight.values[inside])


def _continued(packed: PackedBlocks, is_first: bool, is_last: bool) -> PackedBlocks:
    """Return packed weights that go on with the sums of others unless they are the first, or leave them to others."""
    for flag, stays in ((FIRST, is_first), (LAST, is_last)):
        if not stays:
            packed.records[:, -1] &= np.uint32(0xFFFFFFFF ^ flag << 16)
    return packed


def border_numbers(borders: tuple[int, ...], _: Operation | None) -> list[NDArray[np.int64]]:
    """Return the borders of shares."""
    return [np.array(borders, dtype=np.int64)]

"""Kernels on lines of codes, 64 positions each: into tiles and out of them, from plane to plane, floats and bytes."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Block

from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.images import Pool2dOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.tile_widths import PIXELS
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.images.geometry import NO_PIXEL, Phases, Plane
from redpebble.lowering.images.lines import (
    clearing_lines,
    copying_lines,
    entering_lines,
    leaving_lines,
    lines_to_floats,
    rounding_pixels,
)
from redpebble.lowering.images.movement import blending, clearing, leaving
from redpebble.lowering.images.packing import (
    empty_positions,
    incoming_pixels,
    outgoing_pixels,
    phase_lines,
    phase_positions,
    pixel_bits,
    pixel_places,
)
from redpebble.lowering.quantized.rounding import CodeBounds
from tests.support.called_kernels import aligned, called
from tests.support.lowering_modules import HERE, each_target

CHANNELS = 3
PLANE = Plane(9, 10, 13)
"""Two tiles, with three positions between rows."""

CODES = CodesAttr("u8", 0.5, 100)
WORDS = CodeBounds.of(CODES).words()
SCALE, ZERO = CODES.scale, CODES.unsigned_zero

GENERIC = HERE["generic"]


def images() -> NDArray[np.float32]:
    """Floats of which some lie beyond the codes, half way between two, or are no numbers."""
    values = np.random.default_rng(0).integers(-300, 300, (CHANNELS, 90)) * np.float32(0.25)
    values[0, :4] = [np.nan, np.inf, -np.inf, 1e30]
    return values.astype(np.float32)


def codes_of(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The codes, a NaN being the least one."""
    multiples = np.nan_to_num(values / np.float32(SCALE), nan=-1e9, posinf=1e9, neginf=-1e9)
    return np.clip(np.rint(multiples) + ZERO, 0, 255).astype(np.uint8)


def at_positions(values: NDArray[np.generic], fill: float) -> NDArray[np.generic]:
    """Pixels [channels, 90] at their positions, [channels, positions]."""
    pixels = PLANE.pixels()
    return np.where(pixels == NO_PIXEL, fill, values[:, pixels]).astype(values.dtype)


def tiles_of(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """Values [channels, positions] as kernels have them, [tiles, channels, 64]."""
    return aligned(np.stack(np.split(values, values.shape[1] // PIXELS, axis=1)))


def untiled(tiles: NDArray[np.generic]) -> NDArray[np.generic]:
    return np.concatenate(tiles, axis=1)


def nowhere(kind: type[np.generic], positions: int = PLANE.tiles * PIXELS) -> NDArray[np.generic]:
    """Tiles of which nothing has been written."""
    return tiles_of(np.full((CHANNELS, positions), 77, kind))


@each_target
def test_floats_come_in_as_codes_and_leave_as_floats(target: CpuTarget) -> None:
    firsts, inward, outward = (aligned(table.ravel()) for table in pixel_places(PLANE, None))
    (bits,) = pixel_bits(PLANE, None)
    enter, leave = called(entering_lines, target), called(leaving_lines, target)
    values, tiles = images(), nowhere(np.uint8)
    back = np.full((CHANNELS, 90), np.nan, np.float32)
    for tile, (first, end) in enumerate(pairwise(firsts.tolist())):
        places = tile * PIXELS
        source, target_pixels, count = values.ravel()[first:], back.ravel()[first:], end - first
        enter(source, 90, tiles[tile], count, inward[places:], bits[tile:], WORDS, ZERO, CHANNELS)
        leave(tiles[tile], target_pixels, 90, count, outward[places:], SCALE, ZERO, CHANNELS)
    np.testing.assert_array_equal(untiled(tiles), at_positions(codes_of(values), ZERO))
    np.testing.assert_array_equal(back, (codes_of(values) - np.float32(ZERO)) * np.float32(SCALE))


@each_target
def test_lines_of_phases_are_made_of_lines_of_several_tiles(target: CpuTarget) -> None:
    window = WindowAttr((3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    x = Block(arg_types=[f32_tensor((DYNAMIC, CHANNELS, 9, 10))]).args[0]
    op, result = Pool2dOp(x, "max", window), Plane(5, 5, 7)
    tables, positions = phase_lines(PLANE, result, op), phase_positions(PLANE, result, op)
    codes = np.random.default_rng(1).integers(0, 256, (CHANNELS, PLANE.tiles * PIXELS)).astype(np.uint8)
    copy, source = called(copying_lines, target), tiles_of(codes)
    assert len(tables) == 4 * len(positions) == 4 * len(Phases.of(window).offsets)
    for phase, wanted in enumerate(positions):
        starts, tiles, places, bits = map(aligned, tables[4 * phase : 4 * (phase + 1)])
        found = nowhere(np.uint8, len(wanted))
        for tile, (begin, end) in enumerate(pairwise(starts.tolist())):
            copy(source, CHANNELS * PIXELS, found[tile], begin, end, tiles, places, bits, 13, CHANNELS)
        np.testing.assert_array_equal(untiled(found), np.where(wanted == NO_PIXEL, 13, codes[:, wanted]))


@each_target
def test_floats_of_a_plane_are_rounded_to_codes_in_their_places(target: CpuTarget) -> None:
    (table,) = map(aligned, incoming_pixels(PLANE, None))
    kernel, tiles, values = called(rounding_pixels, target), nowhere(np.uint8), images()
    for tile in range(PLANE.tiles):
        kernel(values, 90, tiles[tile], table[PIXELS * tile :], WORDS, 5, CHANNELS)
    np.testing.assert_array_equal(untiled(tiles), at_positions(codes_of(values), 5))


def test_codes_stand_for_floats() -> None:
    codes = np.random.default_rng(1).integers(0, 256, (1, CHANNELS, PIXELS)).astype(np.uint8)
    found = aligned(np.zeros(codes.shape, np.float32))
    called(lines_to_floats, GENERIC)(aligned(codes), found, SCALE, ZERO, CHANNELS)
    np.testing.assert_array_equal(found, (codes - np.float32(ZERO)) * np.float32(SCALE))


def test_positions_without_a_pixel_are_cleared_and_no_others() -> None:
    (bits,), (starts, empty) = pixel_bits(PLANE, None), empty_positions(PLANE, None)
    lines, floats = nowhere(np.uint8), nowhere(np.float32)
    of_lines, of_floats = called(clearing_lines, GENERIC), called(clearing, GENERIC)
    for tile, (begin, end) in enumerate(pairwise(starts.tolist())):
        of_lines(lines[tile], bits, tile, ZERO, CHANNELS)
        of_floats(floats[tile], empty[begin:], end - begin, CHANNELS)
    before = np.full((CHANNELS, 90), 77)
    np.testing.assert_array_equal(untiled(lines), at_positions(before, ZERO))
    np.testing.assert_array_equal(untiled(floats), at_positions(before, 0))


def test_pixels_leave_a_plane() -> None:
    (back,) = outgoing_pixels(PLANE, CHANNELS * PIXELS, None)
    outward, values = called(leaving, GENERIC), images()
    tiles = aligned(at_positions(values, 2.5).reshape(CHANNELS, PLANE.tiles, PIXELS).transpose(1, 0, 2).copy())
    found = np.zeros((CHANNELS, 90 + 1), np.float32)
    for first in (0, PIXELS):
        outward(tiles, found.ravel()[first:], 91, back[first:], min(PIXELS, 90 - first), CHANNELS)
    np.testing.assert_array_equal(found, np.pad(values, ((0, 0), (0, 1))))


def test_pixels_are_blended_by_shares_and_what_is_no_pixel_has_none() -> None:
    source = np.full((1, CHANNELS, PIXELS), np.nan, np.float32)
    source[..., 1:3] = [[1, 2], [3, 4], [5, 6]]
    tables = [np.full(PIXELS, NO_PIXEL, np.int32) for _ in range(2)]
    shares = [aligned(np.full(PIXELS, share, np.float32)) for share in (0.25, 0.75)]
    tables[0][5], tables[1][5:7] = 1, 2
    found = nowhere(np.float32, PIXELS)
    called(lambda code: blending(code, 2), GENERIC)(aligned(source), found, CHANNELS, *tables, *shares)
    expected = np.zeros((CHANNELS, PIXELS))
    expected[:, 5], expected[:, 6] = [1.75, 3.75, 5.75], [1.5, 3, 4.5]
    np.testing.assert_array_equal(untiled(found), expected)

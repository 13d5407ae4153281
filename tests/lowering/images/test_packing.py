"""Tables of positions and weights that code of image networks reads, against what they stand for, pixel by pixel."""

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.resampling import ResamplingAttr
from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.ops.images import Depthwise2dOp, Pool2dOp, Pooling, Resample2dOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.tile_widths import PIXELS
from redpebble.lowering.images import packing
from redpebble.lowering.images.geometry import NO_PIXEL, Plane

PLANES = [Plane(9, 10, 13), Plane(1, 1, 1), Plane(70, 1, 2), Plane(3, 64, 64), Plane(2, 40, 90)]

each_plane = pytest.mark.parametrize("plane", PLANES, ids=str)


def an_image(height: int, width: int, channels: int = 1) -> SSAValue:
    return Block(arg_types=[f32_tensor((DYNAMIC, channels, height, width))]).args[0]


def rows_and_columns(plane: Plane) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of each position, [positions]."""
    return np.divmod(np.arange(plane.tiles * PIXELS), plane.pitch)


@each_plane
def test_pixels_find_their_positions_and_these_their_pixels(plane: Plane) -> None:
    tile_values, count = 5 * PIXELS, plane.height * plane.width
    (inward,), (outward,) = packing.incoming_pixels(plane, None), packing.outgoing_pixels(plane, tile_values, None)
    assert outward.size % PIXELS == 0
    tile, rest = np.divmod(outward[:count], tile_values)
    np.testing.assert_array_equal(inward[tile * PIXELS + rest], np.arange(count))
    assert (outward[count:] == NO_PIXEL).all()
    assert (inward >= 0).sum() == count


@each_plane
def test_positions_without_a_pixel_are_known_by_tile_and_by_bit(plane: Plane) -> None:
    starts, empty = packing.empty_positions(plane, None)
    (bits,) = packing.pixel_bits(plane, None)
    is_pixel = (plane.pixels() != NO_PIXEL).reshape(-1, PIXELS)
    for tile, flags in enumerate(is_pixel):
        assert empty[starts[tile] : starts[tile + 1]].tolist() == np.flatnonzero(~flags).tolist()
        assert [bool(int(bits[tile]) >> place & 1) for place in range(PIXELS)] == flags.tolist()
    (outside,) = packing.minus_infinity_outside(plane, None)
    np.testing.assert_array_equal(outside, np.where(is_pixel.ravel(), 0, -np.inf))


@each_plane
def test_pixels_of_a_tile_lie_next_to_each_other_in_the_image(plane: Plane) -> None:
    firsts, inward, outward = packing.pixel_places(plane, None)
    pixels = plane.pixels().reshape(-1, PIXELS)
    assert firsts[-1] == plane.height * plane.width
    for tile, line in enumerate(pixels):
        positions = np.flatnonzero(line != NO_PIXEL)
        count = firsts[tile + 1] - firsts[tile]
        assert line[positions].tolist() == list(range(firsts[tile], firsts[tile + 1]))
        assert inward[tile][positions].tolist() == list(range(count))
        assert outward[tile][:count].tolist() == positions.tolist()


STRIDED = [
    WindowAttr((3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    WindowAttr((1, 1), strides=(3, 4)),
    WindowAttr((2, 3), strides=(1, 3), dilations=(3, 2), pads=(2, 4, 0, 3)),
]


@pytest.mark.parametrize("window", STRIDED, ids=str)
@pytest.mark.parametrize("size", [(9, 10), (7, 1), (1, 30)])
def test_phases_hold_every_so_many_pixel_and_pads_hold_none(window: WindowAttr, size: tuple[int, int]) -> None:
    if 0 in window.result_size(*size):
        window = WindowAttr(window.kernel, window.strides, window.dilations, (9, 9, 9, 9))
    source = Plane(*size, size[1] + 2)
    weight = ConstantOp(np.zeros((len(window.taps), 1), np.float32)).result
    op = Depthwise2dOp(an_image(*size), weight, None, window)
    phases = packing.Phases.of(window)
    target = Plane(*phases.size(*size), size[1] + 3)
    rows, columns = rows_and_columns(target)
    inside = (rows < target.height) & (columns < target.width)
    tables = packing.phase_pixels(source, 7 * PIXELS, target, op)
    for (first, second), table in zip(phases.offsets, tables, strict=True):
        row, column = rows * window.stride[0] + first, columns * window.stride[1] + second
        wanted = np.where(inside & (row < size[0]) & (column < size[1]), row * source.pitch + column, NO_PIXEL)
        tile, rest = np.divmod(wanted, PIXELS)
        np.testing.assert_array_equal(table, np.where(wanted == NO_PIXEL, NO_PIXEL, tile * 7 * PIXELS + rest))


@pytest.mark.parametrize("kind", ["average", "average_with_pads"])
def test_shares_of_a_mean_count_what_is_there_or_all_taps(kind: Pooling) -> None:
    op = Pool2dOp(an_image(5, 4), kind, WindowAttr((3, 2), strides=(2, 1), pads=(2, 1, 1, 0)))
    plane = Plane(*op.window.result_size(5, 4), 6)
    (shares,) = packing.window_shares(plane, op)
    rows, columns = np.indices((plane.height, plane.width)).reshape(2, -1)
    there = [
        sum(0 <= 2 * row + tap.row < 5 and 0 <= column + tap.column < 4 for tap in op.window.taps)
        for row, column in zip(rows, columns, strict=True)
    ]
    expected = 1 / np.array(there if kind == "average" else [6] * len(there), dtype=np.float32)
    np.testing.assert_array_equal(shares[plane.pixels() != NO_PIXEL], expected)


def test_resampled_pixels_have_an_index_for_each_tap_and_a_share() -> None:
    source, target = Plane(3, 2, 4), Plane(2, 3, 5)
    rows, columns = ResamplingAttr([0, 2]), ResamplingAttr([-1, 0, 1])
    (table,) = packing.resampled_pixels(source, PIXELS, target, Resample2dOp(an_image(3, 2), rows, columns))
    assert table[:9].tolist() == [-1, 0, 1, -1, -1, -1, 8, 9, -1]
    between = ResamplingAttr([0, 1, 1], [1, 1, 1], [0.25, 0, 0])
    made = packing.resampled_pixels(source, PIXELS, target, Resample2dOp(an_image(3, 2), rows, between))
    assert [one[:3].tolist() for one in made] == [[0, 1, 1], [1, 1, 1], [0.75, 1, 1], [0.25, 0, 0]]


def test_factors_of_a_depthwise_convolution_stand_by_channel_and_have_a_bias() -> None:
    factors = ConstantOp(np.arange(8, dtype=np.float32).reshape(4, 2)).result
    op = Depthwise2dOp(an_image(5, 4, channels=2), factors, None, WindowAttr((2, 2)))
    weight, bias = packing.channel_taps(op)
    assert weight.flags.c_contiguous
    assert weight.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert bias.tolist() == [0, 0]
    unknown = Block(arg_types=[f32_tensor((4, 2))]).args[0]
    with pytest.raises(ValueError, match="no constant"):
        packing.channel_taps(Depthwise2dOp(an_image(5, 4, channels=2), unknown, None, WindowAttr((2, 2))))

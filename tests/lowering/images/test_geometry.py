"""Planes of pixels: a tap is the same distance for all positions, and finds its pixel, or a position that has none."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.ir import Block

from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.ops.images import Conv2dOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.tile_widths import IMAGE_TILES, PIXELS
from redpebble.lowering.images.geometry import NO_PIXEL, Phases, Plane, planes_of
from redpebble.lowering.images.windows import WindowForm


def test_a_plane_has_room_between_its_rows_and_none_behind_the_last_pixel() -> None:
    plane = Plane(2, 3, 5)
    assert plane.pixels()[:9].tolist() == [0, 1, 2, NO_PIXEL, NO_PIXEL, 3, 4, 5, NO_PIXEL]
    assert plane.pixels().size == PIXELS
    assert Plane(1, PIXELS, 100).tiles == 1
    assert Plane(2, 1, PIXELS).tiles == 2
    rows, columns = np.array([1, 1, 2, -1, 0]), np.array([0, 3, 0, 0, 2])
    assert plane.positions(rows, columns).tolist() == [5, NO_PIXEL, NO_PIXEL, NO_PIXEL, 2]


def test_phases_are_as_many_as_taps_reach() -> None:
    assert Phases.of(WindowAttr((3, 3), pads=(1, 1, 1, 1))).is_whole
    assert len(Phases.of(WindowAttr((3, 3), strides=(2, 2))).offsets) == 4
    assert len(Phases.of(WindowAttr((1, 1), strides=(3, 3))).offsets) == 1
    assert len(Phases.of(WindowAttr((3, 3), strides=(2, 2), dilations=(2, 2))).offsets) == 1
    assert Phases.of(WindowAttr((1, 1), strides=(3, 3))).size(7, 2) == (3, 1)


def test_tiles_are_read_where_they_are_by_a_window_of_a_pixel_alone() -> None:
    plane, point = Plane(4, 5, 7), Phases.of(WindowAttr((1, 1)))
    assert point.reads_tiles(plane, plane)
    assert not point.reads_tiles(plane, Plane(4, 5, 8))
    assert not point.reads_tiles(Plane(2, 5, 7), Plane(20, 5, 7))
    assert not Phases.of(WindowAttr((1, 2))).reads_tiles(plane, plane)


def test_tiles_of_small_images_are_those_on_which_their_convolutions_take_the_least_time() -> None:
    x = Block(arg_types=[f32_tensor((DYNAMIC, 2, 3, 4))]).args[0]
    op = Conv2dOp(x, ConstantOp(np.zeros((2, 2), np.float32)).result, None, WindowAttr((1, 1)))
    tiles = list[int]()
    for times in ({16: 3.0, 64: 3.5}, {16: 3.0, 64: 2.5}, {64: 9.0}):
        op.kernel = KernelAttr({1: "count_blocks"}, "by the test", times)
        tiles.append(planes_of([op], [x, op.result], 8)[3, 4].tile)
    assert tiles == [16, 64, 64]
    # what no convolution yields has as few positions as it needs
    assert planes_of([], [x], 8)[3, 4].tile == 16


def test_a_tile_has_a_vector_at_least() -> None:
    x = Block(arg_types=[f32_tensor((DYNAMIC, 2, 2, 2))]).args[0]
    op = Conv2dOp(x, ConstantOp(np.zeros((2, 2), np.float32)).result, None, WindowAttr((1, 1)))
    op.kernel = KernelAttr({1: "count_blocks"}, "by the test", {8: 1.0, 64: 3.5})
    assert [planes_of([op], [x, op.result], lanes)[2, 2].tile for lanes in (4, 8, 16)] == [8, 8, 64]
    assert [planes_of([], [x], lanes)[2, 2].tile for lanes in (4, 8, 16)] == [8, 8, 16]


def test_rows_have_no_room_between_them_where_that_saves_tiles() -> None:
    x = Block(arg_types=[f32_tensor((DYNAMIC, 2, 8, 8))]).args[0]
    weight, window = ConstantOp(np.zeros((18, 2), np.float32)).result, WindowAttr((3, 3), pads=(1, 1, 1, 1))
    op = Conv2dOp(x, weight, None, window)
    pitches = list[int]()
    for times in ({64: 3.0}, {48: 1.0}, {48: 1.0, 64: 2.5}, {16: 1.0, 64: 3.9}):
        op.kernel = KernelAttr({1: "count_blocks"}, "by the test", times)
        pitches.append(planes_of([op], [x, op.result], 8)[8, 8].pitch)
    assert pitches == [8, 9, 9, 8]


sizes = st.integers(1, 12)


@st.composite
def windows(draw: st.DrawFn) -> tuple[WindowAttr, tuple[int, int]]:
    """A window with a result: strides beyond the window, dilations and pads beyond the image, images of one column."""

    def pair(least: int, most: int) -> tuple[int, int]:
        return draw(st.integers(least, most)), draw(st.integers(least, most))

    kernel, dilations, pads = pair(1, 4), pair(1, 5), (*pair(0, 6), *pair(0, 6))
    least = [1 + (kernel[axis] - 1) * dilations[axis] - sum(pads[axis::2]) for axis in range(2)]
    size = draw(st.integers(max(1, least[0]), 20)), draw(st.integers(max(1, least[1]), 20))
    return WindowAttr(kernel, pair(1, 5), dilations, pads), size


@settings(max_examples=100)
@given(windows(), st.sampled_from(IMAGE_TILES))
def test_each_tap_of_a_result_is_at_one_distance_or_where_no_pixel_is(
    case: tuple[WindowAttr, tuple[int, int]], tile: int
) -> None:
    window, (height, width) = case
    x = Block(arg_types=[f32_tensor((DYNAMIC, 2, height, width))]).args[0]
    op = Conv2dOp(x, ConstantOp(np.zeros((2 * len(window.taps), 2), np.float32)).result, None, window)
    op.kernel = KernelAttr({1: "count_blocks"}, "by the test", {tile: 1.0})
    planes, phases = planes_of([op], [x, op.result], 8), Phases.of(window)
    target = planes[window.result_size(height, width)]
    source = planes[height, width] if phases.is_whole else Plane(*phases.size(height, width), target.pitch, target.tile)
    assert source.pitch == target.pitch
    rows, columns = (one.ravel() for one in np.indices((target.height, target.width)))
    for tap, (phase, row, column) in zip(window.taps, phases.taps, strict=True):
        read = target.positions(rows, columns) + row * target.pitch + column
        inside = (read >= 0) & (read < source.tiles * source.tile)
        if not phases.has_room(source, target):
            form = WindowForm(phases.taps, target.pitch, 2, 0, "copy", tile=tile, columns=source.width)
            lanes = form.inside(window.taps.index(tap), 0, tile)
            assert all(form.inside(window.taps.index(tap), tile * one, tile) == lanes for one in range(target.tiles))
            inside &= np.array(lanes)[target.positions(rows, columns) % tile]
        found = np.where(inside, np.append(source.pixels(), NO_PIXEL)[np.where(inside, read, -1)], NO_PIXEL)
        # the pixel of a phase, as one of the image
        (first, second), (down, across) = phases.offsets[phase], window.stride
        i, j = np.divmod(found, max(1, source.width))
        is_pixel = (found != NO_PIXEL) & (i * down + first < height) & (j * across + second < width)
        found = np.where(is_pixel, (i * down + first) * width + j * across + second, NO_PIXEL)
        wanted = Plane(height, width, width).positions(rows * down + tap.row, columns * across + tap.column)
        np.testing.assert_array_equal(found, wanted)

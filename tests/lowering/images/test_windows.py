"""Windows of tiles of 64 positions: where the vector of a tap lies, and what kernels make of the taps."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.window import WindowAttr
from redpebble.kernels.tile_widths import PIXELS
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.images.geometry import Phases, PhaseTap
from redpebble.lowering.images.windows import OUTSIDE_BYTES, OUTSIDE_FLOATS, WindowForm, Work, windows
from tests.support.called_kernels import aligned, called
from tests.support.lowering_modules import HERE, best_target_first

Values = NDArray[np.generic]
Floats = NDArray[np.float32]


def taps(row: int, column: int, pitch: int) -> WindowForm:
    return WindowForm((PhaseTap(0, row, column),), pitch, 3, 3 * PIXELS, "copy")


@given(st.integers(-3, 3), st.integers(-3, 3), st.integers(1, 80), st.sampled_from([1, 4, 8, 16, PIXELS]), st.data())
def test_the_parts_of_a_vector_hold_its_positions(
    row: int, column: int, pitch: int, width: int, data: st.DataObject
) -> None:
    first = data.draw(st.sampled_from(range(0, PIXELS, width)))
    parts = taps(row, column, pitch).parts(0, first, width)
    assert len({PIXELS * tile + offset for tile, offset in parts}) == 1
    assert PIXELS * parts[0].tile + parts[0].offset == row * pitch + column + first
    inside = [lane for _, offset in parts for lane in range(width) if 0 <= offset + lane < PIXELS]
    assert inside == [*range(width)]


@pytest.mark.parametrize(("column", "count"), [(0, 1), (1, 2), (-1, 2), (PIXELS, 1)])
def test_a_line_is_in_one_tile_where_it_begins_with_one(column: int, count: int) -> None:
    assert len(taps(0, column, 9).parts(0, 0, PIXELS)) == count


def test_windows_of_floats_and_of_codes_have_names_of_their_own() -> None:
    form = taps(1, -1, 9)
    assert len({form.key, replace(form, work="largest").key, replace(form, of_codes=True).key}) == 3


CHANNELS, TILES = 3, 3

WINDOWS: dict[str, tuple[int, WindowAttr]] = {
    "a point": (7, WindowAttr((1, 1))),
    "all around": (9, WindowAttr((3, 3), pads=(1, 1, 1, 1))),
    "of images of width 1": (2, WindowAttr((3, 2), pads=(1, 0, 1, 1))),
    "of phases": (11, WindowAttr((3, 3), strides=(2, 3), pads=(1, 1, 0, 1))),
    "beyond the next tile": (70, WindowAttr((3, 1), pads=(1, 0, 1, 0))),
    "in pads alone": (80, WindowAttr((3, 1), dilations=(4, 1), pads=(4, 0, 4, 0))),
}
"""The pitch, and a window."""


class Plane:
    """Integers at all positions of the phases of a window, and what is outside of the tiles."""

    def __init__(self, name: str, fill: int) -> None:
        self.pitch, window = WINDOWS[name]
        self.phases, self.fill = Phases.of(window), fill
        rng = np.random.default_rng(len(name))
        self.values = rng.integers(0, 256, (CHANNELS * len(self.phases.offsets), TILES * PIXELS))

    @property
    def fields(self) -> tuple[tuple[PhaseTap, ...], int, int, int]:
        return self.phases.taps, self.pitch, CHANNELS, len(self.values) * PIXELS

    def tiles(self, kind: type[np.generic]) -> Values:
        """The values as kernels have them, [tiles, channels, 64]."""
        return aligned(np.stack(np.split(self.values, TILES, axis=1)).astype(kind))

    def taps(self) -> NDArray[np.int64]:
        """The values of the taps of each channel at all positions, [channels, taps, positions]."""
        found = np.full((CHANNELS, len(self.phases.taps), TILES * PIXELS), self.fill)
        for number, tap in enumerate(self.phases.taps):
            position = np.arange(TILES * PIXELS) + tap.row * self.pitch + tap.column
            inside = (position >= 0) & (position < TILES * PIXELS)
            source = self.values[CHANNELS * tap.phase : CHANNELS * (tap.phase + 1)]
            found[:, number, inside] = source[:, position[inside]]
        return found


def floats(name: str, work: Work, target: CpuTarget, fill: int = 0, relu: bool = False) -> tuple[Plane, Floats, Floats]:
    """A plane, the results of windows of floats for all tiles, and the parameters that they had."""
    plane, rng = Plane(name, fill), np.random.default_rng(0)
    form = WindowForm(*plane.fields, work, ActivationAttr("relu") if relu else None)
    kernel, tiles, count = called(lambda code: windows(code, form), target), plane.tiles(np.float32), len(form.taps)
    shape = (CHANNELS, count) if work == "weigh" else (TILES, PIXELS)
    factors = aligned(rng.integers(-3, 4, shape).astype(np.float32))
    bias, outside = np.arange(CHANNELS, dtype=np.float32), aligned(np.full(OUTSIDE_FLOATS, fill, np.float32))
    rows = CHANNELS * count if work == "copy" else CHANNELS
    found = aligned(np.full((TILES, rows, PIXELS), np.nan, np.float32))
    for tile in range(TILES):
        mine = factors[tile] if work == "mean" else factors
        kernel(tiles[tile], tile, TILES, outside, found[tile], mine, bias, CHANNELS)
    return plane, np.concatenate(found, axis=1), factors


@best_target_first
@pytest.mark.parametrize("name", WINDOWS)
def test_the_taps_of_a_channel_stand_next_to_each_other(name: str, target: CpuTarget) -> None:
    plane, found, _ = floats(name, "copy", target, fill=-7)
    np.testing.assert_array_equal(found, plane.taps().reshape(found.shape))


@pytest.mark.parametrize("name", ["all around", "of phases", "in pads alone"])
def test_weighed_taps_are_sums_with_a_bias(name: str) -> None:
    plane, found, factors = floats(name, "weigh", HERE["generic"], relu=True)
    expected = (plane.taps() * factors[..., None]).sum(axis=1) + np.arange(CHANNELS)[:, None]
    np.testing.assert_array_equal(found, np.maximum(expected, 0))


def test_the_largest_tap_is_not_what_is_outside() -> None:
    plane, found, _ = floats("all around", "largest", HERE["generic"], fill=-1000)
    np.testing.assert_array_equal(found, plane.taps().max(axis=1))


def test_a_mean_has_a_share_for_each_position() -> None:
    plane, found, factors = floats("all around", "mean", HERE["generic"])
    np.testing.assert_array_equal(found, plane.taps().sum(axis=1) * factors.ravel())


@best_target_first
@pytest.mark.parametrize(
    ("work", "name"), [*(("copy", name) for name in WINDOWS), ("largest", "all around"), ("largest", "of phases")]
)
def test_windows_of_codes_are_bytes_of_lines(work: Literal["copy", "largest"], name: str, target: CpuTarget) -> None:
    plane = Plane(name, fill=0 if work == "largest" else 117)
    form, no = WindowForm(*plane.fields, work, of_codes=True), np.zeros(0, np.float32)
    kernel, tiles = called(lambda code: windows(code, form), target), plane.tiles(np.uint8)
    outside, expected = aligned(np.full(OUTSIDE_BYTES, plane.fill, np.uint8)), plane.taps()
    expected = expected.max(axis=1) if work == "largest" else expected.reshape(-1, TILES * PIXELS)
    found = aligned(np.full((TILES, len(expected), PIXELS), 255, np.uint8))
    for tile in range(TILES):
        kernel(tiles[tile], tile, TILES, outside, found[tile], no, no, CHANNELS)
    np.testing.assert_array_equal(np.concatenate(found, axis=1), expected)

"""Where the values of windows are: in tiles of 64 positions, of which a vector reads one or two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redpebble.kernels.tile_widths import PIXELS
from redpebble.lowering.images.geometry import PhaseTap
from redpebble.lowering.images.lines import LineWindows
from redpebble.lowering.images.windows import Taps, WindowForm


def taps(row: int, column: int, pitch: int) -> Taps:
    return Taps((PhaseTap(0, row, column),), pitch, 3, 3 * PIXELS)


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
    fields = form.taps, form.pitch, form.channels, form.tile_values
    assert WindowForm(*fields, "copy").key != WindowForm(*fields, "largest").key
    assert LineWindows(*fields, "copy").key == f"line_windows_copy_{form.words}"

"""Which tiles a number of rows becomes."""

from hypothesis import given
from hypothesis import strategies as st

from redpebble.kernels.tile_widths import least_rows, tiles_of, time_of_rows, widths_in_use


def test_a_wider_tile_is_used_as_soon_as_it_takes_no_longer() -> None:
    assert least_rows({1: 10.0, 8: 30.0, 16: 50.0}) == {1: 1, 8: 3, 16: 10}


def test_tiles_of_different_widths_have_to_save_something() -> None:
    assert least_rows({1: 10.0, 16: 100.0, 20: 112.0})[20] == 17
    assert least_rows({1: 10.0, 16: 80.0, 20: 112.0})[20] == 18


def test_a_width_that_saves_nothing_is_not_in_use() -> None:
    assert widths_in_use({1: 1.0, 8: 9.0, 64: 30.0}) == {1, 64}


def test_a_wide_tile_is_in_use_where_narrow_ones_are_predicted_to_be_a_little_faster() -> None:
    assert widths_in_use({1: 5.0, 8: 27.0, 64: 225.0}) == {1, 8, 64}
    assert widths_in_use({1: 5.0, 8: 27.0, 64: 280.0}) == {1, 8}


def test_the_time_of_rows_is_that_of_their_tiles() -> None:
    assert time_of_rows({1: 10.0, 8: 30.0}, 16) == 60.0
    assert time_of_rows({1: 10.0, 8: 30.0}, 2) == 20.0


@given(st.integers(0, 1000))
def test_tiles_are_those_that_the_code_makes(rows: int) -> None:
    least = {1: 1, 8: 5, 16: 9, 64: 40}
    left, expected = rows, list[tuple[int, int]]()
    for width in reversed(least):
        while left >= least[width]:
            expected.append((width, min(left, width)))
            left -= expected[-1][1]
    made = tiles_of(least, rows)
    assert sum(tiles.rows for tiles in made) == rows
    assert [width for width, _ in expected] == [tiles.width for tiles in made for _ in range(tiles.number)]

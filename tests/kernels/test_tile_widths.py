"""Which tiles a number of rows becomes."""

from redpebble.kernels.tile_widths import least_rows, time_of_rows, widths_in_use


def test_a_wider_tile_is_used_as_soon_as_it_takes_no_longer() -> None:
    assert least_rows({1: 10.0, 8: 30.0, 16: 50.0}) == {1: 1, 8: 3, 16: 10}


def test_tiles_of_different_widths_have_to_save_something() -> None:
    assert least_rows({1: 10.0, 16: 100.0, 20: 112.0})[20] == 17
    assert least_rows({1: 10.0, 16: 80.0, 20: 112.0})[20] == 18


def test_a_width_that_saves_nothing_is_not_in_use() -> None:
    assert widths_in_use({1: 1.0, 8: 9.0, 64: 30.0}) == {1, 64}


def test_the_time_of_rows_is_that_of_their_tiles() -> None:
    assert time_of_rows({1: 10.0, 8: 30.0}, 16) == 60.0
    assert time_of_rows({1: 10.0, 8: 30.0}, 2) == 20.0

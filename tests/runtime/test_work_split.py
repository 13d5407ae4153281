"""Which thread does which rows."""

from hypothesis import given
from hypothesis import strategies as st

from redpebble.dialect.symbolic_sizes import Size
from redpebble.kernels.tile_widths import tiles_of
from redpebble.lowering.program import Step, TiledRows, TileTime
from redpebble.runtime.work_split import ONCE, Range, split_step

ROWS = Size.known(1)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    widths = draw(st.sampled_from([(1, 8, 16, 32, 64), (16, 64), (1,), (1, 32)]))
    times = draw(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=5, max_size=5))
    shared = draw(st.booleans())
    tile_times = tuple(
        TileTime(width, draw(st.integers(narrower + 1, width)) if narrower else 1, alone, together if shared else None)
        for narrower, width, (alone, together) in zip((0, *widths), widths, times, strict=False)
    )
    return Step("step0", ROWS, TiledRows(tile_times, draw(st.sampled_from(widths)), "shared0" if shared else None))


def kinds(step: Step, rows: int) -> list[int]:
    """For each of some rows, the tile width that may show in its bits: 0 where it is among those that do not differ."""
    assert step.tiled is not None
    marks: list[int] = []
    for tiles in tiles_of(step.tiled.least_rows, rows):
        narrow = tiles.width < step.tiled.same_from
        marks += [tiles.width if narrow else 0] * tiles.rows
    assert len(marks) == rows
    return marks


@given(steps(), st.integers(0, 700), st.integers(1, 7))
def test_every_row_is_done_once_and_in_a_tile_that_makes_the_same_bits(step: Step, rows: int, threads: int) -> None:
    split = split_step(step, rows, threads)
    assert len(split.alone) == threads
    ranges = [own for own in (*split.alone, split.together) if own.begin < own.end]
    place = 0
    for own in ranges:
        assert own.begin == place
        place = own.end
    assert place == rows
    marks = [mark for own in ranges for mark in kinds(step, own.end - own.begin)]
    assert marks == kinds(step, rows)


def test_a_step_that_is_one_piece_is_done_by_the_first_thread() -> None:
    split = split_step(Step("step0", None), 0, 3)
    assert split.alone[0] == ONCE
    assert not split.is_parallel


def test_small_work_is_not_given_to_threads() -> None:
    quick = Step("step0", ROWS, TiledRows((TileTime(64, 1, 0.5, 0.3),), 64, "shared0"))
    assert not split_step(quick, 128, 2).is_parallel


def test_threads_take_whole_tiles_while_there_are_some_for_each() -> None:
    slow = Step("step0", ROWS, TiledRows((TileTime(16, 1, 40.0, 25.0), TileTime(64, 40, 100.0, 60.0)), 16, "shared0"))
    split = split_step(slow, 144, 2)
    assert split.alone == (Range(0, 64), Range(64, 128))
    assert split.together == Range(128, 144)

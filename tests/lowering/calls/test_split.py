"""How threads are given the rows of a step."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.dialect.reports.layer_report import Report
from redpebble.dialect.symbolic_sizes import Size
from redpebble.kernels.tile_widths import tiles_of
from redpebble.lowering.calls.network_table import (
    IN_ONNXRUNTIME,
    IN_PROCESS,
    SplitCosts,
    network_table,
    symbols_of,
)
from redpebble.lowering.calls.table import Split
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.program import Program, Step, Tensor, TiledRows, TileTime
from redpebble.runtime.call import new_call
from redpebble.runtime.jit import MachineCode
from redpebble.runtime.loaded_network import LoadedNetwork
from redpebble.runtime.memory import address_of
from redpebble.runtime.thread_pool import ThreadPool

ROWS = Size.symbol("rows")


@cache
def pool(threads: int) -> ThreadPool:
    return ThreadPool(threads)


def split(step: Step, rows: int, threads: int, costs: SplitCosts = IN_PROCESS) -> dict[int, int]:
    """The words of the split of a network's only step."""
    report = Report(())
    inputs = (Tensor("x", (ROWS,)),)
    program = Program("", CpuTarget.generic(), inputs, (), (), (), (), (), 0, (step,), report)
    symbols = symbols_of(program, "")
    words = network_table(program, symbols, costs)
    table = np.zeros(len(words.words), dtype=np.int64)
    words.write_to(table, {"step0": 8, "shared0": 8, symbols.table: address_of(table)})
    network = LoadedNetwork(program, table, MachineCode({}, {}, ()))
    (row,) = new_call(network, {"rows": rows}, pool(threads)).splits
    return {word: int(row[word]) for word in range(Split.word_count)}


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


def ranges(step: Step, rows: int, threads: int, costs: SplitCosts) -> list[int]:
    """The numbers of rows that a thread cuts into tiles at once, in their order; what all do together comes last."""
    assert step.tiled is not None
    words = split(step, rows, threads, costs)
    assert words[Split.rows] == rows
    assert 1 <= words[Split.workers] <= threads
    if words[Split.workers] == 1:
        return [rows]
    alone, unit = words[Split.alone], words[Split.unit_rows]
    parts = [min(unit, alone - begin) for begin in range(0, alone, unit)]
    assert alone == rows or step.tiled.shared is not None
    return [*parts, rows - alone] if alone < rows else parts


def kinds(step: Step, rows: int) -> list[int]:
    """For each of some rows, the tile width that may show in its bits: 0 where it is among those that do not differ."""
    assert step.tiled is not None
    marks: list[int] = []
    for tiles in tiles_of({time.width: time.least_rows for time in step.tiled.times}, rows):
        narrow = tiles.width < step.tiled.same_from
        marks += [tiles.width if narrow else 0] * tiles.rows
    assert len(marks) == rows
    return marks


@pytest.mark.slow
@pytest.mark.parametrize("costs", [IN_PROCESS, IN_ONNXRUNTIME])
@settings(deadline=None)
@given(steps(), st.integers(0, 700), st.integers(1, 7))
def test_every_row_is_done_once_and_in_a_tile_that_makes_the_same_bits(
    costs: SplitCosts, step: Step, rows: int, threads: int
) -> None:
    parts = ranges(step, rows, threads, costs)
    assert sum(parts) == rows
    assert [mark for part in parts for mark in kinds(step, part)] == kinds(step, rows)


def test_a_step_that_is_one_piece_is_done_by_one_thread() -> None:
    assert split(Step("step0", None), 100, 3)[Split.workers] == 1


def test_small_work_is_not_given_to_threads() -> None:
    quick = Step("step0", ROWS, TiledRows((TileTime(64, 1, 0.5, 0.3),), 64, "shared0"))
    assert split(quick, 128, 2)[Split.workers] == 1


def test_threads_take_whole_tiles_while_there_are_some_for_each() -> None:
    slow = Step("step0", ROWS, TiledRows((TileTime(16, 1, 40.0, 25.0), TileTime(64, 40, 100.0, 60.0)), 16, "shared0"))
    assert split(slow, 144, 2) == {Split.rows: 144, Split.workers: 2, Split.unit_rows: 64, Split.alone: 128}
    assert ranges(slow, 144, 2, IN_PROCESS) == [64, 64, 16]


def test_threads_take_units_of_the_tiles_by_which_they_end_first() -> None:
    slow = Step("step0", ROWS, TiledRows((TileTime(16, 1, 40.0), TileTime(32, 17, 50.0)), 16))
    assert ranges(slow, 128, 2, IN_PROCESS) == [32] * 4
    assert ranges(slow, 96, 2, IN_PROCESS) == [32] * 3
    assert ranges(slow, 32, 2, IN_PROCESS) == [16] * 2


def test_so_few_connections_are_not_shared_inside_onnxruntime_whatever_the_estimates() -> None:
    slow = Step("step0", ROWS, TiledRows((TileTime(1, 1, 1000.0),), 1))
    assert split(slow, 60, 2, IN_ONNXRUNTIME)[Split.workers] == 1
    assert split(slow, 61, 2, IN_ONNXRUNTIME)[Split.workers] == 2

"""Bands: all is computed once and in time, and a ring holds whatever is still to be read."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.theory.depth_first.bands import Bands, Reach, Reading


@st.composite
def groups(draw: st.DrawFn) -> Bands:
    """Stages of 1 to 30 units, each but the first of which reads windows of earlier ones."""
    units = draw(st.lists(st.integers(1, 30), min_size=1, max_size=6))
    readings = [list[Reading]() for _ in units]
    for reader in range(1, len(units)):
        for source in draw(st.sets(st.integers(0, reader - 1), min_size=1, max_size=2)):
            middle = np.arange(units[reader]) * units[source] // units[reader]
            before, after = draw(st.integers(0, 3)), draw(st.integers(0, 3))
            readings[source].append(Reading(reader, Reach.between(middle - before, middle + after, units[source])))
    return Bands(units, readings, draw(st.integers(1, 40)))


@settings(max_examples=60)
@given(groups())
def test_each_unit_is_computed_once_and_what_it_reads_is_in_its_ring(bands: Bands) -> None:
    rings = [np.full(bands.ring([stage]), -1) for stage in range(len(bands.units))]
    done = [0 for _ in bands.units]
    for band in range(bands.count):
        for stage, borders in enumerate(bands.borders):
            for unit in range(borders[band], borders[band + 1]):
                assert unit == done[stage]
                for source, readings in enumerate(bands.readings):
                    for reach in (reach for reader, reach in readings if reader == stage):
                        for read in range(reach.first[unit], reach.last[unit] + 1):
                            assert rings[source][read % len(rings[source])] == read
                rings[stage][unit % len(rings[stage])] = unit
                done[stage] += 1
    assert done == list(bands.units)


def test_windows_of_three_rows_need_three_rows_at_a_time() -> None:
    rows = np.arange(100)
    window = Reach.between(rows - 1, rows + 1, 100)
    bands = Bands([100, 100, 100], [[Reading(1, window)], [Reading(2, window)], []], 100)
    assert [bands.ring([stage]) for stage in range(3)] == [3, 3, 1]
    # a value that the last stage reads as well is there for longer
    windows = [[Reading(1, window), Reading(3, Reach.same(100))], [Reading(2, window)], [Reading(3, window)], []]
    assert Bands([100] * 4, windows, 100).ring([0]) == 4

"""Pixels that move in runs, against the same pixels one by one."""

import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.kernels.tile_widths import PIXELS
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.images.geometry import NO_PIXEL
from redpebble.lowering.images.runs import KINDS, RunForm, Steps, in_runs, moving_runs
from tests.support.called_kernels import aligned, called
from tests.support.lowering_modules import each_target

CHANNELS, TILES = 37, 6
"""More channels than are moved at once."""

STRIDE = 601
"""Floats of a channel of the source, behind which the process has no memory of ours."""


def some_runs(steps: Steps, rng: np.random.Generator) -> NDArray[np.int32]:
    """Places [positions] of runs of all lengths, up to both ends of a channel, with pads between them."""
    places = np.full(TILES * PIXELS, NO_PIXEL)
    position = 0
    while position < len(places):
        length = int(rng.choice([1, 2, 5, 15, 29, 70]))
        run = np.arange(min(length, len(places) - position)) * steps.down // steps.up
        last = STRIDE - 1 - int(run[-1])
        places[position : position + length] = run + (0, last, int(rng.integers(0, last + 1)))[int(rng.integers(0, 3))]
        position += length + int(rng.integers(0, 4))
    return places.astype(np.int32)


@each_target
@pytest.mark.parametrize("steps", [Steps(), Steps(2), Steps(3), Steps(4), Steps(1, 2), Steps(1, 3)], ids=str)
def test_runs_move_what_single_pixels_move(target: CpuTarget, steps: Steps) -> None:
    rng = np.random.default_rng(5)
    places, form = some_runs(steps, rng), RunForm(steps, target.lanes)
    starts, entries, table = (aligned(one) for one in in_runs(lambda _: [places], form, STRIDE, None))
    source = aligned(rng.standard_normal((CHANNELS, STRIDE)).astype(np.float32))
    found = aligned(np.full((TILES, CHANNELS, PIXELS), 7, np.float32))
    kernel = called(lambda code: moving_runs(code, form), target)
    for tile in range(TILES):
        first = len(KINDS) * tile
        kernel(source, STRIDE, found[tile], starts[first:], entries, table[tile * PIXELS :], CHANNELS, -3.5)
    expected = np.where(places == NO_PIXEL, np.float32(-3.5), source[:, places])
    np.testing.assert_array_equal(found.transpose(1, 0, 2).reshape(CHANNELS, -1), expected)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_runs_read_nothing_beside_the_source(lanes: int) -> None:
    for steps in (Steps(), Steps(2), Steps(4), Steps(1, 2)):
        form = RunForm(steps, lanes)
        places = some_runs(steps, np.random.default_rng(6))
        starts, entries, _ = in_runs(lambda _, places=places: [places], form, STRIDE, None)
        kinds = np.repeat(np.arange(len(starts) - 1) % len(KINDS), np.diff(starts.astype(np.int64)))
        bases = entries[: len(kinds), 0][kinds != KINDS[-1]].astype(np.int64)
        assert bases.min() >= 0
        assert bases.max() + form.loads * lanes <= STRIDE


def test_rows_of_a_stride_are_whole_vectors_but_at_their_ends() -> None:
    places = np.arange(2 * 3 * PIXELS, step=2).astype(np.int32)
    starts, entries, _ = in_runs(lambda _: [places], RunForm(Steps(2), 8), 2 * 3 * PIXELS, None)
    assert starts.tolist() == [number for tile in range(3) for number in [8 * tile, *[8 * tile + 8] * 3]] + [24]
    assert entries[:3].tolist() == [[0, 0, 255], [16, 8, 255], [32, 16, 255]]

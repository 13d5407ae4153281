"""The packing of strips: every connection once, or in parts that make it up, and steps that share inputs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.kernels.family import LayerWeights
from redpebble.kernels.formats.strips import BLOCK_INPUTS, HEADER, SHARINGS, STRIP_ROWS, pack
from redpebble.kernels.row_segments import OFFSET_UNIT, PackedBlocks
from redpebble.models.structured import PANEL_ROWS, n_of_m, panels
from tests.support.lowering_modules import Floats


def masked(mask: np.ndarray[tuple[int, int], np.dtype[np.bool_]], seed: int = 0) -> Floats:
    values = np.random.default_rng(seed).standard_normal(mask.shape).astype(np.float32)
    return np.where(mask, values, np.float32(0))


def strips_of(packed: PackedBlocks) -> list[tuple[int, list[int], list[int], int]]:
    """First input of the block, rows, steps of each kind and place in the weights of every strip."""
    strips: list[tuple[int, list[int], list[int], int]] = []
    start = record = 0
    for count, base in packed.blocks.tolist():
        for _ in range(count):
            *rows, marked = packed.records[record].tolist()
            steps = packed.offsets[start : start + len(SHARINGS)].tolist()
            strips.append((base // OFFSET_UNIT, [row // OFFSET_UNIT for row in rows], steps, start))
            start += STRIP_ROWS * (marked & 0xFFFF)
            record += 1
    return strips


def unpacked(packed: PackedBlocks, shape: tuple[int, int]) -> Floats:
    """The matrix that the arrays say, read as the kernel reads them."""
    found = np.zeros(shape)
    for base, rows, steps, start in strips_of(packed):
        sums = {row: np.zeros(shape[0]) for row in rows}
        weight, offset = start, start + HEADER
        for sharing, count in zip(SHARINGS, steps, strict=True):
            for _ in range(count):
                for readers in sharing:
                    source = base + int(packed.offsets[offset]) // OFFSET_UNIT
                    offset += 1
                    for place in [place for place in range(STRIP_ROWS) if readers >> place & 1]:
                        if place == rows.index(rows[place]):
                            sums[rows[place]][source] += packed.weights[weight + place]
                weight += STRIP_ROWS
        for row, values in sums.items():
            found[:, row] += values
    return found.astype(np.float32)


@settings(max_examples=25, deadline=None)
@given(
    inputs=st.integers(1, 2 * BLOCK_INPUTS + 9),
    outputs=st.integers(1, 30),
    density=st.sampled_from([0.0, 0.03, 0.3, 0.7, 1.0]),
    seed=st.integers(0, 2**16),
)
def test_the_parts_of_every_connection_make_it_up(inputs: int, outputs: int, density: float, seed: int) -> None:
    weight = masked(np.random.default_rng(seed).random((inputs, outputs)) < density, seed)
    packed = pack(LayerWeights(weight, np.zeros(outputs, dtype=np.float32)))
    np.testing.assert_array_equal(unpacked(packed, (inputs, outputs)), weight)


@pytest.mark.parametrize(("kept", "of"), [(2, 4), (1, 4), (3, 8)])
def test_rows_with_n_of_m_inputs_have_equally_many_steps_and_no_connection_in_parts(kept: int, of: int) -> None:
    weight = masked(n_of_m(kept, of)(256, np.random.default_rng(1)).T)
    packed = pack(LayerWeights(weight, np.zeros(256, dtype=np.float32)))
    assert {sum(steps) for _, _, steps, _ in strips_of(packed)} == {BLOCK_INPUTS * kept // of}
    assert np.count_nonzero(packed.weights) == np.count_nonzero(weight)


def test_rows_with_equal_inputs_read_each_of_them_once() -> None:
    weight = masked(np.repeat(np.random.default_rng(2).random((100, 1)) < 0.5, 8, axis=1))
    packed = pack(LayerWeights(weight, np.zeros(8, dtype=np.float32)))
    assert [steps[0] for _, _, steps, _ in strips_of(packed)] == [np.count_nonzero(weight[:, 0])] * 2


def test_nearly_all_strips_of_a_random_mask_have_loops_of_the_same_length() -> None:
    weight = masked(np.random.default_rng(3).random((BLOCK_INPUTS, 800)) < 0.5)
    packed = pack(LayerWeights(weight, np.zeros(800, dtype=np.float32)))
    steps = np.array([steps for _, _, steps, _ in strips_of(packed)])
    for kind in range(len(SHARINGS) - 1):
        assert np.mean(steps[:, kind] == np.median(steps[:, kind])) >= 0.85


def test_outputs_of_a_panel_are_strips_of_their_own() -> None:
    order = np.random.default_rng(4).permutation(256)
    weight = masked(panels(256, np.random.default_rng(5))[order].T)
    places = np.argsort(order).reshape(-1, PANEL_ROWS)
    packed = pack(LayerWeights(weight, np.zeros(256, dtype=np.float32), [places]))
    np.testing.assert_array_equal(unpacked(packed, weight.shape), weight)
    assert all(len({int(order[row]) // PANEL_ROWS for row in rows}) == 1 for _, rows, _, _ in strips_of(packed))

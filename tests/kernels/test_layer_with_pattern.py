"""A layer that knows its connections costs what counts alone say where it is random, and less where it has an order."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.kernels.families import FAMILIES
from redpebble.kernels.formats.permute_lookup import visits_share
from redpebble.kernels.layer_with_pattern import LayerWithPattern
from redpebble.kernels.machine import Machine
from redpebble.kernels.prediction import candidates, predicted_us, segment_us
from redpebble.kernels.tile_widths import WIDTHS
from redpebble.kernels.work import Layer, Tile
from redpebble.sparse.csr import CsrPattern
from tests.support.hidden_structure import Mask, band, rows_of, shuffled

MACHINE = Machine()


def ordered(mask: Mask) -> LayerWithPattern:
    return LayerWithPattern(len(mask), mask.sum(axis=0), rows=rows_of(mask))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**16), blocks=st.integers(1, 5), most=st.integers(1, 4))
def test_pieces_are_counted_exactly(seed: int, blocks: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random((23, 9)) < rng.random()
    borders = np.arange(blocks + 1) * 23 // blocks
    counts = [mask[start:end].sum(axis=0) for start, end in itertools.pairwise(borders)]
    # a row without connections is a segment, too
    expected = sum(int((-(-count // most)).sum()) for count in counts) + int((~mask.any(axis=0)).sum())
    assert ordered(mask).segments(blocks, most) == expected


@pytest.mark.parametrize("density", [0.01, 0.05, 0.2, 0.6])
def test_a_random_mask_costs_what_its_counts_say(density: float) -> None:
    mask = np.random.default_rng(0).random((640, 500)) < density
    layer, plain = ordered(mask), Layer(640, mask.sum(axis=0))
    assert visits_share(layer) == pytest.approx(1, abs=0.02)
    assert layer.x_share(Tile(64, 16, 48 << 10)) == pytest.approx(1, abs=0.1)
    for width in WIDTHS:
        for family in candidates(plain, width, Machine()):
            expected = predicted_us(family, plain, width, MACHINE)
            assert predicted_us(family, layer, width, MACHINE) == pytest.approx(expected, rel=0.05)


def test_a_band_is_predicted_to_be_faster_than_the_same_band_shuffled() -> None:
    rng = np.random.default_rng(0)
    mask = band(2048, 96, 48, rng)
    (other,) = shuffled([mask], rng)
    for family, width in (("permute_lookup", 1), ("narrow_blocks", 8), ("count_blocks", 64), ("sparse_rows", 64)):
        assert predicted_us(family, ordered(mask), width, MACHINE) < 0.96 * predicted_us(
            family, ordered(other), width, MACHINE
        )


def test_values_that_leave_the_cache_take_time() -> None:
    layer = ordered(band(2048, 64, 16, np.random.default_rng(0)))
    small = Machine(l1_bytes=1 << 12, l2_bytes=1 << 16, l3_bytes=1 << 20)
    large, plain = Machine(l2_bytes=1 << 30, l3_bytes=1 << 30), Layer(layer.inputs, layer.counts)
    assert predicted_us("dense_outputs", layer, 64, small) > predicted_us("dense_outputs", plain, 64, small)
    assert predicted_us("dense_outputs", layer, 64, large) == predicted_us("dense_outputs", plain, 64, large)
    for family in ("sparse_rows", "count_blocks"):
        assert 0 < FAMILIES[family].far_features(layer, (1 << 16) / (4 * 64)) < layer.connections / 4
    assert segment_us("count_blocks", layer, 64, MACHINE) > 0


def test_a_full_and_an_empty_layer_have_walks() -> None:
    assert 0.5 < visits_share(ordered(np.ones((40, 33), dtype=bool))) <= 1
    assert visits_share(ordered(np.zeros((40, 33), dtype=bool))) == 1
    assert ordered(np.zeros((0, 3), dtype=bool)).segments(1, 32) == 3


def test_layers_of_one_pattern_share_what_follows_from_it() -> None:
    rows, seen = rows_of(np.eye(8, dtype=np.bool_)), list[CsrPattern]()

    def fact(pattern: CsrPattern) -> float:
        seen.append(pattern)
        return 3.0

    layers = [LayerWithPattern(8, np.ones(8, np.int64), other_bytes, rows=rows) for other_bytes in (0.0, 1e6)]
    assert [layer.of_pattern(fact, 0.0) for layer in layers] == [3.0, 3.0]
    assert len(seen) == 1

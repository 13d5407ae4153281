"""Other numbers of blocks are chosen where the cost model says that they gain, and nowhere else."""

from statistics import geometric_mean
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.kernels.block_choice import NO_LOSS, WORTHWHILE, BlockPrice, gain, price_blocks
from redpebble.kernels.families import FAMILIES, OVER_BLOCKS
from redpebble.kernels.family import KernelFamily
from redpebble.kernels.formats import count_blocks, narrow_blocks
from redpebble.kernels.input_blocks import MOST_INPUTS, fewest_blocks, other_blocks
from redpebble.kernels.layer_with_pattern import LayerWithPattern
from redpebble.kernels.machine import Machine
from redpebble.kernels.prediction import predicted_us
from redpebble.kernels.work import Layer
from tests.support.hidden_structure import rows_of

FAST = Machine()


WIDTHS: Final = {"count_blocks": (32, 48, 64), "narrow_blocks": (8, 16)}


def times_of(layer: Layer, machine: Machine) -> dict[int, dict[str, float]]:
    """As if there were no other families, and each of these only at the widths that it is for."""
    return {
        width: {family: predicted_us(family, layer, width, machine)}
        for family, widths in WIDTHS.items()
        for width in widths
    }


def prices(layer: Layer, machine: Machine = FAST) -> dict[str, BlockPrice]:
    return {price.family: price for price in price_blocks(layer, times_of(layer, machine), machine)}


@given(st.sampled_from(OVER_BLOCKS), st.integers(0, 40_000), st.floats(0, 1))
def test_offsets_tell_the_inputs_of_every_number_of_blocks_apart(
    family: KernelFamily, inputs: int, density: float
) -> None:
    assert family.block_rule is not None
    usual = family.block_rule.usual(inputs, density)
    others = other_blocks(inputs, usual)
    assert usual not in others
    assert list(others) == sorted(set(others))
    for blocks in (usual, *others):
        assert fewest_blocks(inputs) <= blocks <= max(1, inputs)
        assert -(-inputs // blocks) <= MOST_INPUTS


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 900), st.sampled_from([0.01, 0.1, 0.4]), st.sampled_from([8 << 10, 16 << 10, 48 << 10]))
def test_another_number_is_chosen_only_where_it_gains_over_all_widths(inputs: int, density: float, l1: int) -> None:
    layer, machine = Layer(inputs, np.full(300, round(density * inputs))), Machine(l1_bytes=l1)
    for family, price in prices(layer, machine).items():
        usual = FAMILIES[family].block_count(layer)
        if price.blocks == usual:
            continue
        other = layer.with_blocks({family: price.blocks})
        ratios = [
            predicted_us(family, layer, width, machine) / predicted_us(family, other, width, machine)
            for width in WIDTHS[family]
        ]
        assert geometric_mean(ratios) > WORTHWHILE
        assert min(ratios) >= NO_LOSS
        assert price.other == usual
        assert price.other_us > price.microseconds


@pytest.mark.parametrize(("shape", "density"), [((1024, 1024), 0.1), ((1024, 1024), 0.05), ((384, 1536), 0.2)])
def test_random_layers_keep_the_usual_number_and_name_the_next_one(shape: tuple[int, int], density: float) -> None:
    mask = np.random.default_rng(0).random(shape) < density
    layer = LayerWithPattern(shape[0], mask.sum(axis=0), rows=rows_of(mask))
    for family, price in prices(layer).items():
        assert price.blocks == FAMILIES[family].block_count(layer) != price.other


def test_a_small_first_level_cache_wants_more_blocks() -> None:
    layer, small = Layer(512, np.full(2000, 102)), Machine(l1_bytes=8 << 10)
    assert prices(layer)["count_blocks"].blocks == layer.blocks(count_blocks.BLOCKS)
    price = prices(layer, small)["count_blocks"]
    assert price.blocks > price.other == layer.blocks(count_blocks.BLOCKS)


def test_families_that_are_decided_and_layers_without_connections_are_left_alone() -> None:
    layer = Layer(512, np.full(2000, 102))
    assert set(prices(layer)) == {"count_blocks", "narrow_blocks"}
    assert set(prices(layer.with_blocks({"count_blocks": 2}))) == {"narrow_blocks"}
    assert not prices(Layer(512, np.zeros(2000, dtype=np.int64)))


def test_blocks_change_what_a_layer_costs_and_nothing_else_of_it() -> None:
    layer = Layer(512, np.full(2000, 102))
    more = layer.with_blocks({"count_blocks": 40})
    assert predicted_us("count_blocks", more, 64, FAST) > predicted_us("count_blocks", layer, 64, FAST)
    assert predicted_us("narrow_blocks", more, 8, FAST) == predicted_us("narrow_blocks", layer, 8, FAST)
    assert (more.blocks(count_blocks.BLOCKS), more.blocks(narrow_blocks.BLOCKS)) == (
        40,
        layer.blocks(narrow_blocks.BLOCKS),
    )


def test_what_loses_at_one_width_gains_nothing() -> None:
    assert gain({8: 2.0, 64: 3.0}, {8: 1.0, 64: 3.0}) == pytest.approx(2**0.5)
    assert gain({8: 2.0, 64: 3.0}, {8: 1.0, 64: 3.2}) == 0
    assert gain({}, {}) == 0

"""Masks with an order are told from random ones, and orders bring together, or deal out, what they say."""

import itertools

import numpy as np
import pytest

from redpebble.theory.neuron_order.search import (
    count_numbers,
    dealt_numbers,
    locality,
    outgoing_counts,
    spectral_numbers,
    support_numbers,
)
from tests.support.hidden_structure import band, blocks, chain_groups, rows_of, shuffled


@pytest.mark.parametrize("density", [0.004, 0.02, 0.1, 0.5])
@pytest.mark.parametrize("skewed", [False, True])
def test_a_random_mask_has_no_locality(density: float, skewed: bool) -> None:
    rng = np.random.default_rng(0)
    factors = np.exp(rng.normal(0, 1, 1000)) if skewed else np.ones(1000)
    mask = rng.random((1000, 700)) < density * factors[:, None] / factors.mean()
    assert locality(rows_of(mask), np.random.default_rng(1)) == pytest.approx(1, abs=0.1)


def test_a_shuffled_band_and_shuffled_blocks_have_locality() -> None:
    rng = np.random.default_rng(0)
    masks = shuffled([band(1024, 32, 8, rng), blocks(1024, 64, 16, rng)], rng)
    assert all(locality(rows_of(mask), rng) < 0.7 for mask in masks)


def test_an_empty_mask_is_random() -> None:
    assert locality(rows_of(np.zeros((4, 5), dtype=bool)), np.random.default_rng(0)) == 1


def test_dealt_neurons_make_blocks_of_about_equal_counts() -> None:
    rng = np.random.default_rng(0)
    chance = np.exp(rng.normal(0, 1, 100))
    mask = rng.random((100, 400)) < chance[:, None] / chance.max()
    groups = chain_groups([np.ones((3, 100), dtype=bool), mask])
    for numbers, spread in ((dealt_numbers(groups, 16), 0.1), (count_numbers(groups), 0.5)):
        counts = outgoing_counts(groups)[3:103][groups.order_of(1, groups.positions_by(numbers))]
        sums = counts[:96].reshape(6, 16).sum(axis=1)
        assert (sums.std() / sums.mean() < spread) == (spread < 0.5)
    assert np.all(np.diff(counts) <= 0)


def test_neurons_that_read_the_same_come_together() -> None:
    rng = np.random.default_rng(0)
    mask = np.repeat(rng.random((200, 25)) < 0.1, 8, axis=1)
    groups = chain_groups([*shuffled([mask], rng), np.ones((200, 2), dtype=bool)])
    order = groups.order_of(1, groups.positions_by(support_numbers(groups, rng)))
    columns = mask_columns(groups.weights[0].rows.indices, groups.weights[0].rows.pointers, order)
    assert sum(first != second for first, second in itertools.pairwise(columns)) == 24


def mask_columns(inputs: np.ndarray, pointers: np.ndarray, order: np.ndarray) -> list[list[int]]:
    return [inputs[pointers[row] : pointers[row + 1]].tolist() for row in order]


def test_the_spectral_order_puts_a_path_of_neurons_in_line() -> None:
    rng = np.random.default_rng(0)
    masks = [np.abs(np.subtract.outer(np.arange(60), np.arange(60))) < 4] * 3
    groups = chain_groups(masks)
    start = 60 * np.tile(np.arange(60), 4) + rng.integers(-600, 600, 240)
    order = groups.order_of(1, groups.positions_by(spectral_numbers(groups, start)))
    rough = groups.order_of(1, groups.positions_by(start))
    assert np.abs(np.diff(order)).sum() < 0.5 * np.abs(np.diff(rough)).sum()

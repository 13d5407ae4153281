"""Real networks over sizes: which sizes there are, and what is measured of them."""

import pytest

from redpebble.bench.suites.slowest_sizes import BATCHES, LENGTHS, Look, measure_sizes, sizes_of
from redpebble.models.exports.stored import stored_graph


def test_sizes_are_of_the_axes_that_are_free() -> None:
    assert list(sizes_of(stored_graph("tabnet.classic"))) == [{"batch": batch} for batch in BATCHES]
    assert len(list(sizes_of(stored_graph("bert.classic")))) == len(BATCHES) * len(LENGTHS)


def test_lengths_may_be_chosen() -> None:
    assert {size["sequence"] for size in sizes_of(stored_graph("bert.classic"), (256, 512))} == {256, 512}


def test_a_decoder_reads_one_token_behind_a_past_or_a_text_without() -> None:
    sizes = list(sizes_of(stored_graph("gpt2.classic")))
    assert {"batch": 8, "past": 128, "sequence": 1, "total": 129} in sizes
    assert all(size["sequence"] == 1 or size["past"] == 0 for size in sizes)


@pytest.mark.slow
def test_every_size_is_measured_unless_it_takes_too_long() -> None:
    rows = list(measure_sizes("tabnet.classic", 1, Look(0.0, 60.0)))
    assert [row.sizes["batch"] for row in rows] == list(BATCHES)
    assert len(list(measure_sizes("tabnet.classic", 1, Look(0.0, 0.0)))) == 1

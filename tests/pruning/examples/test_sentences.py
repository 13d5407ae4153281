"""Sentences to judge by are not those to prune for."""

import pytest

from redpebble.pruning.examples.sentences import CALIBRATION, TESTS, sentences


@pytest.mark.slow
def test_sentences_are_the_same_each_time_and_none_is_in_both_parts() -> None:
    first, others = sentences()
    assert (first, others) == sentences()
    assert (len(set(first)), len(set(others))) == (CALIBRATION, TESTS)
    assert not set(first) & set(others)

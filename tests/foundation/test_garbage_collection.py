"""Builds look for garbage less often, and leave the thresholds as they were."""

import gc

from redpebble.foundation.garbage_collection import THRESHOLDS, rare_collections


def test_thresholds_come_back_when_the_last_build_ends() -> None:
    """Also where one build is inside of another."""
    before = gc.get_threshold()
    with rare_collections():
        with rare_collections():
            assert gc.get_threshold() == THRESHOLDS
        assert gc.get_threshold() == THRESHOLDS
    assert gc.get_threshold() == before


def test_a_collection_that_is_off_stays_off() -> None:
    """Zero is the user's word."""
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with rare_collections():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)

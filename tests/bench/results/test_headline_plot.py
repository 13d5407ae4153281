"""The README's picture shows what the cards of the zoo say."""

import json

from redpebble.bench.results.headline_plot import figure_of, points_of
from redpebble.bench.results.picture_themes import svg_of
from redpebble.bench.results.quality_plot import SENTENCES


def test_quality_stays_while_speed_rises_with_the_zeros() -> None:
    cards, measured = (json.loads((SENTENCES / f"{name}.json").read_text()) for name in ("cards", "measured"))
    dense, *sparse = points = points_of(cards, measured)
    assert (dense.zeros, dense.speed) == (0, 1)
    assert [point.zeros for point in sparse] == [50, 70, 80, 90]
    speeds = [point.speed for point in points]
    assert speeds == sorted(speeds)
    assert all(abs(point.recall - dense.recall) <= 3 for point in points)
    text = svg_of(figure_of(points))
    assert all(f"<!-- {label} -->" in text for label in ("dense", "70 %", f"{speeds[-1]:.1f}x", "times as fast"))

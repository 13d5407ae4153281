"""The picture of decoders: what was measured is drawn, at its bits."""

import json

from redpebble.bench.results.decoder_plot import LANGUAGE, TEXTS, figure_of, points_of
from redpebble.bench.results.picture_themes import svg_of


def test_the_picture_has_every_decoder_with_its_texts_and_its_speed() -> None:
    cards = json.loads((LANGUAGE / "cards.json").read_text(encoding="utf-8"))
    points = {point.label: point for point in points_of(cards)}
    ours = points["smollm2_50"]
    assert ours.perplexity["licences"] == cards["models"]["smollm2_50"]["quality"]["licences"]
    assert ours.bits < points["dense, 4 bits"].bits < points["dense, float32"].bits
    assert [label for label, point in points.items() if point.tokens_a_second is None] == [
        "dense, 4 bits, trained as long",
        "50 %, 4 bits, not trained",
    ]
    assert all(point.perplexity[text] > 1 for point in points.values() for text in TEXTS)
    text = svg_of(figure_of(cards))
    assert all(f"<!-- {label} -->" in text for label in ("smollm2_50", "licences", "bits of a weight"))

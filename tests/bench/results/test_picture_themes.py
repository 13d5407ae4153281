"""Pictures of pages can be read in light themes and in dark ones."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from redpebble.bench.results.picture_themes import DARK, MARK, svg_of, with_dark_theme

ROOT = Path(__file__).parents[3]
PICTURES = [*ROOT.glob("docs/pictures/*.svg"), *ROOT.glob("bench/plots/*.svg")]


def luminance(color: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_every_picture_of_a_page_has_colours_for_a_dark_theme(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(MARK) == 1
    assert with_dark_theme(text) == text


@pytest.mark.parametrize("light", [color for color in DARK if color not in ("#ffffff", "#cccccc")])
def test_a_colour_stands_out_from_its_page_in_either_theme(light: str) -> None:
    for ink, paper in ((light, "#ffffff"), (DARK[light], DARK["#ffffff"])):
        darker, lighter = sorted((luminance(ink), luminance(paper)))
        assert (lighter + 0.05) / (darker + 0.05) > 3.0


def test_a_figure_stays_an_svg_whose_style_is_for_dark_themes() -> None:
    figure = Figure(figsize=(2, 2), layout="constrained")
    figure.add_subplot().plot([0, 1], [0, 1], color="#3b4cc0")
    text = svg_of(figure)
    style = next(ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}style"))
    assert f'[style*="stroke: #3b4cc0"] {{ stroke: {DARK["#3b4cc0"]} !important }}' in (style.text or "")


def test_what_is_no_picture_of_matplotlib_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an SVG file of matplotlib, got one without <defs>"):
        with_dark_theme("<svg/>")

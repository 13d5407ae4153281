"""Pictures that can be read on white pages and on dark ones: an SVG says itself what its colours are in a dark theme.

`python -m redpebble.bench.results.picture_themes docs/pictures/*.svg bench/plots/*.svg` puts it into files that
matplotlib wrote; what has it already stays as it is.
"""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Annotated, Final

import typer
from matplotlib.figure import Figure

from ...foundation.atomic_files import write_text

DARK: Final[Mapping[str, str]] = {
    "#ffffff": "#1e2129",
    "#000000": "#d5d7de",
    "#777777": "#9a9ca5",
    "#cccccc": "#4a4d57",
    "#3b4cc0": "#8b9bff",
    "#6d3b8e": "#b98ae0",
    "#d1495b": "#ef6f80",
    "#1f77b4": "#5aa9e6",
    "#0072b2": "#4aa8e0",
    "#009e73": "#2bbf94",
}
"""Colour of our plots -> its colour in a dark theme; the others can be read on both."""

DEFINITIONS: Final = "<defs>\n"
MARK: Final = "@media (prefers-color-scheme: dark)"


def svg_of(figure: Figure) -> str:
    """Return a figure as the text of an SVG for both themes: the same figure gives the same text."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return with_dark_theme(text.getvalue())


def with_dark_theme(picture: str) -> str:
    """Return the text of an SVG with its colours for dark themes.

    Raises:
        ValueError: it is no SVG as matplotlib writes it.
    """
    if MARK in picture:
        return picture
    if DEFINITIONS not in picture:
        raise ValueError("expected an SVG file of matplotlib, got one without <defs> for a style")
    # text has no style of its own: it inherits. The page below stays opaque, whatever a site's own switch says
    lines = [f"svg {{ fill: {DARK['#000000']} }}"]
    for light, dark in DARK.items():
        lines += [f'[style*="{name}: {light}"] {{ {name}: {dark} !important }}' for name in ("fill", "stroke")]
    style = "\n".join([f'<style type="text/css">{MARK} {{', *lines, "}</style>\n"])
    return picture.replace(DEFINITIONS, DEFINITIONS + style, 1)


def main(pictures: Annotated[list[Path], typer.Argument(help="SVG files that matplotlib wrote.")]) -> None:
    """Give pictures their colours for dark themes."""
    for path in pictures:
        write_text(path, with_dark_theme(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    typer.run(main)

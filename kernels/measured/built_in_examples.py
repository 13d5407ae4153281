"""Measured layers of the machines that prices were fitted to: files that `bench/fit_prices.py` writes."""

from functools import cache
from pathlib import Path
from typing import Final

from .neighbours import Examples

FOLDER: Final = Path(__file__).parent / "examples"


def examples_file(prices: str, lanes: int) -> Path:
    """Return where the examples of a machine lie, as it runs code with vectors of `lanes` floats."""
    return FOLDER / f"{prices}-{lanes}.txt"


@cache
def built_in_examples(prices: str, lanes: int) -> Examples:
    """Return the measured layers of a machine; none where it was not measured with such vectors."""
    file = examples_file(prices, lanes)
    return Examples(tuple(file.read_text(encoding="utf-8").split())) if file.exists() else Examples()

"""Times of a layer by the width of the batch tile, as the cost model predicts them or a clock has found them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final

from xdsl.utils.exceptions import VerifyException

from ..record import CODECS, FLOAT, mapping


def _checked(times: Mapping[int, float]) -> Mapping[int, float]:
    widths = list(times)
    if widths != sorted(widths) or min(widths, default=1) < 1:
        raise VerifyException(f"expected ascending positive widths with a time each, got {widths}")
    for width, time in times.items():
        if not time >= 0:
            raise VerifyException(f"expected a time of 0 us or more at width {width}, got {time}")
    # a clock has no more than four digits to say, and the text stays short
    return TABLE.convert({width: float(f"{time:.4g}") for width, time in times.items()})


TABLE: Final = mapping(CODECS[int], FLOAT)

Times = Annotated[Mapping[int, float], replace(TABLE, convert=_checked)]
"""Microseconds, say, of a tile by its width in batch columns, to four digits: `[1: 6.8, 64: 113.0]`."""

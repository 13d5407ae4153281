"""Charts stay inside their frame whatever they show, and pictures are dark where entries lie."""

import struct
import zlib
from base64 import b64decode
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redpebble.tools.explain.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axes,
    Line,
    dot_picture,
    line_chart,
    short_number,
)

VALUES = st.lists(st.floats(1.0, 1e9), min_size=1, max_size=6)


@given(xs=VALUES, ys=VALUES, log_x=st.booleans(), log_y=st.booleans())
def test_lines_lie_between_the_axes(xs: list[float], ys: list[float], *, log_x: bool, log_y: bool) -> None:
    count = min(len(xs), len(ys))
    line = Line("a < b & c", sorted(xs[:count]), ys[:count], "best")
    drawn = ElementTree.fromstring(line_chart([line], Axes("x", "y", log_x, log_y, marked_x=xs[0])))
    (points,) = [one.attrib["points"] for one in drawn.iter() if one.tag.endswith("polyline")]
    for pair in points.split():
        x, y = map(float, pair.split(","))
        assert LEFT - 0.1 <= x <= WIDTH - RIGHT + 0.1
        assert TOP - 0.1 <= y <= HEIGHT - BOTTOM + 0.1
    for tick in [one for one in drawn.iter() if one.attrib.get("class") == "tick"]:
        assert -0.1 <= float(tick.attrib["y"]) <= HEIGHT
    assert "a < b & c" in [one.text for one in drawn.iter()]


def test_a_picture_is_dark_where_the_entries_are_and_white_elsewhere() -> None:
    uri = dot_picture(np.array([0, 1, 1]), np.array([1, 0, 0]), (2, 2), size=10)
    assert uri.startswith("data:image/png;base64,")
    data = b64decode(uri.partition(",")[2])
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT") + 4
    rows = zlib.decompress(data[start : data.index(b"IEND") - 8])
    pixels = np.frombuffer(rows, dtype=np.uint8).reshape(height, width + 1)[:, 1:]
    assert pixels.shape == (10, 10)
    assert np.all(pixels[:5, :5] == 255)
    assert np.all(pixels[5:, 5:] == 255)
    assert np.all(pixels[5:, :5] <= pixels[0, 9])
    assert pixels[0, 9] < 255


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.25, "0.25"), (999.0, "999"), (78268.0, "78.27k"), (1.2e6, "1.2M"), (3e9, "3G")]
)
def test_numbers_on_an_axis_are_short(value: float, text: str) -> None:
    assert short_number(value) == text

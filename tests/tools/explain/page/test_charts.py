"""Charts stay inside their frame whatever they show, for wide screens and for phones, and names stand in the plot."""

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.tools.explain.page.charts import (
    FRAMES,
    LETTER,
    Axes,
    Dot,
    Line,
    line_chart,
    scatter_chart,
    short_number,
)

VALUES = st.lists(st.floats(1.0, 1e9), min_size=1, max_size=6)


def charts(text: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(f"<div>{text}</div>"))


@settings(deadline=None, max_examples=40)
@given(xs=VALUES, ys=VALUES, log_x=st.booleans(), log_y=st.booleans())
def test_lines_and_names_lie_between_the_axes(xs: list[float], ys: list[float], *, log_x: bool, log_y: bool) -> None:
    count = min(len(xs), len(ys))
    line = Line("a < b & c", sorted(xs[:count]), ys[:count], "best")
    drawn = charts(line_chart([line], Axes("x", "y", log_x, log_y, marked_x=xs[0])))
    assert len(drawn) == len(FRAMES)
    for frame, chart in zip(FRAMES, drawn, strict=True):
        (points,) = [one.attrib["points"] for one in chart.iter() if one.tag.endswith("polyline")]
        for pair in points.split():
            x, y = map(float, pair.split(","))
            assert frame.left - 0.1 <= x <= frame.width - frame.right + 0.1
            assert frame.top - 0.1 <= y <= frame.height - frame.bottom + 0.1
        for tick in [one for one in chart.iter() if one.attrib.get("class") == "tick"]:
            assert -0.1 <= float(tick.attrib["y"]) <= frame.height
        (name,) = [one for one in chart.iter() if one.attrib.get("class") == "name"]
        assert name.text == "a < b & c"
        assert frame.left <= float(name.attrib["x"]) <= frame.width - frame.right - LETTER * len(name.text)
        assert frame.top <= float(name.attrib["y"]) <= frame.height - frame.bottom


def test_lines_through_the_same_points_are_one_with_both_names() -> None:
    lines = [Line(name, [1, 2], ys, "c0") for name, ys in (("a", [1, 2]), ("b", [3, 4]), ("c", [1, 2]))]
    for chart in charts(line_chart(lines, Axes("x", "y"))):
        assert {one.text for one in chart.iter() if one.attrib.get("class") == "name"} == {"a, c", "b"}


def test_names_of_lines_that_are_apart_do_not_cover_each_other() -> None:
    lines = [Line(f"line number {level}", [1, 10, 100], [level, level, level], "c0") for level in (1, 2, 3, 4)]
    for chart in charts(line_chart(lines, Axes("x", "y", log_x=True))):
        heights = [float(one.attrib["y"]) for one in chart.iter() if one.attrib.get("class") == "name"]
        assert min(abs(one - other) for one in heights for other in heights if one is not other) > 10


def test_dots_tell_what_they_are_and_some_have_names() -> None:
    dots = [Dot("fc1: 3 us", 1.0, 2.0, "fc1"), Dot("fc2: 1 us", 4.0, 8.0)]
    for chart in charts(scatter_chart(dots, [Line("roof", [1, 4], [9, 9], "roof")], Axes("x", "y"))):
        assert [one.text for one in chart.iter("circle")] == [None, None]
        assert [one.text for one in chart.iter("title")] == ["roof", "fc1: 3 us", "fc2: 1 us"]
        assert {one.text for one in chart.iter() if one.attrib.get("class") == "name"} == {"roof", "fc1"}


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.25, "0.25"), (999.0, "999"), (78268.0, "78.27k"), (1.2e6, "1.2M"), (3e9, "3G")]
)
def test_numbers_on_an_axis_are_short(value: float, text: str) -> None:
    assert short_number(value) == text

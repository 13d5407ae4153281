"""Numbers of a page are written as a person writes them, and tables say what heads a column and a row."""

import pytest

from redpebble.tools.explain.page.markup import (
    Column,
    Row,
    byte_text,
    count_text,
    ratio_text,
    table,
    time_text,
)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (296, "296 B"), (18_944, "18.9 KB"), (999_900, "1.00 MB"), (4_505_640, "4.51 MB")]
)
def test_bytes_have_three_digits_and_a_unit(count: float, text: str) -> None:
    assert byte_text(count) == text


@pytest.mark.parametrize(("time", "text"), [(0.354, "0.35 µs"), (78.09, "78.1 µs"), (1650, "1.65 ms"), (2e6, "2.00 s")])
def test_times_have_three_digits_and_a_unit(time: float, text: str) -> None:
    assert time_text(time) == text


@pytest.mark.parametrize(("number", "text"), [(512, "512"), (3277, "3,277"), (26_807, "26.8k"), (3_916_288, "3.92M")])
def test_counts_are_short_from_ten_thousand_on(number: int, text: str) -> None:
    assert count_text(number) == text


@pytest.mark.parametrize(("ratio", "text"), [(1.04, "1.0x"), (9.87, "9.9x"), (30.53, "30.5x"), (123.4, "123x")])
def test_ratios_have_one_decimal_or_three_digits(ratio: float, text: str) -> None:
    assert ratio_text(ratio) == text


def test_tables_name_their_columns_and_rows_and_escape_what_they_hold() -> None:
    written = table("a caption", [Column("layer", "word"), Column("why", "text")], [Row("best", ("<fc>", "a & b"))])
    assert "<caption>a caption</caption>" in written
    assert '<th scope="col" class="word">layer</th>' in written
    assert '<th scope="row" class="word">&lt;fc&gt;</th>' in written
    assert '<td class="text" data-label="why">a &amp; b</td>' in written
    assert 'tabindex="0"' in written

"""Tables on terminals of 80 and 120 columns: no number is broken or cut."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console, RenderableType

from redpebble.dialect.reports.layer_report import Report
from redpebble.dialect.reports.network_report import NetworkReport
from redpebble.theory.partition.partition import LayerTraffic
from redpebble.tools import tables
from redpebble.tools.explain.partition import PartitionedLayer, partition_table
from redpebble.tools.explain.saved_orders import ScheduledGraph, ScheduleRequest, SearchBudget
from redpebble.tools.explain.sweep import Sweep, SweepPoint, SweepRequest
from tests.tools.explain.test_layer_tables import LAYER as SMALL_LAYER

NAME = "/bert/encoder/layer.11/attention/output/dense/MatMul"
LAYER = replace(
    SMALL_LAYER,
    name=NAME,
    outputs=31_072,
    inputs=40_768,
    connections=126_672_115,
    density=0.1,
    families={"1": "permute_lookup", "8": "narrow_blocks", "64": "count_blocks"},
    predicted_us={"1": 12_345.0, "8": 56_789.0, "64": 91_234.0},
    measured_us={"1": 23_456.0, "8": 67_891.0, "64": 12_389.0},
    predicted_bytes={"1": 1_234_000.0, "8": 5_678_000.0, "64": 9_123_000.0},
)
NUMBERS = ("126,672,115", "40,768", "31,072", "0.100", "12,345", "56,789", "91,234")
MEASURED = ("23,456", "67,891", "12,389", "1,234", "5,678", "9,123")


def shown(what: RenderableType, width: int) -> str:
    stream = StringIO()
    Console(file=stream, width=width).print(what)
    assert max(map(len, stream.getvalue().splitlines())) <= width
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 120, 160])
@pytest.mark.parametrize("moved", [False, True])
def test_no_number_of_a_layer_is_broken(width: int, monkeypatch: pytest.MonkeyPatch, *, moved: bool) -> None:
    monkeypatch.setattr(tables, "console", Console(width=width))
    text = shown(tables.layer_tables([LAYER, LAYER], moved=moved), width)
    assert all(number in text for number in (*NUMBERS, *(MEASURED if moved else ())))
    assert "narrow_blocks at 8" in text


@pytest.mark.parametrize("width", [80, 120])
def test_no_number_of_another_table_is_broken(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "console", Console(width=width))
    traffic = LayerTraffic(12_345_678, 123_456, 0.1, 0, 0, 0, 0)
    graph = ScheduledGraph("0", 126_672_115, "greedy rolling 3", 123_456_789, 12_345_678, 99_999_999)
    names = ("pull", "push", "depth first", "target blocks", "sliding window", "searched")
    point = SweepPoint(1_048_576, dict.fromkeys(names, 1_234_567), 1_000_000)
    budget = SearchBudget(1.0)
    why = "because " * 20
    tried: list[tuple[RenderableType, tuple[str, ...]]] = [
        (partition_table([PartitionedLayer(NAME, 126_672_115, traffic, traffic)], 4), ("12,345,678", "123,456")),
        (tables.schedule_table([graph], ScheduleRequest(9, "min", budget)), ("126,672,115", "135,802,467", "1.358")),
        (tables.sweep_table(Sweep("m", 9, (point,)), SweepRequest((9,), 1, budget)), ("1,048,576", "1.235")),
        (tables.network_table([NetworkReport(NAME, 3, 2, 126_672_115, 0.1, why)]), ("126,672,115", "0.100")),
    ]
    for what, numbers in tried:
        text = shown(what, width)
        assert all(number in text for number in numbers), text


def test_equal_layers_are_shown_together_with_their_sums(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream, other = StringIO(), replace(LAYER, name="another", outputs=31_073)
    monkeypatch.setattr(tables, "console", Console(file=stream, width=80))
    tables.print_layers(Report((LAYER, other, LAYER)))
    text = " ".join(stream.getvalue().split())
    assert f"2 layers like {NAME}: 40,768 -> 31,072, 253,344,230 connections" in text
    assert "count_blocks at 64 182,468 24,778" in text
    assert text.count("permute_lookup at 1 ") == 2
    with caplog.at_level("INFO", "redpebble"):
        tables.print_layers(Report((LAYER, LAYER)))
    assert stream.getvalue().count("permute_lookup at 1 ") == 4

from io import StringIO

from rich.console import Console

from redpebble.dialect.reports.network_report import AttentionReport, NetworkReport
from redpebble.kernels.machine import Machine
from redpebble.tools.explain.attention_table import LENGTHS, attention_lines, attention_table
from redpebble.tools.explain.page.page import attention_section


def test_attentions_of_one_form_share_a_line_a_length() -> None:
    reports = tuple(AttentionReport(name, 2, 8, 8, 0, 0, True, False) for name in ("first", "second"))
    step = AttentionReport("step", 2, 8, 8, 0, 0, False, True)
    fixed = AttentionReport("fixed", 2, 8, 8, 30, 30, False, False)
    networks = [NetworkReport("n", 4, 0, 0, 1.0, "", attentions=(*reports, step, fixed))]
    lines = attention_lines(networks, Machine())
    shown = {(line.name, line.count, line.size.queries, line.size.keys) for line in lines}
    assert shown == {
        *(("first", 2, length, length) for length in LENGTHS),
        *(("step", 1, 1, length) for length in LENGTHS),
        ("fixed", 1, 30, 30),
    }
    assert all(line.measured_us > 0 < line.predicted_us for line in lines)
    console = Console(width=120, record=True, file=StringIO())
    console.print(attention_table(lines))
    assert "first and 1 alike" in console.export_text()
    page = attention_section(lines)
    assert all(text in page for text in ("first and 1 alike", "2 x 8", "Attention by length"))
    (one,) = (line.report() for line in lines if line.name == "fixed")
    assert (one["queries"], one["keys"], one["key_size"], one["count"]) == (30, 30, 8, 1)
    assert all(isinstance(one[key], int | float) for key in ("moved_bytes", "least_bytes", "predicted_us"))

"""The section of the page on attention: what the terminal's table says."""

from collections.abc import Sequence

from ....theory.attention_cost import least_bytes, moved_bytes
from ..attention_table import AttentionLine
from .markup import Column, Row, byte_text, section, table, time_text

COLUMNS = (
    Column("attention", "word"),
    *map(Column, ("heads", "queries", "keys", "moved", "at least", "predicted", "measured here")),
)


def attention_section(lines: Sequence[AttentionLine]) -> str:
    """Return the section on attention by its length."""
    note = "One call of one sample, beside the layers; lengths that the model leaves open are 16, 128 and 512."
    return section("attention", "Attention by length", note, table("Attention by length", COLUMNS, map(_row, lines)))


def _row(line: AttentionLine) -> Row:
    size = line.size
    counts = f"{size.heads} x {size.key_size}", f"{size.queries:,}", f"{size.keys:,}"
    moved = byte_text(moved_bytes(size)), byte_text(least_bytes(size))
    return Row("", (line.title, *counts, *moved, time_text(line.predicted_us), time_text(line.measured_us)))

"""Attention of a model by its length: predicted and measured time, and the values that it moves."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rich.table import Table

from ...dialect.reports.network_report import AttentionReport, NetworkReport
from ...driver.predicted_gain import size_of
from ...kernels.dense_work import dense_us
from ...kernels.machine import Machine
from ...theory.attention_cost import BLOCK_QUERIES, AttentionSize, attention_work, least_bytes, moved_bytes
from ...tuning.attention_timing import measured_us

LENGTHS: Final = (16, 128, 512)
"""Lengths that are shown where a model leaves its own open."""


@dataclass(frozen=True)
class AttentionLine:
    """Attentions of one form at one length."""

    name: str
    count: int
    size: AttentionSize
    predicted_us: float
    measured_us: float

    @property
    def title(self) -> str:
        """The name of the first one, and how many others there are."""
        return self.name if self.count == 1 else f"{self.name} and {self.count - 1} alike"

    def report(self) -> dict[str, object]:
        """Return the line as JSON holds it."""
        return {
            "name": self.name,
            "count": self.count,
            **self.size._asdict(),
            "moved_bytes": moved_bytes(self.size),
            "least_bytes": least_bytes(self.size),
            "predicted_us": self.predicted_us,
            "measured_us": self.measured_us,
        }


def attention_lines(networks: Sequence[NetworkReport], machine: Machine) -> list[AttentionLine]:
    """Return the attentions of sparse networks by form and length, for one sample each."""
    every = [one for network in networks for one in network.attentions]
    multiply_add_us, lines = dense_us(BLOCK_QUERIES, machine), list[AttentionLine]()
    for _, alike in groupby(sorted(every, key=_form), key=_form):
        first, *others = alike
        sizes = dict.fromkeys(size_of(first, length) for length in LENGTHS)
        lines += [
            AttentionLine(first.name, 1 + len(others), size, multiply_add_us * attention_work(size), measured_us(size))
            for size in sizes
        ]
    return lines


def _form(attention: AttentionReport) -> tuple[object, ...]:
    return attention[1:]


def attention_table(lines: Sequence[AttentionLine]) -> Table:
    """Return a row for each line."""
    table = Table(box=None, pad_edge=False, header_style="")
    headers = ("attention", "heads", "queries", "keys", "moved KB", "at least KB", "predicted us", "a call takes")
    for header in headers:
        table.add_column(header, justify="left" if header == "attention" else "right")
    for line in lines:
        size = line.size
        bytes_moved = (f"{one(size) / 1e3:,.0f}" for one in (moved_bytes, least_bytes))
        heads = f"{size.heads} x {size.key_size}"
        times = f"{line.predicted_us:,.0f}", f"{line.measured_us:,.0f}"
        table.add_row(line.title, heads, f"{size.queries:,}", f"{size.keys:,}", *bytes_moved, *times)
    return table

"""The table of `redpebble bench`, in markdown: to read on a terminal, and to paste as it is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from typing_extensions import override

from .machine import machine_words
from .results import DISTURBED, BenchRow

MANY_CALLS: Final = 100
"""Fewer calls than these have no 99th percentile but their slowest one."""

LEFT: Final = ("engine",)
"""Columns of words; others hold numbers."""


@dataclass(frozen=True)
class Benchmark:
    """All that `bench` measured of a model: `print` shows it as a table of markdown, notebooks draw that."""

    model: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    """Versions of Python and of the packages that were measured, by name."""
    rows: Sequence[BenchRow]
    left_out: Sequence[str] = ()
    """A line for each engine that does not run the model, and one for sizes that were assumed."""

    @override
    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        heading = f"{self.model}: {machine_words(self.machine)}; {versions}"
        return "\n\n".join([heading, bench_table(self.rows), *notes(self.rows)])

    def _repr_markdown_(self) -> str:
        return str(self)


def bench_table(rows: Sequence[BenchRow]) -> str:
    """Return a line of markdown for each batch, number of threads and engine."""
    unit, scale = ("ms", 1e3) if all(row.median_us >= 1e3 for row in rows) else ("us", 1.0)
    headers = ["batch", "threads", "engine", f"p50 {unit}", f"p99 {unit}", "speed"]
    callers = sorted({row.callers for row in rows if row.callers})
    headers += [f"calls/s, {count} caller{'s' if count != 1 else ''}" for count in callers]
    lines: list[list[str]] = []
    for row in rows:
        times = [_digits(row.median_us / scale), _digits(row.p99_us / scale)]
        ratio = f"{row.speedup_vs_onnxruntime:.2f}x{'*' if row.is_disturbed else ''}"
        rates = ["" if row.calls_per_second is None else _digits(row.calls_per_second)] if callers else []
        lines.append([str(row.batch), str(row.threads), row.engine, *times, ratio, *rates])
    return _aligned(headers, lines)


def notes(rows: Sequence[BenchRow]) -> list[str]:
    """Return what a reader of the numbers has to know."""
    few = min((row.calls for row in rows), default=MANY_CALLS)
    slowest = f"p99 of fewer than {MANY_CALLS} calls is the slowest of them" if few < MANY_CALLS else ""
    return [line for line in (disturbed_line(rows), slowest) if line]


def disturbed_line(rows: Iterable[BenchRow]) -> str:
    """Return a note on disturbed rows, empty if there are none."""
    count = sum(row.is_disturbed for row in rows)
    if not count:
        return ""
    return f"* {count} disturbed: the median is over {DISTURBED} times the minimum, and ratios are those of minima"


def _digits(number: float) -> str:
    """Return a number with three digits or more."""
    places = next((places for places, least in enumerate((100, 10, 1)) if number >= least), 3)
    return f"{number:,.{places}f}"


def _aligned(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table whose columns stand below each other without being rendered, too."""
    widths = [max(len(line[column]) for line in (headers, *lines)) for column in range(len(headers))]

    def shown(line: Sequence[str]) -> str:
        cells = zip(headers, line, widths, strict=True)
        words = [cell.ljust(width) if name in LEFT else cell.rjust(width) for name, cell, width in cells]
        return f"| {' | '.join(words)} |"

    rule = [
        "-" * width if name in LEFT else f"{'-' * (width - 1)}:" for name, width in zip(headers, widths, strict=True)
    ]
    return "\n".join([shown(headers), f"| {' | '.join(rule)} |", *map(shown, lines)])

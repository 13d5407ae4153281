"""Timings as tables on a terminal."""

from collections.abc import Sequence

from rich.table import Table

from .results import Row


def layer_lines(rows: Sequence[Row]) -> Table:
    """Return a line for each layer, suite, batch and number of threads; a column an engine, as GF or microseconds."""
    engines = list(dict.fromkeys(row.engine for row in rows))
    table = Table("suite", "layer", box=None, header_style="bold")
    for header in ("batch", "threads", *engines):
        table.add_column(header, justify="right")
    cases: dict[tuple[str, str, int, int], dict[str, Row]] = {}
    for row in rows:
        cases.setdefault((row.suite, row.model, row.batch, row.threads), {})[row.engine] = row
    for (suite, model, batch, threads), found in cases.items():
        words = (_words(found[engine]) if engine in found else "" for engine in engines)
        table.add_row(suite, model, str(batch), str(threads), *words)
    return table


def network_lines(rows: Sequence[Row]) -> Table:
    """Return a line for each engine, batch and number of threads, with the connections passed in a second."""
    table = Table(box=None, header_style="bold")
    for header in ("batch", "threads", "engine", "median us", "against onnxruntime", "G connections/s"):
        table.add_column(header, justify="left" if header == "engine" else "right")
    for row in rows:
        ratio = "" if row.speedup_vs_onnxruntime is None else f"{row.speedup_vs_onnxruntime:.2f}x"
        words = (str(row.batch), str(row.threads), row.engine, f"{row.median_us:.1f}", ratio, f"{row.gflops / 2:.1f}")
        table.add_row(*words)
    return table


def _words(row: Row) -> str:
    """Return the speed of a kernel, or the time of a call and its ratio."""
    if row.suite == "kernel":
        return f"{row.gflops:.1f} GF"
    ratio = row.speedup_vs_onnxruntime
    return f"{row.median_us:.1f} us" if ratio is None else f"{row.median_us:.1f} us {ratio:.2f}x"

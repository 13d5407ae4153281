"""The tables of bench/targets.md, made from a result of the benchmark: the targets, and the networks of the zoo.

`python -m redpebble.bench.results.target_table build/bench.json` prints them and puts each into the page between its
markers, which name the kind of CPU: the page has the tables of every machine that was measured.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ...tools.benching.layer_cases import BATCHES
from ...tools.benching.results import Result, Row, read_result, with_minima
from ...tools.console.console import console
from .page_tables import PageTable
from .targets import Check, all_checks, show

PAGE: Final = Path("bench/targets.md")
VERDICTS: Final = PageTable("targets", ("case", "target", "measured"), PAGE)
NETWORKS: Final = PageTable("networks", ("network", "threads", *(f"M = {batch}" for batch in BATCHES)), PAGE)


def target_lines(result: Result) -> list[str]:
    """Return the lines of the table, with what was measured against it before."""
    checks = all_checks(result)
    return [
        *_head(result, checks),
        "",
        f"| {' | '.join(VERDICTS.heads)} | share of the ports | verdict |",
        "|---|---|---|---|---|",
        *map(_line, checks),
    ]


def _head(result: Result, checks: Sequence[Check]) -> list[str]:
    measured = [check for check in checks if check.is_met is not None]
    met = sum(1 for check in measured if check.is_met)
    machine, ceilings = result.machine, result.ceilings
    lines = [f"{met} of {len(measured)} targets met; {len(checks) - len(measured)} not measured."]
    if machine.get("clock") == "thread":
        lines.append("Preliminary: others used the machine, so times are those of one thread on its core.")
    lines.append(
        f"Machine: {machine.get('model', machine.get('cpu'))} ({machine.get('cpu')}), {machine.get('cores')} cores, "
        f"vectors of {machine.get('vector_floats')} floats."
    )
    if ceilings:
        reads = ", ".join(f"{name} {ceilings[name]:.0f}" for name in ("L1", "L2", "L3", "DRAM") if name in ceilings)
        registers = f"multiply-adds of registers {ceilings['fma']:.0f} GF, " if "fma" in ceilings else ""
        lines.append(f"Ceilings of one thread: {registers}ports {ceilings['ports']:.0f} GF; reading {reads} GB/s.")
    return lines


def _line(check: Check) -> str:
    values = ", ".join(
        f"{label}: {show(value, check.target.unit)}" if label else show(value, check.target.unit)
        for label, value in check.values.items()
    )
    shares = ", ".join(show(share, "%") for share in check.shares.values())
    return f"| {check.case} | {check.target} | {values or '-'} | {shares} | {check.verdict} |"


def zoo_lines(result: Result) -> list[str]:
    """Return the lines of the table of networks: the ratio to onnxruntime, and our time of a call."""
    rows = {
        (row.model, row.threads, row.batch): row
        for row in result.rows
        if (row.suite, row.engine) == ("zoo", "redpebble") and row.batch in BATCHES
    }
    lines = [f"| {' | '.join(NETWORKS.heads)} |", "|---" * len(NETWORKS.heads) + "|"]
    for model, threads in dict.fromkeys((model, threads) for model, threads, _ in rows):
        cells = [_cell(rows.get((model, threads, batch))) for batch in BATCHES]
        lines.append(f"| {model.removesuffix('.onnx')} | {threads} | {' | '.join(cells)} |")
    return lines


def _cell(row: Row | None) -> str:
    return "" if row is None else f"{row.speedup_vs_onnxruntime or 0:.1f}x ({row.median_us:.0f} us)"


def main(
    result: Annotated[Path, typer.Argument(help="What `make bench` wrote.")],
    *,
    minima: Annotated[bool, typer.Option(help="Compare the fastest rounds, not the medians.")] = False,
    write: Annotated[bool, typer.Option(help="Change the page.")] = True,
) -> None:
    """Print the tables, and put them into the page."""
    measured = with_minima(read_result(result)) if minima else read_result(result)
    tables = {VERDICTS: target_lines(measured), NETWORKS: zoo_lines(measured)}
    if minima:
        tables[VERDICTS].insert(0, "Of the fastest rounds instead of the medians, as others used the machine.")
    for table, lines in tables.items():
        console.print("\n".join(lines), highlight=False, soft_wrap=True)
        if write:
            table.write(lines, f"{measured.machine.get('cpu')}")


if __name__ == "__main__":
    typer.run(main)

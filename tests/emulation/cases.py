"""Cases that gave the right results on an emulated ARM, counted by kind of code and target, as the tests noted them.

    python -m tests.emulation.cases [--write]

prints a table of what the tests in this folder have noted since `make test-arm` began, and writes it into docs/arm.md.
"""

import json
from pathlib import Path
from typing import Final

import typer

from redpebble.bench.results.page_tables import PageTable, Write
from tests.emulation.on_arm import CASES, TARGETS

COUNTS: Final = PageTable("emulated cases", ("kind of code", *TARGETS, "others"), Path("docs/arm.md"), of_machine=False)


def noted() -> dict[str, dict[str, int]]:
    """Return the calls by kind of code and target; images of all windows and sizes are one kind."""
    found: dict[str, dict[str, int]] = {}
    for line in CASES.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        kind = str(case["kind"])
        kind = f"images of {kind.split()[0]}" if kind.split()[0] in ("floats", "codes") and "x" in kind[-4:] else kind
        target = case["target"] if case["target"] in TARGETS else "others"
        known = found.setdefault(kind, {})
        known[target] = known.get(target, 0) + int(case["calls"])
    return found


def main(*, write: Write = False) -> None:
    """Print the table."""
    with COUNTS.rows(write=write) as add:
        total: dict[str, int] = {}
        for kind, calls in noted().items():
            add(kind, *(calls.get(target, "") for target in (*TARGETS, "others")))
            total = {target: total.get(target, 0) + calls.get(target, 0) for target in (*TARGETS, "others")}
        add("all", *total.values())


if __name__ == "__main__":
    typer.run(main)

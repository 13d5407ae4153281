"""Tables of pages that benchmarks write: a run replaces the table of its kind of CPU, and keeps those of others.

A benchmark has a `PageTable` for each of its tables, adds rows as they are measured, which prints them, and with
`--write` puts the table between the markers of its page that name it and the CPU:

    <!-- layers in bfloat16 on znver5: begin -->
    AMD EPYC (znver5), onnxruntime 1.32.0: `python -m redpebble.bench.bfloat_bench 768x768`

    | rows | 0.9 |
    |---|---|
    | 32 | 1.61x / 9.6x / 6.0x |
    <!-- layers in bfloat16 on znver5: end -->
"""

import re
import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import onnxruntime
import typer

from ...foundation.atomic_files import write_text
from ...tools.benching.machine import describe_machine
from ...tools.console.console import console

BENCH_PAGE: Final = Path("bench/README.md")

Write = Annotated[bool, typer.Option("--write", help="Put the table into its page, in place of this CPU's.")]
"""The option of every benchmark that has a table in a page."""


@dataclass(frozen=True)
class PageTable:
    """A table of a page: its name in the markers, and its first columns, behind which a run may have others.

    One that is no measurement of the machine at hand has markers of its name alone.
    """

    name: str
    heads: Sequence[str]
    page: Path = BENCH_PAGE
    of_machine: bool = True

    @contextmanager
    def rows(self, *more: str, write: bool = False) -> Generator[Callable[..., None]]:
        """Yield what adds a row, of cells, and prints it; with `write` the page has all of them at the end.

        Raises:
            ValueError: the page has no place for the table.
        """
        printed = PrintedRows(*self.heads, *more)
        yield printed.add
        if write:
            self.write([_origin() if self.of_machine else _command(), "", *printed.lines])

    def write(self, lines: Sequence[str], cpu: str = "") -> None:
        """Put lines into the page, in the place of what it has of a kind of CPU, this one unless told otherwise.

        Raises:
            ValueError: the page has no place for the table.
        """
        name = f"{self.name} on {cpu or describe_machine()['cpu']}" if self.of_machine else self.name
        write_text(self.page, with_table(self.page.read_text(encoding="utf-8"), name, lines))


class PrintedRows:
    """A table in Markdown whose lines are printed as they come; one that no page has is by itself."""

    def __init__(self, *heads: str) -> None:
        self.lines: list[str] = []
        self.add(*heads)
        self._put("|---" * len(heads) + "|")

    def add(self, *cells: object) -> None:
        """Add a row of cells, and print it."""
        self._put(f"| {' | '.join(map(str, cells))} |")

    def _put(self, line: str) -> None:
        self.lines.append(line)
        console.print(self.lines[-1], highlight=False, soft_wrap=True, markup=False)


def with_table(page: str, name: str, lines: Sequence[str]) -> str:
    """Return a page whose text between the markers called `name` is `lines`.

    The first table of a machine, as "layers on znver5", takes a place behind those of others.

    Raises:
        ValueError: the page has no such markers, or they are in the wrong order.
    """
    begin, end = (f"<!-- {name}: {word} -->" for word in ("begin", "end"))
    text = "\n".join([begin, *lines, end])
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if found and found_end:
        return before + text + after
    table, on, _ = name.rpartition(" on ")
    others = list(re.finditer(rf"<!-- {re.escape(table)} on \w[\w-]*: end -->", page)) if on else []
    if found or end in page or not others:
        raise ValueError(f"table of {name}: expected a place between {begin} and {end}, got none")
    behind = others[-1].end()
    return f"{page[:behind]}\n\n{text}{page[behind:]}"


def mean_cells(cases: Iterable[tuple[object, object, Sequence[float]]]) -> dict[object, dict[object, str]]:
    """Return a text for each row and each column: the geometric means of the ratios of all cases there."""
    found: dict[object, dict[object, list[Sequence[float]]]] = {}
    for row, column, ratios in cases:
        found.setdefault(row, {}).setdefault(column, []).append(ratios)
    return {
        row: {
            column: " / ".join(map(ratio_text, np.exp(np.log(np.array(ratios)).mean(axis=0)).tolist()))
            for column, ratios in by_column.items()
        }
        for row, by_column in found.items()
    }


def ratio_text(ratio: float) -> str:
    """Return a ratio with two or three digits, such as 1.52x, 3.1x and 12x."""
    return f"{ratio:.{2 if ratio < 2 else 1 if ratio < 10 else 0}f}x"


def _origin() -> str:
    """Return the machine and the command in a line."""
    machine = describe_machine()
    return f"{machine['model']} ({machine['cpu']}), onnxruntime {onnxruntime.__version__}: {_command()}"


def _command() -> str:
    """Return the command of this process."""
    spec = sys.modules["__main__"].__spec__
    words = [word for word in sys.argv[1:] if word != "--write"]
    command = f"python -m {'' if spec is None else spec.name} {shlex.join(words)}".rstrip()
    return f"`{command}`"

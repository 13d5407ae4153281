"""The promise never to be slower, for real networks: every stored export over batches and lengths.

`python -m redpebble.bench.suites.slowest_sizes [NAME ...] [--threads N] [--length L] [-o sizes.json]` measures each
size in the session of the original and in ours, in turn, and prints the least ratio of each network and where it is. A
ratio below that of the promise is measured again for longer, before it counts. Without names it takes hours.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import onnx
import typer
from rich.table import Table

from ...foundation.atomic_files import write_text
from ...models.exports.stored import random_feeds, stored_export, stored_names
from ...tools.benching.machine import describe_machine
from ...tools.console.console import console
from ...verification.measuring import Budget, Timing, interleave
from .real_networks import Sessions, check_results

BATCHES: Final = (1, 2, 4, 7, 8, 16, 32)
LENGTHS: Final = (1, 7, 16, 33, 64, 128, 256, 512)
PROMISED: Final = 0.97


@dataclass(frozen=True)
class SizeRow:
    """The times of an export at one size, minima and medians in us."""

    export: str
    sizes: Mapping[str, int]
    original: Timing
    ours: Timing

    @property
    def ratio(self) -> float:
        """Speed, in times of that of the original, by minima or by medians: what is better for us."""
        return max(self.original.min_us / self.ours.min_us, self.original.median_us / self.ours.median_us)


def sizes_of(proto: onnx.ModelProto, known_lengths: Sequence[int] = LENGTHS) -> Iterator[dict[str, int]]:
    """Yield sizes of the free axes, small ones first; a decoder reads one token behind a past, or a text without."""
    names = {dim.dim_param for value in proto.graph.input for dim in value.type.tensor_type.shape.dim} - {""}
    lengths = [(length, 0) for length in known_lengths]
    if "past" in names:
        lengths += [(1, length) for length in known_lengths]
    for sequence, past in lengths if "sequence" in names else [(1, 0)]:
        for batch in BATCHES:
            known = {"batch": batch, "sequence": sequence, "past": past, "total": sequence + past}
            yield {name: known[name] for name in sorted(names)}


class Look(NamedTuple):
    """A measurement of sizes: seconds for each, seconds of the longest call of the original, lengths."""

    seconds: float
    longest: float
    lengths: Sequence[int] = LENGTHS


def measure_sizes(export: str, threads: int, look: Look) -> Iterator[SizeRow]:
    """Yield a row for each size whose calls are predicted to take no longer than the longest one.

    Raises:
        ValueError: a result differs from onnxruntime's.
    """
    proto = stored_export(export)
    sessions = Sessions.of(proto, threads)
    # the time of one thread on its core does not count what other programs take
    clock = time.thread_time if threads == 1 else time.perf_counter
    budget = Budget(look.seconds, least_rounds=3, clock=clock)
    long_look = Budget(10 * look.seconds, least_rounds=7, clock=clock)
    per_value = 0.0
    for sizes in sizes_of(proto, look.lengths):
        count = sizes.get("batch", 1) * sizes.get("sequence", 1)
        if per_value * count > look.longest:
            continue
        feeds = random_feeds(proto, sizes)
        check_results(export, *(one.run(None, feeds) for one in sessions))
        calls = {name: partial(one.run, None, feeds) for name, one in sessions._asdict().items()}
        row = SizeRow(export, sizes, **interleave(calls, budget))
        if row.ratio < PROMISED:
            row = SizeRow(export, sizes, **interleave(calls, long_look))
        per_value = row.original.min_us / 1e6 / count
        yield row


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Exports to measure, such as bert_base.classic.")] = None,
    *,
    threads: Annotated[int, typer.Option(help="Threads of both sessions.")] = 1,
    seconds: Annotated[float, typer.Option(help="Measuring time for each size.")] = 0.3,
    longest: Annotated[float, typer.Option(help="Seconds of the longest call of the original.")] = 2.0,
    length: Annotated[list[int] | None, typer.Option(help="Lengths of texts and pasts, instead of all.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the rows as JSON, too.")] = None,
) -> None:
    """Measure exports over sizes, and print the least ratio of each."""
    look = Look(seconds, longest, tuple(length or LENGTHS))
    rows: list[SizeRow] = []
    table = Table("export", "sizes", "least", "where", "below", box=None, header_style="bold")
    # decoders of onnxruntime-genai want pasts that fit their masks
    for export in names or [name for name in stored_names() if not name.endswith(".genai")]:
        found: list[SizeRow] = []
        for row in measure_sizes(export, threads, look):
            found.append(row)
            if row.ratio < PROMISED:
                print(f"{export} {_words(row)}: {row.ratio:.2f}x", file=sys.stderr, flush=True)
        rows += found
        least, below = min(found, key=lambda row: row.ratio), sum(row.ratio < PROMISED for row in found)
        table.add_row(export, str(len(found)), f"{least.ratio:.2f}x", _words(least), str(below))
        if output is not None:  # after each export: a long measurement may be ended
            content = {"machine": describe_machine(), "threads": threads, "rows": [asdict(row) for row in rows]}
            write_text(output, json.dumps(content, indent=2) + "\n")
    console.print(table)


def _words(row: SizeRow) -> str:
    return ", ".join(f"{name} {size}" for name, size in row.sizes.items())


if __name__ == "__main__":
    typer.run(main)

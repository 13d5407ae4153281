"""Hidden blocks in onnxruntime: what `redpebble.optimize` writes for the target `portable`, against the model before.

Run `python -m redpebble.bench.suites.split_bench [WIDTH,...] [--blocks 4,8,16,64] [--threads 1]`: four layers of so
many blocks, the neurons of every level shuffled, inputs and outputs included.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Final, NamedTuple

import numpy as np
import onnx_ir as ir
import typer

import redpebble

from ...models.graph_builder import GraphBuilder, Output
from ...tools.benching.engines.aligned import aligned
from ...tools.benching.engines.engines import Onnxruntime
from ...verification.measuring import Budget, Call, interleave
from ...verification.oracle import Oracle
from ..results.page_tables import PageTable, Write
from .hidden_networks import HiddenNetwork, blocks

DEPTH: Final = 4
BATCHES: Final = (1, 32, 512)
SECONDS: Final = 2.0
"""Timings of the networks of one batch, in turn."""

SPLITS: Final = PageTable("unconnected parts", ("width", "rows", "original us"))


class SplitRow(NamedTuple):
    """Some blocks at a batch: microseconds of onnxruntime as it was and as it is after `optimize`."""

    blocks: int
    batch: int
    before_us: float
    after_us: float


def model_of_blocks(width: int, count: int, depth: int = DEPTH) -> ir.Model:
    """Return layers of `count` full blocks with Relu, [outputs, inputs], all levels shuffled."""
    builder = GraphBuilder()
    dims = ("batch", width)
    value = builder.input("x", dims)
    size = width // count
    for number, layer in enumerate(HiddenNetwork("", blocks(size, size), width, depth).layers()):
        value = builder.linear(value, layer.weight.toarray(), layer.bias.ravel(), f"layers.{number}")
        value = builder.op("Relu", [value], f"/layers.{number}/Relu")
    return builder.model("blocks", {"y": Output(value, dims)})


def bench_splits(width: int, counts: Sequence[int], threads: int) -> Iterator[SplitRow]:
    """Yield a row for each batch and number of blocks; all networks of a batch run in turn."""
    sessions: dict[int, Oracle] = {}
    for count in counts:
        model = model_of_blocks(width, count)
        if not sessions:
            # dense layers take the same time whatever their zeros
            sessions[0] = Oracle(model, threads)
        sessions[count] = Oracle(redpebble.optimize(model, target="portable").model, threads)
    settle = dict.fromkeys(sessions, Onnxruntime.settle_seconds if threads > 1 else 0.0)
    for batch in BATCHES:
        feeds = {"x": aligned(np.random.default_rng(1).standard_normal((batch, width), dtype=np.float32))}
        calls: dict[int, Call] = {count: partial(one.session.run, None, feeds) for count, one in sessions.items()}
        times = interleave(calls, Budget(SECONDS), settle)
        for count in counts:
            yield SplitRow(count, batch, times[0].median_us, times[count].median_us)


def main(
    widths: Annotated[str, typer.Argument(help="Neurons of each level.")] = "1024",
    counts: Annotated[str, typer.Option("--blocks", help="Numbers of blocks.")] = "4,8,16,64",
    threads: int = 1,
    *,
    write: Write = False,
) -> None:
    """Print a row for each width and batch, a column for each number of blocks."""
    blocks = [int(count) for count in counts.split(",")]
    with SPLITS.rows(*(f"{count} blocks" for count in blocks), write=write) as add:
        for width in map(int, widths.split(",")):
            rows = list(bench_splits(width, blocks, threads))
            for batch in BATCHES:
                own = [row for row in rows if row.batch == batch]
                ratios = (f"{row.before_us / row.after_us:.1f}x" for row in own)
                add(width, batch, f"{own[0].before_us:.0f}", *ratios)


if __name__ == "__main__":
    typer.run(main)

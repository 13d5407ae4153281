"""Pruning methods against each other on equal density, and goals against what comes out, beside the dense model.

`python -m redpebble.bench.suites.prune_bench [--model M.onnx --data D.npz] [--rows 128] [--densities .3,.1]
[--speedups 2,3]`; without a model it trains the digits classifier, which needs scikit-learn. Every result runs in
onnxruntime, in the same rounds as the dense model, on one thread: times are those of the fastest rounds, by the time of
the thread. Quality is the share of the variance of the outputs that is left on the data.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import onnx_ir
import typer
from numpy.typing import NDArray

import redpebble

from ...frontend.reading.model_source import read_model
from ...models.digits import dense_model
from ...models.digits_training import split_digits
from ...pruning.examples.digits import trained_layers
from ...pruning.options import Goal, PruneOptions
from ...pruning.prune import pruned
from ...pruning.report import PruneReport
from ...pruning.runs.timing import feeds_with_rows
from ...pruning.solving.methods import METHODS
from ...verification.feeds import arrays_of
from ...verification.measuring import Budget, Call, interleave
from ...verification.oracle import Oracle, session_options
from ..results.page_tables import PageTable, Write

METHODS_TABLE: Final = PageTable("methods of pruning", ("goal", "left", "quality", "us", "dense/us", "predicted/us"))

Feeds = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class PruneCase:
    """A dense model with data, and the rows that its layers get when it is timed."""

    model: onnx_ir.Model
    data: Feeds
    rows: int

    def feeds(self) -> Feeds:
        """Return inputs of so many rows, where a sample is a row or a sequence."""
        first = {name: value[:64] for name, value in self.data.items()}
        rows = max(value.size // (value.shape[-1] if value.dtype.kind == "f" else 1) for value in first.values())
        return feeds_with_rows(onnx_ir.to_proto(self.model).graph, first, rows, self.rows)


def results(case: PruneCase, densities: list[float], speedups: list[float]) -> Iterator[tuple[str, PruneReport, Call]]:
    """Yield the goal, the report, and a call of the pruned model."""
    wanted = [
        (f"{name}, density {one:g}", PruneOptions(Goal("sparsity", 1 - one), case.rows, method=name))
        for one in densities
        for name in METHODS
    ]
    wanted += [(f"speedup {one:g}", PruneOptions(Goal("speedup", one), case.rows)) for one in speedups]
    for name, options in wanted:
        found = pruned(case.model, case.data, options)
        session = Oracle.of(partial(redpebble.session, found.model, session_options(1)))
        yield name, found.report, partial(session.run, case.feeds())


def cells(case: PruneCase, densities: list[float], speedups: list[float], budget: Budget) -> Iterator[tuple[str, ...]]:
    """Yield the rows; `predicted` is what was predicted before layers were solved over what is measured now."""
    reports: dict[str, PruneReport] = {}
    calls: dict[str, Call] = {"dense": partial(Oracle(case.model).run, case.feeds())}
    for name, report, call in results(case, densities, speedups):
        reports[name], calls[name] = report, call
    found = interleave(calls, budget)
    dense = found["dense"].min_us
    yield "dense", "1", "1", f"{dense:.0f}", "", ""
    for name, report in reports.items():
        us = found[name].min_us
        predicted = "" if report.predicted_us is None else f"{report.predicted_us / us:.2f}"
        yield name, f"{report.density:.3f}", f"{report.quality:.4f}", f"{us:.0f}", f"{dense / us:.2f}x", predicted


def main(
    model: Annotated[Path | None, typer.Option(help="A dense model; the digits classifier by default.")] = None,
    data: Annotated[Path | None, typer.Option(help="Its inputs, an .npz.")] = None,
    rows: int = 128,
    densities: str = "0.3,0.1",
    speedups: str = "2,3",
    seconds: float = 6.0,
    *,
    write: Write = False,
) -> None:
    """Prune by every method to equal densities, and for speedups."""
    if model is None or data is None:
        training, _ = split_digits(0)
        case = PruneCase(dense_model(trained_layers()), {"x": training.images}, rows)
    else:
        case = PruneCase(read_model(model), arrays_of(data), rows)
    numbers = [[float(one) for one in text.split(",") if one] for text in (densities, speedups)]
    budget = Budget(seconds, least_rounds=5, clock=time.thread_time)
    with METHODS_TABLE.rows(write=write) as add:
        for row in cells(case, numbers[0], numbers[1], budget):
            add(*row)


if __name__ == "__main__":
    typer.run(main)

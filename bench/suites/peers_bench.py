"""Layers and networks of floats beside other engines, each in a process and in a Python of its own.

`python -m redpebble.bench.suites.peers_bench [CASES ...] [--deepsparse PYTHON] [--openvino PYTHON] [--mkl PYTHON]`
prints a row for each model and number of rows: our session's time, how many times as fast it is as each other engine,
and the best of these. One engine is active at a time, they take turns, medians. `layers`, `networks`, `few`, `one`,
`large` and `dense` are the cases. MKL's Python has redpebble, too, which multiplies by MKL layer by layer.
"""

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final, NamedTuple

import numpy as np
import typer
from rich.table import Table

from ...models.graph_builder import GraphBuilder, Output
from ...models.pruned_weights import random_bias, random_weight
from ...models.zoo import save
from ...tools.benching.engines.loaded import Feeds
from ...tools.benching.engines.own_process import OwnProcess
from ...tools.benching.errors import NotCoveredError, PeerError
from ...tools.console.console import console
from ...verification.measuring import Budget, Call, Timing, interleave

OURS: Final = "session"
OPSET, IR_VERSION = 17, 8
"""The newest versions that DeepSparse 1.8 reads."""

SHAPES: Final = ((768, 768), (1024, 1024), (768, 3072))
FEW: Final = (2, 4, 6, 8, 9, 12, 16, 20, 24, 32, 48, 64)


class Case(NamedTuple):
    """A network of linear layers of such widths and shares of zeros, and the numbers of rows to measure."""

    widths: tuple[int, ...]
    sparsities: tuple[float, ...]
    rows: tuple[int, ...]

    @property
    def name(self) -> str:
        """Widths and zeros, such as 768-768 .9."""
        zeros = dict.fromkeys(f"{sparsity:g}".removeprefix("0") for sparsity in self.sparsities)
        return f"{'-'.join(map(str, self.widths))} {'/'.join(zeros)}"

    @property
    def flops(self) -> float:
        """Operations a row, those of zeros left out."""
        sizes = zip(self.widths, self.widths[1:], self.sparsities, strict=False)
        return sum(2.0 * inputs * outputs * (1 - sparsity) for inputs, outputs, sparsity in sizes)

    def save(self, folder: Path) -> Path:
        """Write the network, with Relu between its layers."""
        rng, builder = np.random.default_rng(0), GraphBuilder(OPSET)
        value = builder.input("x", ("batch", self.widths[0]))
        sizes = zip(self.widths, self.widths[1:], self.sparsities, strict=False)
        for index, (inputs, outputs, sparsity) in enumerate(sizes):
            if index:
                value = builder.op("Relu", [value], f"/relu{index}")
            weight = random_weight(outputs, inputs, 1.0 - sparsity, rng)
            value = builder.linear(value, weight, random_bias(outputs, rng), f"layers.{index}")
        model = builder.model("layers", {"y": Output(value, ("batch", self.widths[-1]))})
        model.ir_version = IR_VERSION
        path = folder / f"{'-'.join(map(str, (*self.widths, *self.sparsities)))}.onnx"
        save(model, path)
        return path


def layer(inputs: int, outputs: int, sparsity: float, *rows: int) -> Case:
    """Return a single layer."""
    return Case((inputs, outputs), (sparsity,), rows)


def square(width: int, depth: int, sparsity: float, *rows: int) -> Case:
    """Return layers of one width."""
    return Case((width,) * (depth + 1), (sparsity,) * depth, rows)


CASES: Final[Mapping[str, tuple[Case, ...]]] = {
    "layers": tuple(
        layer(*shape, sparsity, 128)
        for shape in ((768, 768), (1024, 1024), (768, 3072))
        for sparsity in (0.8, 0.9, 0.95)
    ),
    "networks": (square(1024, 4, 0.8, 256), square(1024, 4, 0.9, 256), square(1024, 4, 0.95, 1024)),
    "few": tuple(layer(768, 768, sparsity, *FEW) for sparsity in (0.8, 0.9)),
    "one": (layer(768, 768, 0.8, 1), layer(768, 768, 0.9, 1), layer(768, 768, 0.999, 1)),
    "large": (layer(4096, 4096, 0.9, 1, 8, 32),),
    "dense": (
        Case((4096, 4096, 4096), (0.9, 0.0), (8, 32, 128)),
        Case((4096, 4096), (0.0,), (8, 32, 128)),
    ),
}


class Measured(NamedTuple):
    """The times of a case at a number of rows, by engine."""

    case: Case
    rows: int
    times: Mapping[str, Timing]

    def ratio(self, engine: str) -> float | None:
        """Return how many times as fast as an engine our session is; None for one that does not run it."""
        if engine not in self.times:
            return None
        return self.times[engine].median_us / self.times[OURS].median_us

    @property
    def gigaflops(self) -> float:
        """Billions of operations a second of our session; zeros do not count."""
        return self.rows * self.case.flops / self.times[OURS].median_us / 1e3


def measure(case: Case, engines: Mapping[str, str], threads: int, seconds: float) -> Iterator[Measured]:
    """Yield what each number of rows takes in each engine, a name and the Python that has it."""
    with TemporaryDirectory() as folder:
        path = case.save(Path(folder))
        for rows in case.rows:
            feeds = {"x": np.random.default_rng(rows).standard_normal((rows, case.widths[0]), dtype=np.float32)}
            calls = dict(_calls(path, feeds, engines, threads))
            yield Measured(case, rows, interleave(calls, Budget(seconds)))


def _calls(path: Path, feeds: Feeds, engines: Mapping[str, str], threads: int) -> Iterator[tuple[str, Call]]:
    """Yield the engines that run a model, after a line for each other one."""
    for name, python in engines.items():
        try:
            yield name, OwnProcess(name, python).load(path)(feeds, threads)
        except (NotCoveredError, PeerError) as error:
            console.print(f"{name} is left out: {error}", highlight=False)


def table_of(found: Sequence[Measured], peers: Sequence[str]) -> Table:
    """Return a row for each case and number of rows."""
    table = Table("layers", "rows", "us", "GF", *peers, "best peer", box=None, header_style="bold")
    for one in found:
        ratios = {peer: ratio for peer in peers if (ratio := one.ratio(peer)) is not None}
        best = min(ratios, key=ratios.__getitem__, default="")
        cells = [f"{ratios[peer]:.2f}x" if peer in ratios else "" for peer in peers]
        numbers = str(one.rows), f"{one.times[OURS].median_us:.1f}", f"{one.gigaflops:.0f}"
        table.add_row(one.case.name, *numbers, *cells, best)
    return table


def engines_of(deepsparse: str | None, openvino: str | None, mkl: str | None) -> dict[str, str]:
    """Return the names of all engines with the Python of each; MKL's has redpebble, too."""
    peers = {"openvino": openvino, "openvino-bf16": openvino, "deepsparse": deepsparse, "mkl": mkl}
    known = {name: python for name, python in peers.items() if python is not None}
    return {OURS: sys.executable, "onnxruntime": sys.executable} | known


def chosen_of(cases: Sequence[str] | None, known: Collection[str]) -> Collection[str]:
    """Return the names of the cases to measure, all where none is told.

    Raises:
        BadParameter: there is no such case.
    """
    if unknown := [name for name in cases or () if name not in known]:
        raise typer.BadParameter(f"expected some of {', '.join(known)}, got {unknown[0]!r}")
    return cases or known


Python = Annotated[str | None, typer.Option(metavar="PYTHON", help="The Python that has it.")]


def main(
    cases: Annotated[list[str] | None, typer.Argument(help=f"Some of {', '.join(CASES)}; default: all.")] = None,
    seconds: Annotated[float, typer.Option(help="Measuring time for each model and number of rows.")] = 1.0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each engine.")] = 1,
    deepsparse: Python = None,
    openvino: Python = None,
    mkl: Python = None,
) -> None:
    """Measure and print the table.

    Raises:
        BadParameter: there is no such case.
    """
    engines = engines_of(deepsparse, openvino, mkl)
    chosen = [case for name in chosen_of(cases, CASES) for case in CASES[name]]
    found = [one for case in chosen for one in measure(case, engines, threads, seconds)]
    console.print(table_of(found, [name for name in engines if name != OURS]))


if __name__ == "__main__":
    typer.run(main)

"""Layers that leave the cache: depth first against our own layers one by one, scipy and MKL, all in one process.

Run `python -m redpebble.bench.hidden_structure [NAME] [--batch 1024]`; without a name all networks are measured, which
takes minutes each: a network has millions of connections. Rows come in and go out row-major for all engines.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console

from redpebble.bench.aligned import aligned
from redpebble.bench.errors import PeerError
from redpebble.bench.hidden_networks import HIDDEN_NETWORKS, HiddenNetwork, onnx_model
from redpebble.bench.measuring import Budget, Call, interleave
from redpebble.bench.peers import PEERS
from redpebble.compiler import NativeChoices, native_code
from redpebble.runtime.artefact import Artefact, read_artefact, write_artefact
from redpebble.runtime.network import Network

GIVEN_ORDER = ("pebble-reorder-neurons",)
"""Left out for all: neurons stay in the order of the file, so that only the schedules differ."""

SCHEDULES = {"depth first": GIVEN_ORDER, "layer by layer": (*GIVEN_ORDER, "pebble-schedule-network")}

MKL_THREADS = 2

ROUNDS = 2
"""A round takes seconds."""

console = Console()


class HiddenRow(NamedTuple):
    """One engine on one network: milliseconds for a batch, and its ratio to the depth-first schedule."""

    engine: str
    threads: int
    milliseconds: float
    times_depth_first: float


def compiled(network: HiddenNetwork, schedule: str) -> Artefact:
    """Return native code of a network for two threads, with or without the pass that schedules it."""
    model = onnx_model(network.layers())
    return native_code(model, cache=False, choices=NativeChoices(2, skip_passes=SCHEDULES[schedule]))


def bench_hidden(network: HiddenNetwork, artefacts: dict[str, Artefact], batch: int) -> Iterator[HiddenRow]:
    """Yield our schedules on one and two threads, scipy on one, which is all it has, and MKL on both.

    Raises:
        ValueError: the results differ.
    """
    layers = network.layers()
    x = aligned(np.random.default_rng(1).standard_normal((batch, network.width), dtype=np.float32))
    calls: dict[tuple[str, int], Call] = {}
    for name, artefact in artefacts.items():
        ours = Network(artefact.program, artefact.image, 2)
        for threads in (1, 2):
            calls[name, threads] = lambda ours=ours, threads=threads: ours(x, threads=threads)
    for name, threads in (("scipy", 1), ("mkl", 1), ("mkl", MKL_THREADS)):
        try:
            PEERS[name].check()
        except PeerError as error:
            console.print(f"{name} is left out: {error}", highlight=False)
            continue
        run = PEERS[name].prepare(layers, batch, threads)
        calls[name, threads] = lambda run=run: run(x)
    _check(calls)
    timings = interleave(calls, Budget(0.0, least_rounds=ROUNDS))
    for (name, threads), timing in timings.items():
        ratio = timing.min_us / timings["depth first", threads].min_us
        yield HiddenRow(name, threads, timing.min_us / 1e3, ratio)


def _check(calls: dict[tuple[str, int], Call]) -> None:
    expected = np.asarray(calls["scipy", 1]())
    scale = float(np.abs(expected).max())
    for (name, threads), call in calls.items():
        error = float(np.abs(np.asarray(call()) - expected).max()) / scale
        if not error < 1e-4:
            raise ValueError(f"{name} on {threads} threads differs from scipy by {error:.1e} of the largest value")


def main(
    name: Annotated[str, typer.Argument(help="Of a network; all by themselves.")] = "",
    batch: Annotated[int, typer.Option(help="Rows.")] = 1024,
    folder: Annotated[Path | None, typer.Option(help="Where native code is kept between runs.")] = None,
) -> None:
    """Measure networks whose layers leave the cache."""
    for network in HIDDEN_NETWORKS.values():
        if name in ("", network.name):
            artefacts = {schedule: _kept(network, schedule, folder) for schedule in SCHEDULES}
            console.print(f"{network.name}, {network.width} wide, {network.depth} layers, batch {batch}")
            for row in bench_hidden(network, artefacts, batch):
                console.print(
                    f"  {row.engine:15} {row.threads} threads {row.milliseconds:9.1f} ms {row.times_depth_first:6.1f}x",
                    highlight=False,
                )


def _kept(network: HiddenNetwork, schedule: str, folder: Path | None) -> Artefact:
    if folder is None:
        return compiled(network, schedule)
    path = folder / f"{network.name} {schedule}.pebble".replace(" ", "_").replace(",", "")
    if not path.exists():
        write_artefact(path, compiled(network, schedule))
    return read_artefact(path)


if __name__ == "__main__":
    typer.run(main)

"""Layers that leave the cache: depth first against our own layers one by one, scipy and MKL, all in one process.

Run `python -m redpebble.bench.suites.hidden_structure [NAME] [--batch 1024] [--engine mkl] [--folder CODE] [--width N]
[--depth N]`; without a name all networks are measured, which takes minutes each: a network has millions of connections.
With `--engine` (again and again) only some are set against the depth-first schedule, and with `--folder` our code is
compiled once, so that a run takes seconds. Rows come in and out row-major for all. *Scipy in order* is scipy with
neurons in the reverse Cuthill-McKee order of the whole network, and 64 rows at a time. *Annealed* is the depth-first
schedule after twenty seconds of annealing.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import typer
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ...driver.compiler import native_code
from ...options import Options
from ...runtime.network import Network
from ...runtime.store.artefact import Artefact, read_artefact, write_artefact
from ...tools.benching.engines.aligned import aligned
from ...tools.benching.engines.chain import ChainLayer
from ...tools.benching.engines.peers import PEERS, Floats, Runner
from ...tools.benching.errors import PeerError
from ...verification.measuring import Budget, Call, interleave
from ..results.page_tables import PageTable, Write
from .hidden_networks import HIDDEN_NETWORKS, HiddenNetwork, onnx_model

GIVEN_ORDER = ("pebble-reorder-neurons",)
"""Left out for all: neurons stay in the order of the file, so that only the schedules differ."""

ANNEALED_SECONDS = 20.0

SCHEDULES = {
    "depth first": Options(threads=2, skip_passes=GIVEN_ORDER),
    "annealed": Options(threads=2, skip_passes=GIVEN_ORDER, schedule_seconds=ANNEALED_SECONDS),
    "layer by layer": Options(threads=2, skip_passes=(*GIVEN_ORDER, "pebble-schedule-network")),
}

IN_ORDER: Final = "scipy in order"

PEER_THREADS = (("scipy", 1), (IN_ORDER, 1), ("mkl", 1), ("mkl", 2))
"""scipy has no more."""

ENGINES = (*SCHEDULES, "scipy", IN_ORDER, "mkl")

TILE: Final = 64
"""Rows that scipy takes at a time where neurons are in order."""

ROUNDS = 2
"""A round takes seconds."""

LEAST_THREADS, MOST_THREADS = 1, 2

HIDDEN: Final = PageTable("hidden structure", ("network", "batch"))


class HiddenRow(NamedTuple):
    """One engine on one network: milliseconds for a batch, and its ratio to the depth-first schedule."""

    engine: str
    threads: int
    milliseconds: float
    times_depth_first: float


class Setup(NamedTuple):
    """Rows, the engines that take part, and how often each is called."""

    batch: int
    engines: tuple[str, ...]
    rounds: int = ROUNDS


def compiled(network: HiddenNetwork, schedule: str) -> Artefact:
    """Return native code of a network for two threads, with its schedule or without one."""
    model = onnx_model(network.layers())
    return native_code(model, SCHEDULES[schedule], cache=False)


def bench_hidden(network: HiddenNetwork, artefacts: dict[str, Artefact], setup: Setup) -> Iterator[HiddenRow]:
    """Yield our schedules on one and two threads, scipy on one, which is all it has, and MKL on both.

    Raises:
        ValueError: the results differ.
    """
    x = aligned(np.random.default_rng(1).standard_normal((setup.batch, network.width), dtype=np.float32))
    calls: dict[tuple[str, int], Call] = {}
    for name, artefact in artefacts.items():
        ours = Network(artefact.program, artefact.image, MOST_THREADS)
        for threads in (LEAST_THREADS, MOST_THREADS):
            calls[name, threads] = lambda ours=ours, threads=threads: ours(x, threads=threads)
    for (name, threads), run in _peers(network, setup).items():
        calls[name, threads] = lambda run=run: run(x)
    _check(calls)
    timings = interleave(calls, Budget(0.0, least_rounds=setup.rounds))
    for (name, threads), timing in timings.items():
        ratio = timing.min_us / timings["depth first", threads].min_us
        yield HiddenRow(name, threads, timing.min_us / 1e3, ratio)


def scipy_in_order(layers: Sequence[ChainLayer]) -> Runner:
    """Return scipy's CSR with neighbours of the whole network close to each other, for some rows at a time."""
    size, levels = layers[0].weight.shape[0], len(layers) + 1
    weights: list[Any] = [layer.weight for layer in layers]
    reads = [weight.indices + level * size for level, weight in enumerate(weights)]
    sources = np.concatenate(reads).astype(np.int64)
    counts = np.concatenate([np.zeros(size, dtype=np.int64), *(np.diff(weight.indptr) for weight in weights)])
    starts = np.concatenate([[0], np.cumsum(counts)])
    graph: Any = csr_array(
        (np.ones(len(sources), dtype=np.int8), sources, starts), shape=(levels * size, levels * size)
    )
    order = reverse_cuthill_mckee(csr_array(graph + graph.T), symmetric_mode=True)
    orders = [order[order // size == level] - level * size for level in range(levels)]
    moved = [
        replace(layer, weight=csr_array(weight[after][:, before]), bias=layer.bias[after])
        for layer, weight, before, after in zip(layers, weights, orders, orders[1:], strict=False)
    ]
    run = PEERS["scipy"].prepare(moved, TILE, 1)

    def run_in_order(x: Floats) -> Floats:
        y = np.empty((len(x), size), dtype=np.float32)
        for first in range(0, len(x), TILE):
            rows = slice(first, first + TILE)
            y[rows, orders[-1]] = run(x[rows, orders[0]])
        return y

    return run_in_order


def _peers(network: HiddenNetwork, setup: Setup) -> dict[tuple[str, int], Runner]:
    """Return the libraries that are wanted and installed, by name and threads."""
    runs: dict[tuple[str, int], Runner] = {}
    for name, threads in PEER_THREADS:
        if name not in setup.engines:
            continue
        if name == IN_ORDER:
            runs[name, threads] = scipy_in_order(network.layers())
            continue
        try:
            PEERS[name].check()
        except PeerError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        runs[name, threads] = PEERS[name].prepare(network.layers(), setup.batch, threads)
    return runs


def _check(calls: dict[tuple[str, int], Call]) -> None:
    expected = np.array(calls["depth first", LEAST_THREADS]())
    scale = float(np.abs(expected).max())
    for (name, threads), call in calls.items():
        error = float(np.abs(np.asarray(call()) - expected).max()) / scale
        if not error < 1e-4:
            raise ValueError(f"{name} on {threads} threads differs from ours by {error:.1e} of the largest value")


def main(
    name: Annotated[str, typer.Argument(help="Of a network; all by themselves.")] = "",
    batch: Annotated[int, typer.Option(help="Rows.")] = 1024,
    folder: Annotated[Path | None, typer.Option(help="Where native code is kept between runs.")] = None,
    engine: Annotated[list[str] | None, typer.Option(help="To set against depth first; all by themselves.")] = None,
    rounds: Annotated[int, typer.Option(help="Calls of each.")] = ROUNDS,
    width: Annotated[int | None, typer.Option(help="Neurons of a layer, other than a network has by itself.")] = None,
    depth: Annotated[int | None, typer.Option(help="Layers, likewise.")] = None,
    *,
    write: Write = False,
) -> None:
    """Measure networks whose layers leave the cache."""
    unknown = [one for one in engine or () if one not in ENGINES]
    if unknown:
        raise typer.BadParameter(f"engine: expected one of {', '.join(ENGINES)}, got {unknown[0]!r}")
    setup = Setup(batch, ("depth first", *(engine or ENGINES)), rounds)
    with HIDDEN.rows(*(f"{one}, ms by threads" for one in setup.engines), write=write) as add:
        for given in HIDDEN_NETWORKS.values():
            if name in ("", given.name):
                network = replace(given, width=width or given.width, depth=depth or given.depth)
                artefacts = {one: _kept(network, one, folder) for one in SCHEDULES if one in setup.engines}
                rows = list(bench_hidden(network, artefacts, setup))
                times = (
                    " / ".join(f"{row.milliseconds:.0f}" for row in rows if row.engine == one) for one in setup.engines
                )
                add(f"{network.name}, {network.width} wide, {network.depth} layers", batch, *times)


def _kept(network: HiddenNetwork, schedule: str, folder: Path | None) -> Artefact:
    if folder is None:
        return compiled(network, schedule)
    path = folder / f"{network.name} {network.width} {network.depth} {schedule}.pebble".replace(" ", "_").replace(
        ",", ""
    )
    if not path.exists():
        write_artefact(path, compiled(network, schedule))
    return read_artefact(path)


if __name__ == "__main__":
    typer.run(main)

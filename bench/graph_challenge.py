"""The Sparse DNN Graph Challenge: RadiX-Net on 60 000 synthetic images, dead rows dropped on the way.

Run `python -m redpebble.bench.graph_challenge [NEURONS] [LAYERS]`. The images are drawn, not MNIST's. Nominal edges are
those of the network times the images, whether or not a row is alive: beside them stand the multiply-adds of rows that
are. The 16 equal outputs of each class are not merged, which would make the network 16 times smaller; `--merged`
measures that, as a figure of its own. Which rows are alive at the end is compared with scipy.
"""

import time
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from scipy.sparse import csr_array

from redpebble.bench.measuring import Budget, interleave
from redpebble.compiler import NativeChoices, native_code
from redpebble.models.radixnet import BIASES, CLAMP, RadixNet, radixnet_images
from redpebble.models.radixnet_patterns import COPIES, layer_patterns
from redpebble.runtime.network import Network

IMAGES = 60_000
SEED = 0
MERGING = "pebble-merge-duplicate-neurons"
PART = 4000
"""Rows that scipy computes at a time."""

ROUNDS = 5

console = Console()


class Truth(NamedTuple):
    """The rows that are alive at the end, and the rows that are alive before each layer."""

    alive: NDArray[np.int64]
    before: NDArray[np.int64]


def truth(recipe: RadixNet, images: NDArray[np.float32]) -> Truth:
    """Return what scipy's CSR matrices say, layer by layer, on the rows that are alive."""
    weights = list(_weights(recipe))
    before, alive = np.zeros(len(weights), dtype=np.int64), list[NDArray[np.int64]]()
    for start in range(0, len(images), PART):
        rows = np.arange(start, min(start + PART, len(images)))
        value = np.ascontiguousarray(images[rows].T)
        for number, weight in enumerate(weights):
            before[number] += value.shape[1]
            value = np.clip(np.asarray(weight @ value) + np.float32(BIASES[recipe.neurons]), 0, np.float32(CLAMP))
            kept = value.any(axis=0)
            rows, value = rows[kept], np.ascontiguousarray(value[:, kept])
        alive.append(rows)
    return Truth(np.concatenate(alive), before)


def _weights(recipe: RadixNet) -> Iterator[csr_array]:
    for pattern in layer_patterns(recipe, np.random.default_rng(SEED)):
        values = np.full(len(pattern.inputs), 1 / COPIES, dtype=np.float32)
        yield csr_array((values, pattern.inputs, pattern.pointers), shape=(recipe.neurons, recipe.neurons))


def main(
    neurons: Annotated[int, typer.Argument(help="1024, 4096, 16384 or 65536.")] = 1024,
    layers: Annotated[int, typer.Argument(help="120, 480 or 1920 in the challenge.")] = 120,
    count: Annotated[int, typer.Option(help="Images.")] = IMAGES,
    *,
    merged: Annotated[bool, typer.Option(help="Merge equal neurons first: another, smaller network.")] = False,
    check: Annotated[bool, typer.Option(help="Compare the rows that are alive with scipy's.")] = True,
) -> None:
    """Measure the challenge on one and on two threads."""
    recipe = RadixNet(neurons, layers)
    start = time.perf_counter()
    choices = NativeChoices(2, drop_dead_rows=True, skip_passes=() if merged else (MERGING,))
    artefact = native_code(recipe.build(np.random.default_rng(SEED)), choices=choices)
    console.print(f"radixnet {neurons} x {layers}, {count} synthetic images; compiled in {_since(start):.0f} s")
    network, images = (
        Network(artefact.program, artefact.image, 2),
        radixnet_images(neurons, count, np.random.default_rng(1)),
    )
    calls = {threads: lambda threads=threads: network(images, threads=threads) for threads in (1, 2)}
    timings = interleave(calls, Budget(0.0, least_rounds=ROUNDS))
    expected = truth(recipe, images) if check else None
    for threads, timing in timings.items():
        seconds, edges = timing.min_us / 1e6, neurons * 2 * COPIES
        nominal = count * edges * layers / seconds / 1e9
        line = f"{threads} threads: {1e3 * seconds:.0f} ms, {nominal:.0f} G edges/s nominal"
        if expected is not None:
            line += f", {expected.before.sum() * edges / seconds / 1e9:.1f} G multiply-adds/s on live rows"
        console.print(line + (" of the network before merging" if merged else ""), highlight=False)
    if expected is not None:
        alive = np.flatnonzero(np.asarray(network(images)).any(axis=1))
        same = np.array_equal(alive, expected.alive)
        share = 100 * expected.before.sum() / (count * layers)
        verdict = "as" if same else "NOT as"
        console.print(f"{len(alive)} rows alive, {verdict} scipy says; {share:.2f} % of all rows are computed")
        raise typer.Exit(0 if same else 1)


def _since(start: float) -> float:
    return time.perf_counter() - start


if __name__ == "__main__":
    typer.run(main)

"""The Sparse DNN Graph Challenge: RadiX-Net on 60 000 synthetic images, dead rows dropped on the way.

Run `python -m redpebble.bench.suites.graph_challenge [NEURONS] [LAYERS]`. The images are drawn, not MNIST's. Nominal
edges are those of the network times the images, whether or not a row is alive: beside them stand the multiply-adds of
rows that are. The 16 equal outputs of each class are not merged, which would make the network 16 times smaller;
`--merged` measures that, as a figure of its own. Which rows are alive at the end is compared with scipy, of wide
networks for some of the images.

Images that do not fit the memory together are run in slices; drawing them is not counted.
"""

import resource
import time
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from scipy.sparse import csr_array

from ...driver.compiler import native_code
from ...models.radixnet import BIASES, CLAMP, COPIES, RadixNet, layer_patterns, radixnet_images
from ...options import Options
from ...runtime.network import Network

Images = NDArray[np.float32]

IMAGES = 60_000
SEED = 0
MERGING = "pebble-merge-equal-units"

SLICE_BYTES = 1 << 32
"""Bytes of images in memory at a time."""

DRAWN = 500
"""Images that are drawn at a time."""

CHECKED = {1024: 60_000, 4096: 60_000, 16384: 4000, 65536: 1000}
"""Images compared with scipy, which takes up to a minute or two."""

PART = 4000
"""Rows that scipy computes at a time."""

MOST_ROUNDS, SECONDS = 5, 10.0
"""A slice is run so often, or until so many seconds have passed; the fastest counts."""

console = Console(highlight=False, soft_wrap=True)


class Truth(NamedTuple):
    """The rows that are alive at the end, and the rows that are alive before each layer."""

    alive: NDArray[np.int64]
    before: NDArray[np.int64]


def truth(recipe: RadixNet, images: Images) -> Truth:
    """Return the result of scipy's CSR matrices, layer by layer, on the rows that are alive."""
    # the matrices of a wide network do not fit the memory beside ours
    weights = _weights(recipe) if len(images) <= PART else list(_weights(recipe))
    before, alive = np.zeros(recipe.layers, dtype=np.int64), list[NDArray[np.int64]]()
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
        values = np.full(len(pattern.indices), 1 / COPIES, dtype=np.float32)
        yield csr_array((values, pattern.indices, pattern.pointers), shape=(recipe.neurons, recipe.neurons))


def slices(neurons: int, count: int, rng: np.random.Generator) -> Iterator[Images]:
    """Yield all images, as many at a time as memory is meant to hold; the next ones take the place of the last."""
    most = SLICE_BYTES // (4 * neurons)
    size = -(-count // -(-count // most))
    room = np.empty((size, neurons), dtype=np.float32)
    for start in range(0, count, size):
        images = room[: min(size, count - start)]
        for first in range(0, len(images), DRAWN):
            part = images[first : first + DRAWN]
            part[...] = radixnet_images(neurons, len(part), rng)
        yield images


class Measured(NamedTuple):
    """Seconds of all images by threads, how many rows are alive at the end, and the last slice with those of its rows.

    `slices` is the number of slices.
    """

    seconds: dict[int, float]
    alive_count: int
    images: Images
    alive: NDArray[np.int64]
    slices: int


def measured(network: Network, images: Iterator[Images], threads: tuple[int, ...]) -> Measured:
    """Return the results of a network on slices of images."""
    found = Measured(dict.fromkeys(threads, 0.0), 0, np.zeros((0, 0), np.float32), np.zeros(0, np.int64), 0)
    for part in images:
        fastest, alive = _fastest(network, part, threads)
        seconds = {number: found.seconds[number] + fastest[number] for number in threads}
        found = Measured(seconds, found.alive_count + len(alive), part, alive, found.slices + 1)
    return found


def _fastest(network: Network, images: Images, threads: tuple[int, ...]) -> tuple[dict[int, float], NDArray[np.int64]]:
    """Return the seconds of the fastest call by threads, which take turns, and the rows alive at the end."""
    result = network(images[:DRAWN])
    start, found = time.perf_counter(), dict.fromkeys(threads, float("inf"))
    for _ in range(MOST_ROUNDS):
        for number in threads:
            begin = time.perf_counter()
            result = network(images, threads=number)
            found[number] = min(found[number], _since(begin))
        if _since(start) > SECONDS:
            break
    return found, np.flatnonzero(np.asarray(result).any(axis=1))


def main(
    neurons: Annotated[int, typer.Argument(help="1024, 4096, 16384 or 65536.")] = 1024,
    layers: Annotated[int, typer.Argument(help="120, 480 or 1920 in the challenge.")] = 120,
    count: Annotated[int, typer.Option(help="Images.")] = IMAGES,
    threads: Annotated[list[int] | None, typer.Option(help="Threads; may be given again. Else 1 and 2.")] = None,
    checked: Annotated[int, typer.Option(help="Images compared with scipy; -1: as many as take a minute or two.")] = -1,
    *,
    merged: Annotated[bool, typer.Option(help="Merge equal neurons first: another, smaller network.")] = False,
) -> None:
    """Measure the challenge on one and on two threads."""
    recipe, numbers, start = RadixNet(neurons, layers), tuple(threads or (1, 2)), time.perf_counter()
    options = Options(threads=max(numbers), drop_dead_rows=True, skip_passes=() if merged else (MERGING,))
    artefact = native_code(recipe.build(np.random.default_rng(SEED)), options, cache=False)
    network = Network(artefact.program, artefact.image, max(numbers))
    edges = neurons * 2 * COPIES * layers
    console.print(f"radixnet {neurons} x {layers}, {edges / 1e6:.1f} million connections, {count} synthetic images")
    console.print(f"{'equal neurons merged; ' if merged else ''}built, compiled and loaded in {_since(start):.1f} s")
    console.print(f"{_kernels(network)}; peak memory {_peak():.2f} GiB")
    found = measured(network, slices(neurons, count, np.random.default_rng(1)), numbers)
    console.print(f"images in {found.slices} slices, of {len(found.images)}; peak memory {_peak():.2f} GiB")
    for number, seconds in found.seconds.items():
        rate = count * edges / seconds / 1e9
        words = "of the network before merging" if merged else "nominal"
        console.print(f"{number} threads: {seconds:.3f} s, {rate:.0f} G edges/s {words}")
    console.print(f"{found.alive_count} rows alive at the end")
    some = min(len(found.images), CHECKED[neurons] if checked < 0 else checked)
    if some:
        raise typer.Exit(_compared(recipe, found, some, count))


def _compared(recipe: RadixNet, found: Measured, some: int, count: int) -> int:
    """Compare the first images of the last slice with scipy's; print the work on live rows; return the exit code."""
    expected = truth(recipe, found.images[:some])
    same = np.array_equal(found.alive[found.alive < some], expected.alive)
    console.print(f"{len(expected.alive)} of {some} rows alive, {'as' if same else 'NOT as'} scipy says")
    work = expected.before.sum() * recipe.neurons * 2 * COPIES * count / some / 1e9
    rates = ", ".join(f"{work / seconds:.1f} on {number} threads" for number, seconds in found.seconds.items())
    share = 100 * expected.before.sum() / (some * recipe.layers)
    about = "" if some == count else " (counted on these)"
    console.print(f"{share:.2f} % of all rows are alive{about}: G multiply-adds/s on live rows: {rates}")
    return 0 if same else 1


def _kernels(network: Network) -> str:
    return " / ".join(sorted({layer.kernel for layer in network.report}))


def _peak() -> float:
    """Return the most memory that this process has had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


def _since(start: float) -> float:
    return time.perf_counter() - start


if __name__ == "__main__":
    typer.run(main)

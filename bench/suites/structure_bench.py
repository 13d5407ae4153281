"""Layers with planted structure: what is found of it, our kernels beside MKL's, whole calls beside onnxruntime's.

`python -m redpebble.bench.suites.structure_bench [NEURONS] [NAME] [--batch 128] [--seconds 1]`, on one thread; NAME is
a part of the names of the cases wanted. *kernel* is feature-major in and out, in the tiles into which a call cuts its
rows, in native loops, beside a loop of multiply-adds from memory that rows by themselves hardly pass (*ports*). *call*
is row-major in and out; onnxruntime computes all zeros.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.dialects.builtin import ModuleOp

import redpebble

from ...dialect.ops.constants import SparseConstantOp
from ...models.pruned_weights import masked_weight
from ...models.structured import MaskMaker, blocks, n_of_m, panels
from ...passes.kernels.discover_structure import DiscoverStructure
from ...passes.runner import context
from ...sparse.csr import CscMatrix
from ...tools.benching.engines.aligned import aligned, aligned_zeros
from ...tools.benching.engines.chain import csr_of
from ...tools.benching.engines.mkl import MklMatrix
from ...tools.benching.errors import PeerError
from ...tools.benching.layer_cases import RandomLayer
from ...verification.measuring import Budget, Call, Timing, interleave
from ...verification.oracle import Oracle
from ..ceilings import NativeLoops
from ..kernel_call import OurKernel
from ..results.page_tables import PageTable, Write

Floats = NDArray[np.float32]

LAYERS: Final = PageTable(
    "planted structure", ("case", "kernel", "kernel GF", "ports", "MKL", "call over onnxruntime", "looked at ms")
)

SHARING_ROWS: Final = 8
"""Outputs that have a part of their inputs in common."""

KERNEL_SECONDS: Final = 1e-3
"""Time of repeated calls of a kernel: long beside the way from Python to native code."""


def sharing(density: float, share: float) -> MaskMaker:
    """Eight neurons at a time have a share of their inputs in common, the others are random."""

    def make(width: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        common = blocks(SHARING_ROWS, 1, density * share)(width, rng)
        return common | (rng.random((width, width)) < density * (1 - share))

    return make


def scattered(density: float) -> MaskMaker:
    """Every connection is there with one probability."""
    return lambda width, rng: rng.random((width, width)) < density


class Case(NamedTuple):
    """A pattern, and which of its rows and columns come in a random order."""

    mask: MaskMaker
    shuffled: tuple[bool, bool]


EVERYTHING: Final = (True, True)

CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        **{
            f"panels of {height} at {1 - density:.2f}": Case(blocks(height, 1, density), EVERYTHING)
            for height in (8, 16)
            for density in (0.2, 0.1, 0.05)
        },
        **{f"8 rows share {share:.0%} at 0.90": Case(sharing(0.1, share), EVERYTHING) for share in (0.7, 0.8, 0.9)},
        "2:4": Case(n_of_m(2, 4), (False, False)),
        "1:4": Case(n_of_m(1, 4), (False, False)),
        "2:4, inputs shuffled": Case(n_of_m(2, 4), (False, True)),
        "V:N:M 16:2:8, outputs shuffled": Case(panels, (True, False)),
        "random at 0.90": Case(scattered(0.1), (False, False)),
        "random at 0.50": Case(scattered(0.5), (False, False)),
    }
)


@dataclass(frozen=True)
class StructuredLayer(RandomLayer):
    """A square layer whose weights have the pattern of a case."""

    case: str = ""

    @staticmethod
    def of(case: str, neurons: int) -> "StructuredLayer":
        """Return the layer of a case of `CASES`."""
        return StructuredLayer(neurons, neurons, 0.0, case)

    @property
    @override
    def name(self) -> str:
        return "layer"

    @override
    def weight(self) -> Floats:
        rng = np.random.default_rng(0)
        case = CASES[self.case]
        mask = case.mask(self.inputs, rng)
        for axis, is_shuffled in enumerate(case.shuffled):
            mask = np.take(mask, rng.permutation(self.inputs), axis) if is_shuffled else mask
        return masked_weight(mask, rng)


class Measured(NamedTuple):
    """Facts found in a case, the time that took, and the timings of kernels and calls by engine."""

    found: tuple[str, ...]
    milliseconds: float
    connections: int
    family: str
    timings: Mapping[str, Timing]

    def gflops(self, engine: str, batch: int) -> float:
        """Return the effective GFLOP/s of an engine, zeros not counted."""
        return 2e-3 * self.connections * batch / self.timings[engine].min_us


def bench_structure(case: str, neurons: int, batch: int, budget: Budget) -> Measured:
    """Measure one case."""
    layer = StructuredLayer.of(case, neurons)
    matrix = CscMatrix.from_dense(np.ascontiguousarray(layer.weight().T))
    constant = SparseConstantOp(matrix)
    module, started = ModuleOp([constant]), time.perf_counter()
    DiscoverStructure().apply(context(), module)
    milliseconds = 1e3 * (time.perf_counter() - started)
    found = [constant.panels.sentence] if constant.panels is not None else []
    found += [fact.sentence for fact in constant.facts or ()]
    rng = np.random.default_rng(2)
    with tempfile.TemporaryDirectory() as folder:
        path = layer.save(Path(folder))
        kernel, network = OurKernel(path), redpebble.compile(path, cache=folder)
        x = rng.standard_normal((neurons, batch), dtype=np.float32)
        timings = dict(_kernel_timings(kernel, x, budget))
        rows = {"x": aligned(x.T)}
        session, bound = Oracle(path, 1).session, network.bind(rows)
        calls: dict[str, Call] = {"call": bound.run, "onnxruntime": lambda: session.run(None, rows)}
        timings |= interleave(calls, budget)
        family = kernel.family_at(kernel.width_at(batch))
    return Measured(tuple(found), milliseconds, len(matrix.values), family, timings)


def _kernel_timings(kernel: OurKernel, x: Floats, budget: Budget) -> Iterator[tuple[str, Timing]]:
    """Yield the timings of our kernel, of MKL's where it is installed, and of the ports for as many operations."""
    ports = NativeLoops().ports()
    repeated: dict[str, Callable[[int], Call]] = {"kernel": lambda repeats: _tiled(kernel, x, repeats)}
    try:
        matrix = MklMatrix(csr_of(kernel.weight), x.shape[1], 1)
        source, target = aligned(x), aligned_zeros(kernel.shape[1], x.shape[1])
        repeated["mkl"] = lambda repeats: lambda: matrix.multiply(source, target, repeats)
    except PeerError as error:
        print(f"mkl is left out: {error}", file=sys.stderr)
    once = {name: interleave({name: call(1)}, Budget(0.0, least_rounds=2))[name] for name, call in repeated.items()}
    counts = {name: max(1, round(1e6 * KERNEL_SECONDS / timing.min_us)) for name, timing in once.items()}
    calls = {name: call(counts[name]) for name, call in repeated.items()}
    timings = interleave({**calls, "ports": ports.call}, budget)
    yield from ((name, timings[name].divided(count)) for name, count in counts.items())
    yield "ports", timings["ports"].divided(ports.work / (2.0 * len(kernel.weight.values) * x.shape[1]))


def _tiled(kernel: OurKernel, x: Floats, repeats: int) -> Call:
    """Return a call of our kernels on all columns, in the widest tiles that fit as calls of networks cut them."""
    calls: list[Call] = []
    first = 0
    while first < x.shape[1]:
        width = min(kernel.width_at(x.shape[1] - first), x.shape[1] - first)
        calls.append(kernel.prepare(np.ascontiguousarray(x[:, first : first + width])).repeated(repeats))
        first += width
    return lambda: [call() for call in calls]


def main(
    neurons: Annotated[int, typer.Argument(help="Of the layer, in and out; a multiple of 16.")] = 1024,
    name: Annotated[str, typer.Argument(help="Part of the names of the cases.")] = "",
    batch: Annotated[int, typer.Option(help="Rows.")] = 128,
    seconds: Annotated[float, typer.Option(help="Measuring time for kernels and for calls of each case.")] = 1.0,
    *,
    write: Write = False,
) -> None:
    """Measure layers with planted structure."""
    with LAYERS.rows(write=write) as add:
        for case in [case for case in CASES if name in case]:
            measured = bench_structure(case, neurons, batch, Budget(seconds, least_rounds=3))
            times = measured.timings
            engines = ("kernel", "ports", "mkl")
            gflops = (f"{measured.gflops(one, batch):.0f}" if one in times else "" for one in engines)
            ratio = f"{times['onnxruntime'].median_us / times['call'].median_us:.2f}x"
            add(case, measured.family, *gflops, ratio, f"{measured.milliseconds:.0f}")
            for sentence in measured.found:
                print(f"{case}: {sentence}", file=sys.stderr)


if __name__ == "__main__":
    typer.run(main)

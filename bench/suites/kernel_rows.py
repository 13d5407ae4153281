"""Measure every kernel on random layers, and on layers whose outputs share inputs: the rows that prices are fitted to.

    python -m redpebble.bench.suites.kernel_rows MACHINE [--lanes 8] [--layers 0:784,1000:1100]

takes a few minutes on a quiet machine and writes `bench/data/MACHINE-LANES.csv`, or adds to it. Layers are measured by
themselves; with `--other-bytes 8388608` so many weights are read between two uses. `python -m
redpebble.bench.fit_prices` then makes prices of all files.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from ...dialect.ops.constants import SparseConstantOp
from ...kernels.families import FAMILIES
from ...kernels.family import KernelFamily
from ...kernels.tile_widths import WIDTHS
from ...kernels.work import Layer
from ...lowering.cpu_target import CpuTarget
from ...lowering.kernels.timed_kernels import RepeatedKernel
from ...passes.analysis.layer_costs import layers_of
from ...passes.kernels.discover_structure import DiscoverStructure
from ...runtime.jit import host_target
from ...sparse.csr import CscMatrix
from ...tools.benching.progress import shown
from ...tuning.calibration import STREAM, STREAM_SECONDS, cache_sizes, stream_times
from ...tuning.kernel_timing import KernelClock, PackedLayer
from ...tuning.machines import of_this_cpu, packed_layer, with_stream_times
from ...tuning.probe_layers import mask_of
from ..measured_layers import DATA, MeasuredLayer, MeasuredMachine, read_rows

ROUNDS = 9

ROWS = (2, 4, 6, 12)
"""Rows at which families are measured whose tiles are rows."""


def target_of(lanes: int) -> CpuTarget:
    """Return the target of this machine with vectors of at most `lanes` floats."""
    host = host_target()
    if lanes == host.lanes:
        return host
    return CpuTarget.avx2() if lanes == 8 else CpuTarget.generic()


def measured_widths(family: KernelFamily) -> list[int]:
    """Return the widths at which a family is measured."""
    return [width for width in (ROWS if family.row_major else WIDTHS) if width in family.widths]


def drawn_layer(
    number: int, kernels: Sequence[RepeatedKernel], other_bytes: int = 0
) -> tuple[Layer, dict[RepeatedKernel, PackedLayer]]:
    """Return the layer of a number, and its weights as those of `kernels` read them that can compute it."""
    constant = SparseConstantOp(CscMatrix.from_dense(mask_of(number).astype(np.float32)))
    DiscoverStructure().apply(Context(), ModuleOp([constant]))
    (alone,) = layers_of([constant.result])
    layer = replace(alone, other_bytes=float(other_bytes))
    own = [kernel for kernel in kernels if layer.stored in FAMILIES[kernel.family].stored]
    formats = {FAMILIES[one.family].format for one in own}
    packed = {name: packed_layer(name, constant.result, layer) for name in formats}
    return layer, {one: packed[FAMILIES[one.family].format] for one in own}


def measured(
    numbers: list[int], other_bytes: int, target: CpuTarget, only: Collection[str] = ()
) -> Iterator[MeasuredLayer]:
    """Yield the times of layers by all families, or by `only` some, that have code for them."""
    families = [
        family
        for family in FAMILIES.values()
        if target.lanes in family.lanes and family.rounds != "groups" and (not only or family.name in only)
    ]
    kernels = [RepeatedKernel(family.name, width) for family in families for width in measured_widths(family)]
    clock = KernelClock(kernels, target)
    for number in shown(numbers, "layers", len(numbers)):
        layer, packed = drawn_layer(number, kernels, other_bytes)
        samples = {f"{one.family}@{one.width}": clock.sample(one, arrays) for one, arrays in packed.items()}
        times = clock.fastest(samples, 0.0, least_rounds=ROUNDS)
        yield MeasuredLayer(number, other_bytes, layer.panel_reads, times)


def streams_of_this_machine(target: CpuTarget) -> tuple[float, float]:
    """Return the nanoseconds of a byte from the last-level cache and from memory."""
    machine = with_stream_times(of_this_cpu(target.lanes), stream_times(KernelClock([STREAM], target), STREAM_SECONDS))
    return machine.l3_ns, machine.dram_ns


def main(
    machine: str,
    lanes: Annotated[int, typer.Option(help="Floats in a vector.")] = 0,
    layers: Annotated[str, typer.Option(help="Numbers of layers, FIRST:END.")] = "0:784,1000:1100",
    other_bytes: Annotated[int, typer.Option(help="Weights read between two uses of a layer.")] = 0,
    families: Annotated[str, typer.Option(help="Families to measure, all by default; other times stay.")] = "",
) -> None:
    """Measure and write."""
    target = target_of(lanes or host_target().lanes)
    ranges = [tuple(map(int, part.split(":"))) for part in layers.split(",")]
    numbers = [number for first, end in ranges for number in range(first, end)]
    sizes = cache_sizes()
    assert sizes is not None
    known = MeasuredMachine(machine, target.lanes, sizes.l1, sizes.l2, (), streams_of_this_machine(target))
    before = read_rows(known.file).layers if known.file.exists() else ()
    only = families.split(",") if families else []
    found = replace(known, layers=merged(before, [*measured(numbers, other_bytes, target, only)], keep=bool(only)))
    DATA.mkdir(exist_ok=True)
    found.file.write_text(found.text(), encoding="utf-8")


def merged(before: Sequence[MeasuredLayer], now: Sequence[MeasuredLayer], *, keep: bool) -> tuple[MeasuredLayer, ...]:
    """Return all layers; of those measured again the times of kernels that were not stay, if they are to be kept."""
    known = {(one.other_bytes, one.number): one for one in before}
    for one in now:
        old = known.get((one.other_bytes, one.number))
        times = {**old.microseconds, **one.microseconds} if old is not None and keep else one.microseconds
        known[one.other_bytes, one.number] = replace(one, microseconds=times)
    return tuple(known.values())


if __name__ == "__main__":
    typer.run(main)

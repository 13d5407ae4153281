"""Predict the times of kernels by LLVM's scheduling models: rows as `kernel_rows` measures them, for CPUs not at hand.

    python -m redpebble.bench.predicted.predict_rows [--mca llvm-mca-22]

needs llvm-mca of LLVM 22, whose models these are, and writes `bench/data/MACHINE-LANES.csv` of each machine. `python -m
redpebble.bench.fit_prices` then makes prices of it as of a measured machine. The blocks of instructions of a kernel are
counted while it works on a layer, natively, with vectors of as many floats:

    time = sum over blocks of (times that it runs) * (its cycles by llvm-mca) / clock
         + bytes of weights that the first-level cache misses * time of a byte from the second level

Layers are those whose weights the second-level cache holds. Bytes from beyond it have prices of their own, stated here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import numpy as np
import typer

from ...kernels.families import FAMILIES
from ...kernels.family import KernelFamily
from ...kernels.work import Layer, Tile, misses
from ...lowering.cpu_target import CpuTarget
from ...lowering.kernels.timed_kernels import RepeatedKernel, repeated_kernels
from ...runtime.memory import address_of
from ...tools.benching.progress import shown
from ...tuning.kernel_timing import PackedLayer, sample_of
from ...tuning.probe_layers import MOST_CELLS, mask_of
from ..measured_layers import MeasuredLayer, MeasuredMachine
from ..suites.kernel_rows import drawn_layer, measured_widths
from .blocks import CountedCode, Model, cycles_of

ARM: Final = "aarch64-unknown-linux-gnu"
X86: Final = "x86_64-unknown-linux-gnu"


class PredictedMachine(NamedTuple):
    """A CPU that is not at hand: its code, its model, and what vendors state of its clock and its memory."""

    target: CpuTarget
    model: Model
    gigahertz: float
    l1_bytes: int
    l2_bytes: int
    l2_ns: float
    """Time of a byte from the second-level cache, by one core; so those of the last level and of memory."""
    l3_ns: float
    dram_ns: float


MACHINES: Final[Mapping[str, PredictedMachine]] = {
    # Graviton4: 2.8 GHz, 64 KiB, 2 MiB; 64 bytes a cycle from the second level at most, half of it taken
    "neoverse_v2": PredictedMachine(
        CpuTarget.arm64_i8mm(), Model(ARM, "neoverse-v2", "+i8mm,+bf16"), 2.8, 64 << 10, 2 << 20, 0.011, 0.04, 0.05
    ),
    # Graviton2: 2.5 GHz, 64 KiB, 1 MiB; 32 bytes a cycle at most, half of it taken
    "neoverse_n1": PredictedMachine(
        CpuTarget.arm64_dot(), Model(ARM, "neoverse-n1", "+dotprod"), 2.5, 64 << 10, 1 << 20, 0.025, 0.06, 0.08
    ),
    # Cobalt 100: 3.4 GHz, 64 KiB, 1 MiB; bytes a cycle as of the N1
    "neoverse_n2": PredictedMachine(
        CpuTarget.arm64_i8mm(), Model(ARM, "neoverse-n2", "+i8mm,+bf16"), 3.4, 64 << 10, 1 << 20, 0.018, 0.05, 0.06
    ),
    # Raspberry Pi 5: 2.4 GHz, 64 KiB, 512 KiB. LLVM has no model of its own for it; the N1 is its kin for servers
    "cortex_a76": PredictedMachine(
        CpuTarget.arm64_dot(), Model(ARM, "neoverse-n1", "+dotprod"), 2.4, 64 << 10, 512 << 10, 0.026, 0.08, 0.15
    ),
    # M1, a performance core: 3.2 GHz, 128 KiB, 12 MiB for four; LLVM's only model of Apple's cores is older. Those of
    # the M2 have the products of bytes and of bfloat16 as well
    "apple_m": PredictedMachine(
        CpuTarget.arm64_i8mm(), Model(ARM, "apple-m1", "+i8mm,+bf16"), 3.2, 128 << 10, 12 << 20, 0.01, 0.016, 0.02
    ),
}
"""Machines whose rows are predicted for want of measured ones."""

CHECKS: Final[Mapping[str, PredictedMachine]] = {
    # LLVM has the model of Zen 4 for it, whose vectors of 16 floats take two turns
    "zen5-16": PredictedMachine(
        CpuTarget.zen4(), Model(X86, "znver5"), 4.1, 48 << 10, 1 << 20, 0.006, 0.008087, 0.01873
    ),
    "zen5-8": PredictedMachine(
        CpuTarget.avx2(), Model(X86, "znver5"), 4.1, 48 << 10, 1 << 20, 0.006, 0.008087, 0.01873
    ),
    "cascade_lake-16": PredictedMachine(
        CpuTarget.avx512(), Model(X86, "cascadelake"), 2.5, 32 << 10, 1 << 20, 0.01, 0.033, 0.066
    ),
}
"""Machines that were measured, to which the same method is held."""


class Predictor:
    """The code of all kernels for some machines with equal vectors, counted once, and priced block by block."""

    def __init__(self, machines: Sequence[PredictedMachine], mca: str) -> None:
        """Compile the kernels that machines have code for, and ask llvm-mca for the cycles of their blocks."""
        self._machines, ablest = machines, max(machines, key=lambda one: len(one.target.extensions)).target
        self.kernels = _kernels_of(ablest)
        text = repeated_kernels(self.kernels, ablest)
        self._code = CountedCode(text, {kernel.symbol: (1, 3) for kernel in self.kernels})
        known = [
            cycles_of(repeated_kernels(_kernels_of(one.target), one.target), one.target, one.model, mca)
            for one in machines
        ]
        self._cycles = [np.array([cycles.get(block, 0.0) for block in self._code.blocks]) for cycles in known]

    def microseconds(self, kernel: RepeatedKernel, layer: Layer, packed: PackedLayer) -> list[float]:
        """Return the predicted time of a kernel on a layer, on each machine; 0 where it has no code for it."""
        sample = sample_of(kernel, packed)
        counts = self._code.counts(kernel.symbol, address_of(sample.tables), 1, *packed.shape)
        values, times = 4 * kernel.width * (layer.inputs + layer.outputs), list[float]()
        for machine, cycles in zip(self._machines, self._cycles, strict=True):
            tile = Tile(kernel.width, machine.target.lanes, machine.l1_bytes)
            work = FAMILIES[kernel.family].work(layer, tile)
            missed = misses(work.stream_bytes + values, machine.l1_bytes)
            far = work.stream_bytes * work.passes * missed * machine.l2_ns
            can = _has_code(FAMILIES[kernel.family], machine.target)
            times.append((float(counts @ cycles) / machine.gigahertz + far) / 1000 if can else 0.0)
        return times


def _kernels_of(target: CpuTarget) -> list[RepeatedKernel]:
    families = [one for one in FAMILIES.values() if _has_code(one, target) and not one.priced_in]
    return [RepeatedKernel(one.name, width) for one in families for width in measured_widths(one)]


def _has_code(family: KernelFamily, target: CpuTarget) -> bool:
    return target.lanes in family.lanes and (not family.rounds or (family.rounds == "bf16" and target.has_bfloat))


def rows_of(machines: Sequence[PredictedMachine], numbers: list[int], mca: str) -> list[tuple[MeasuredLayer, ...]]:
    """Return the predicted times of the layers of some numbers, as far as they are not large, on each machine."""
    predictor, rows = Predictor(machines, mca), list[list[MeasuredLayer]]([] for _ in machines)
    for number in shown(numbers, "layers", len(numbers)):
        if mask_of(number).size > MOST_CELLS:
            continue
        layer, packed = drawn_layer(number, predictor.kernels)
        times = {
            f"{one.family}@{one.width}": predictor.microseconds(one, layer, arrays) for one, arrays in packed.items()
        }
        for index, found in enumerate(rows):
            mine = {kernel: by_machine[index] for kernel, by_machine in times.items() if by_machine[index]}
            found.append(MeasuredLayer(number, 0, layer.panel_reads, mine))
    return [tuple(found) for found in rows]


def predicted_machines(
    machines: Mapping[str, PredictedMachine], numbers: list[int], mca: str
) -> Iterator[MeasuredMachine]:
    """Yield the rows of machines with equal vectors as if they had been measured."""
    rows = rows_of([*machines.values()], numbers, mca)
    for (name, machine), own in zip(machines.items(), rows, strict=True):
        sizes, streams = (machine.l1_bytes, machine.l2_bytes), (machine.l3_ns, machine.dram_ns)
        yield MeasuredMachine(name, machine.target.lanes, *sizes, own, streams, predicted=True)


NUMBERS: Final = [*range(0, 784, 8), *range(1000, 1100, 8)]
"""Layers that are predicted."""

Mca = Annotated[str, typer.Option(help="llvm-mca of LLVM 22.")]


def main(mca: Mca = "llvm-mca-22") -> None:
    """Predict and write the rows of all machines."""
    for found in predicted_machines(MACHINES, NUMBERS, mca):
        found.file.write_text(found.text(), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)

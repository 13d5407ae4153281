"""Machines for the cost model: this one as it was measured, this one as it is known, and others as they are alike.

`compile` measures nothing by itself: it takes what `calibrate` has found on this machine, else the built-in constants.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from math import hypot, sqrt
from pathlib import Path
from statistics import geometric_mean
from typing import Final

import numpy as np
from xdsl.ir import SSAValue

from redpebble.dialect.ops.constants import SparseConstantOp
from redpebble.dialect.tensors import shape_of
from redpebble.kernels.families import FAMILIES
from redpebble.kernels.machine import Machine
from redpebble.kernels.prediction import candidates, predicted_us
from redpebble.kernels.tile_widths import WIDTHS
from redpebble.kernels.work import Layer
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.kernels.kernel_form import layer_weights
from redpebble.lowering.kernels.timed_kernels import RepeatedKernel
from redpebble.passes.analysis.layer_costs import layers_of
from redpebble.runtime.jit import host_target
from redpebble.runtime.store.cache import default_folder
from redpebble.runtime.store.json_cache import recall, remember
from redpebble.sparse.csr import CscMatrix
from redpebble.tuning.calibration import STREAM, cache_sizes, machine_name, prices_of_cpu, stream_times
from redpebble.tuning.kernel_timing import KernelClock, PackedLayer

PROBE_SIZE: Final = 384
PROBE_DENSITIES: Final = (0.06, 0.3)
"""Layers whose kernels stay in the second-level cache: a thin one and one about as far from dense as pruning goes."""

SECONDS: Final = 0.2
"""Seconds for each of the two measurements: kernels, and reading."""

LEAST_FACTOR, MOST_FACTOR = 0.1, 10.0
"""Least and most share of its predicted time that a kernel takes; beyond, the clock was disturbed."""


def machine_for(target: CpuTarget, folder: Path | None) -> Machine:
    """Return what is known of the machine that code for `target` runs on: the more, the more it is this one."""
    known = Machine(lanes=target.lanes)
    if target != host_target():
        return known
    measured = measured_before(folder) if folder is not None else None
    return measured or _of_this_cpu(known)


def measured_before(folder: Path) -> Machine | None:
    """Return what `folder` has of measurements of this machine, or None where it was never measured."""
    target = host_target()
    return _recalled(recall(folder, _file(target)), Machine(lanes=target.lanes))


def calibrate(folder: Path | None = None) -> Machine:
    """Measure this machine, in a second or two, and remember it for all later compilations; return what was found.

    `folder` is where compiled networks are cached, the user's by default.
    """
    target = host_target()
    machine = measured_machine(target)
    remember(default_folder() if folder is None else folder, _file(target), asdict(machine))
    return machine


def measured_machine(target: CpuTarget) -> Machine:
    """Return the constants of this machine when it runs code for `target`."""
    known = _of_this_cpu(Machine(lanes=target.lanes))
    (layer,) = layers_of([_probe(PROBE_DENSITIES[0])])
    kernels = [RepeatedKernel(name, width) for width in WIDTHS for name in candidates(layer, width, known)]
    clock = KernelClock([STREAM, *kernels], target)
    streamed = _with_streams(known, stream_times(clock, SECONDS))
    return replace(streamed, calibration_factors=_calibration_factors(clock, kernels, streamed))


def _file(target: CpuTarget) -> str:
    return f"machine-{machine_name(target)}"


def _recalled(content: Mapping[str, object] | None, known: Machine) -> Machine | None:
    """Return the machine that was remembered, or None where it makes no sense."""
    try:
        return None if content is None else replace(known, **content)
    except (TypeError, ValueError):
        return None


def _of_this_cpu(machine: Machine) -> Machine:
    """Return the machine with the prices and the caches of this one, as far as these are known."""
    machine = replace(machine, prices=prices_of_cpu())
    sizes = cache_sizes()
    if sizes is None or not 0 < sizes.l1 <= sizes.l2:
        return machine
    return replace(machine, l1_bytes=sizes.l1, l2_bytes=sizes.l2, l3_bytes=max(sizes.l2, machine.l3_bytes))


def _with_streams(machine: Machine, times: Mapping[int, float]) -> Machine:
    """Return the machine with the time of a byte in loops of some sizes: from the last level, and from memory."""
    beyond = {size: time for size, time in times.items() if size >= 2 * machine.l2_bytes}
    if not beyond:
        return machine
    core = min(time for size, time in times.items() if size <= machine.l2_bytes / 2)
    # see `predicted_us`: what is measured is the hypotenuse of the time in the core and that of the bytes
    far = {size: sqrt(max(time**2 - core**2, (0.1 * time) ** 2)) for size, time in beyond.items()}
    l3_ns, dram_ns = min(far.values()), max(far.values())
    inside = [size for size, time in far.items() if time <= hypot(l3_ns, dram_ns) / sqrt(2)]
    return replace(machine, l3_ns=l3_ns, dram_ns=dram_ns, l3_bytes=max(machine.l2_bytes, *inside))


def _calibration_factors(clock: KernelClock, kernels: list[RepeatedKernel], machine: Machine) -> dict[str, float]:
    """Return the measured over the predicted time of each kernel, the mean over the probes."""
    ratios: dict[str, list[float]] = {}
    for density in PROBE_DENSITIES:
        weight = _probe(density)
        (layer,) = layers_of([weight])
        samples = {
            f"{kernel.family}@{kernel.width}": clock.sample(kernel, packed_layer(kernel.family, weight, layer))
            for kernel in kernels
        }
        times = clock.fastest(samples, SECONDS / len(PROBE_DENSITIES))
        for kernel in kernels:
            name = f"{kernel.family}@{kernel.width}"
            expected = predicted_us(kernel.family, layer, kernel.width, machine)
            ratios.setdefault(name, []).append(min(MOST_FACTOR, max(LEAST_FACTOR, times[name] / expected)))
    return {name: round(geometric_mean(values), 3) for name, values in ratios.items()}


def _probe(density: float) -> SSAValue:
    """Return the weight of a random layer of `PROBE_SIZE` inputs and outputs."""
    rng = np.random.default_rng(0)
    shape = (PROBE_SIZE, PROBE_SIZE)
    dense = np.where(rng.random(shape) < density, np.float32(1), np.float32(0))
    return SparseConstantOp(CscMatrix.from_dense(dense)).result


def packed_layer(family: str, weight: SSAValue, layer: Layer) -> PackedLayer:
    """Return a constant weight as a family reads it, over the layer's blocks of inputs and among its other bytes."""
    inputs, outputs = shape_of(weight)
    blocks = FAMILIES[family].block_count(layer) or None
    arrays = FAMILIES[family].pack(layer_weights(weight, np.zeros(outputs, dtype=np.float32), blocks))
    own = sum(array.nbytes for array in arrays)
    return PackedLayer((inputs, outputs), arrays, round(layer.other_bytes) + own if layer.other_bytes else 0)

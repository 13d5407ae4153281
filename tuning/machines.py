"""Machines for the cost model: this machine as measured or as built in, and the machines of other targets.

`compile` measures nothing by itself: it takes what `calibrate` has found on this machine, else the built-in constants.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import hypot, sqrt
from operator import index
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from ..dialect.ops.constants import SparseConstantOp
from ..dialect.tensors import shape_of
from ..kernels.families import FAMILIES
from ..kernels.machine import Machine
from ..kernels.measured.built_in_examples import built_in_examples
from ..kernels.measured.neighbours import Example, Examples
from ..kernels.prediction import candidates, example_of
from ..kernels.prices import STREAMS
from ..kernels.tile_widths import WIDTHS
from ..kernels.work import Layer
from ..lowering.cpu_target import CpuTarget
from ..lowering.kernels.kernel_form import layer_weights
from ..lowering.kernels.timed_kernels import RepeatedKernel
from ..passes.analysis.layer_costs import layers_of
from ..passes.kernels.discover_structure import DiscoverStructure
from ..runtime.jit import host_target
from ..runtime.store.cache import default_folder
from ..runtime.store.json_cache import Json, recall, remember
from ..sparse.csr import CscMatrix
from .calibration import STREAM, cache_sizes, cpu_model, machine_name, prices_of_cpu, stream_times
from .kernel_timing import KernelClock, PackedLayer
from .probe_layers import PLANTED, PROBES, mask_of

SECONDS: Final = 0.2
"""Seconds to measure reading."""

PROBE_SECONDS: Final = 2.0
"""Seconds to measure kernels on the layers of `PROBES`."""

BFLOAT_MACHINES: Final = {16: ("zen5", 1 << 20), 4: ("neoverse_v2", 2 << 20)}
"""The machines that multiply bfloat16, by lanes, and the bytes of their second-level caches: any other one with these
instructions is taken to be as fast."""

SIZES: Final = ("lanes", "l1_bytes", "l2_bytes", "l3_bytes", "shared_bytes")
"""Whole numbers of a machine; files of earlier releases lack the last one."""

FILES: Final = "machine-"
"""Names of files with machines begin so."""


def machine_for(target: CpuTarget, folder: Path | None) -> Machine:
    """Return the known properties of the machine that code for `target` runs on: most for this machine itself."""
    if target != host_target():
        return _machine_with(target)
    measured = measured_before(folder) if folder is not None else None
    if measured is not None:
        return measured
    alike = of_this_cpu(target.lanes)
    return replace(alike, examples=built_in_examples(alike.prices, alike.lanes))


def _machine_with(target: CpuTarget) -> Machine:
    """Return a machine of which nothing is known but what it can do."""
    if target.stated is not None:
        prices, l1_bytes, l2_bytes, l3_bytes, shared_bytes = target.stated
        streams = STREAMS[prices]
        machine = Machine(target.lanes, l1_bytes, l2_bytes, l3_bytes, *streams, prices=prices, bfloat=target.has_bfloat)
        return replace(machine, shared_bytes=shared_bytes)
    if not target.has_bfloat:
        return _with_instructions(Machine(lanes=target.lanes), target)
    prices, l2_bytes = BFLOAT_MACHINES[target.lanes]
    l3_ns, dram_ns = STREAMS[prices]
    examples = built_in_examples(prices, target.lanes)
    known = Machine(target.lanes, l2_bytes=l2_bytes, prices=prices, l3_ns=l3_ns, dram_ns=dram_ns, examples=examples)
    return _with_instructions(known, target)


def _with_instructions(machine: Machine, target: CpuTarget) -> Machine:
    """Return a machine with the instructions of a target."""
    return replace(
        machine,
        bfloat=target.has_bfloat,
        places_bytes=target.places_bytes,
        multiplies_tiles=target.multiplies_tiles,
        bfloat_tiles=target.multiplies_bfloat_tiles,
    )


def measured_before(folder: Path) -> Machine | None:
    """Return the measurements of this machine in `folder`, None if it was never measured."""
    known = recalled_machine(folder, machine_name(host_target()))
    if known is None or known.machine.lanes != host_target().lanes:
        return None
    return _with_instructions(known.machine, host_target())


def calibrate(folder: Path | None = None, probes: Sequence[int] = PROBES) -> Machine:
    """Measure this machine, some ten CPU seconds, and remember it for all later compilations; return what was found.

    `folder` is where compiled networks are cached, the user's by default; probes are the layers that are measured, by
    the numbers of `mask_of`. What was measured of models before stays.
    """
    target, folder = host_target(), default_folder() if folder is None else folder
    before, machine = measured_before(folder), measured_machine(target, probes)
    if before is not None and before.prices == machine.prices:
        machine = replace(machine, examples=before.examples.with_more(machine.examples))
    remember_machine(folder, KnownMachine(machine_name(target), cpu_model(), machine))
    return machine


def remember_examples(folder: Path, examples: Examples) -> None:
    """Add measured layers to what `folder` knows of this machine, which was measured before."""
    machine = measured_before(folder)
    if machine is not None and examples.words:
        known = replace(machine, examples=machine.examples.with_more(examples))
        remember_machine(folder, KnownMachine(machine_name(host_target()), cpu_model(), known))


def measured_machine(target: CpuTarget, numbers: Sequence[int] = PROBES) -> Machine:
    """Return the constants of this machine when it runs code for `target`, and what kernels take on some layers."""
    known = of_this_cpu(target.lanes)
    probes = [_probe(number) for number in numbers]
    layers = [layers_of([probe])[0] for probe in probes]
    kernels = [kernel for layer in layers for kernel in _kernels_of(layer, known)]
    clock = KernelClock([STREAM, *kernels], target)
    machine = with_stream_times(known, stream_times(clock, SECONDS))
    found = [_measured_example(clock, probe, layer, machine) for probe, layer in zip(probes, layers, strict=True)]
    return replace(machine, examples=Examples.of(found))


def _measured_example(clock: KernelClock, probe: SSAValue, layer: Layer, machine: Machine) -> Example:
    kernels = _kernels_of(layer, machine)
    packed = {name: packed_layer(name, probe, layer) for name in dict.fromkeys(kernel.family for kernel in kernels)}
    samples = {f"{kernel.family}@{kernel.width}": clock.sample(kernel, packed[kernel.family]) for kernel in kernels}
    return example_of(layer, clock.fastest(samples, PROBE_SECONDS / len(PROBES), least_rounds=3), machine)


def _kernels_of(layer: Layer, machine: Machine) -> list[RepeatedKernel]:
    return [RepeatedKernel(name, width) for width in WIDTHS for name in candidates(layer, width, machine)]


def _probe(number: int) -> SSAValue:
    """Return the weight of a layer of `PROBES`, with the panels that are found in it."""
    constant = SparseConstantOp(CscMatrix.from_dense(mask_of(number).astype(np.float32)))
    if number >= PLANTED:
        DiscoverStructure().apply(Context(), ModuleOp([constant]))
        constant.detach()
    return constant.result


class KnownMachine(NamedTuple):
    """A machine that was measured, and what its CPU calls itself; `name` is its `machine_name`."""

    name: str
    cpu: str
    machine: Machine


def remember_machine(folder: Path, known: KnownMachine) -> None:
    """Keep what was measured of a machine."""
    remember(folder, f"{FILES}{known.name}", {"cpu": known.cpu, "machine": asdict(known.machine)})


def recalled_machine(folder: Path, name: str) -> KnownMachine | None:
    """Return the stored machine; None if it is missing or makes no sense."""
    return machine_from(name, recall(folder, f"{FILES}{name}"))


def machine_from(name: str, content: Json) -> KnownMachine | None:
    """Return the machine that was kept as `content`; None where it makes no sense."""
    try:
        numbers: dict[str, Json] = dict(content["machine"])
        # text, fractions and numbers beyond float64 would fail later, in every compilation
        numbers |= {key: index(numbers[key]) for key in SIZES if key in numbers}
        numbers |= {key: float(numbers[key]) for key in ("l3_ns", "dram_ns")}
        numbers["examples"] = Examples(tuple(numbers["examples"]["words"]))
        return KnownMachine(name, str(content["cpu"]), Machine(**numbers))
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return None


def of_this_cpu(lanes: int) -> Machine:
    """Return a machine with the prices and the caches of this one, as far as these are known."""
    prices = prices_of_cpu()
    l3_ns, dram_ns = STREAMS[prices]
    machine, host = Machine(lanes, prices=prices, l3_ns=l3_ns, dram_ns=dram_ns), host_target()
    if lanes == host.lanes:
        machine = _with_instructions(machine, host)
    sizes = cache_sizes()
    if sizes is None or not 0 < sizes.l1 <= sizes.l2:
        return machine
    # where no third cache is known, as on hosts that hide it, a server's is taken to be there
    shared = max(sizes.l2, sizes.l3 or machine.shared_bytes)
    own = max(sizes.l2, min(shared, machine.l3_bytes))
    return replace(machine, l1_bytes=sizes.l1, l2_bytes=sizes.l2, l3_bytes=own, shared_bytes=shared)


def with_stream_times(machine: Machine, times: Mapping[int, float]) -> Machine:
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


def packed_layer(family: str, weight: SSAValue, layer: Layer) -> PackedLayer:
    """Return a constant weight as a family reads it, over the layer's blocks of inputs and among its other bytes."""
    inputs, outputs = shape_of(weight)
    blocks = FAMILIES[family].block_count(layer) or None
    arrays = FAMILIES[family].pack(layer_weights(weight, np.zeros(outputs, dtype=np.float32), blocks))
    own = sum(array.nbytes for array in arrays)
    return PackedLayer((inputs, outputs), arrays, round(layer.other_bytes) + own if layer.other_bytes else 0)

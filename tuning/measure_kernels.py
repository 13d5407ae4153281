"""Measure the few kernels that are predicted to be best for each layer and tile width, and remember what was found."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, cast

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from ..dialect.ops.images import Conv2dOp
from ..dialect.ops.layers import LinearOp, float_layers
from ..dialect.reports.layer_numbers import DEPTH_FIRST, LayerNumbers, layer_numbers
from ..kernels.block_choice import price_blocks
from ..kernels.families import block_counts
from ..kernels.machine import Machine
from ..kernels.measured.neighbours import Example, Examples
from ..kernels.prediction import example_of
from ..kernels.tile_widths import WIDTHS
from ..kernels.work import Layer
from ..lowering.cpu_target import CpuTarget
from ..lowering.kernels.timed_kernels import RepeatedKernel
from ..passes.analysis.block_choices import Times, predicted_times
from ..passes.analysis.layer_costs import Measurement, layer_key, layers_of, layers_of_ops, write_measurements
from ..runtime.jit import host_target, missing_features
from ..runtime.store.json_cache import Json, recall, remember
from .calibration import machine_name
from .kernel_timing import KernelClock
from .machines import (
    calibrate,
    machine_for,
    measured_before,
    packed_layer,
    remember_examples,
)

CANDIDATES: Final = 3
WITHIN: Final = 1.6
"""Kernels that are worth measuring: so many at most, each predicted to take less than this times the least."""


@dataclass(frozen=True)
class Tuning:
    """A machine, and how long to measure on it: all layers together take `seconds`, beside packing.

    What was measured is kept in `folder`, or forgotten where there is none. Without seconds nothing is measured, and
    without `recalls` what was measured before does not count either: then the cost model decides.
    """

    target: CpuTarget
    machine: Machine
    folder: Path | None
    seconds: float = 5.0
    recalls: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < float("inf"):
            raise ValueError(f"expected 0 seconds or more to tune, got {self.seconds}")

    @property
    def measures(self) -> bool:
        """Whether kernels may be measured, and not only those times be used that are known."""
        return self.recalls and self.seconds > 0

    @staticmethod
    def on(target: CpuTarget, folder: Path | None, seconds: float = 5.0) -> "Tuning":
        """Return the tuning of this machine, which is calibrated first where it never was.

        Raises:
            ValueError: this machine cannot run code for the target.
        """
        if missing := missing_features(target):
            raise ValueError(f"cannot tune for a target that needs {', '.join(missing)}, which this machine lacks")
        if folder is not None and target == host_target() and measured_before(folder) is None:
            calibrate(folder)
        return Tuning(target, machine_for(target, folder), folder, seconds)

    @staticmethod
    def recalled(target: CpuTarget, folder: Path | None) -> "Tuning":
        """Return a tuning that measures nothing and reads earlier measurements from `folder`."""
        return Tuning(target, machine_for(target, folder), folder, seconds=0.0)

    @staticmethod
    def predicted(target: CpuTarget, folder: Path | None) -> "Tuning":
        """Return a tuning that measures nothing and reads only this machine's properties from `folder`."""
        return Tuning(target, machine_for(target, folder), folder, seconds=0.0, recalls=False)


class Candidate(NamedTuple):
    """A kernel to measure, and over how many blocks of inputs: 0 for families without."""

    kernel: RepeatedKernel
    blocks: int


TimeKey = tuple[str, int, str, int]
"""A layer, a width, a family, and its blocks."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The kernels to measure for a layer."""

    key: str
    weight: SSAValue
    layer: Layer
    kernels: tuple[Candidate, ...]


@dataclass(frozen=True)
class MeasureKernels(ModulePass):
    """Write on a module how long kernels take that may be the best for its layers: `ChooseKernels` decides by that.

    ```mlir
    builtin.module { ... }
    // ->
    builtin.module attributes {pebble.measured = ["5d0c27a8f1be9e03@8 count_blocks 16.2", ...]} { ... }
    ```
    """

    name = "pebble-measure-kernels"

    tuning: Tuning

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        write_measurements(op, measure_kernels(op, self.tuning))


def measure_kernels(module: ModuleOp, tuning: Tuning) -> tuple[Measurement, ...]:
    """Return the times of the best candidates for the linear layers of a module whose weights are final.

    What was measured on this machine before is read from disk; what is missing is measured now, and remembered.
    """
    if not tuning.recalls:
        return ()
    known = known_times(tuning.target, tuning.folder) if tuning.folder is not None else {}
    wanted = _candidates(module, tuning.machine)
    missing = [one for one in wanted if not all(_time_key(one, kernel) in known for kernel in one.kernels)]
    if missing and tuning.seconds:
        found = _measured(missing, tuning)
        known |= found
        if tuning.folder is not None:
            # another process may have added something
            everything = known_times(tuning.target, tuning.folder) | found
            remember(tuning.folder, _file(tuning.target), [str(one) for one in everything.values()])
            if tuning.target == host_target():
                remember_examples(tuning.folder, Examples.of(_examples(missing, found, tuning.machine)))
    time_keys = dict.fromkeys(_time_key(one, kernel) for one in wanted for kernel in one.kernels)
    return tuple(known[time_key] for time_key in time_keys if time_key in known)


def _examples(
    layers: Sequence[Candidates], found: Mapping[TimeKey, Measurement], machine: Machine
) -> Iterable[Example]:
    """Yield examples for other layers: measured kernels over the usual number of blocks."""
    for one in layers:
        usual = block_counts(one.layer)
        times = {
            f"{kernel.family}@{kernel.width}": found[_time_key(one, candidate)].microseconds
            for candidate in one.kernels
            for kernel in (candidate.kernel,)
            if candidate.blocks in {0, usual.get(kernel.family, 0)}
        }
        if times:
            yield example_of(one.layer, times, machine)


def measure_chosen(module: ModuleOp, tuning: Tuning) -> None:
    """Write into the kernels of a module how long they take in the tiles in which they run, where nobody has measured.

    Nothing is remembered: what was not measured beside others says nothing about which kernel is best.
    """
    known = {op: numbers for op, numbers in layer_numbers(module).items() if op.kernel is not None and op.times is None}
    wanted: dict[str, Candidates] = {}
    keys: dict[LinearOp | Conv2dOp, str] = {}
    linears = [op for op in known if isinstance(op, LinearOp)]
    layers = dict(zip(linears, layers_of_ops(linears), strict=True))
    for linear, numbers in known.items():
        # weights of other layers are read between two images, not between two tiles of pixels
        layer = layers[linear] if isinstance(linear, LinearOp) else layers_of([linear.weight])[0]
        keys[linear] = key = layer_key(linear.weight, layer)
        kernels = _chosen(linear, numbers) if layer.inputs and layer.outputs else ()
        others = wanted[key].kernels if key in wanted else ()
        wanted[key] = Candidates(key, linear.weight, layer, tuple(dict.fromkeys((*others, *kernels))))
    found = _measured([one for one in wanted.values() if one.kernels], tuning)
    for linear, numbers in known.items():
        kernel = linear.kernel
        assert kernel is not None
        times = dict(kernel.measured)
        for chosen, blocks in _chosen(linear, numbers):
            time_key = (keys[linear], chosen.width, chosen.family, blocks)
            times |= {chosen.width: found[time_key].microseconds} if time_key in found else {}
        linear.kernel = replace(kernel, measured=dict(sorted(times.items())))


def _chosen(linear: LinearOp | Conv2dOp, numbers: LayerNumbers) -> tuple[Candidate, ...]:
    kernel = linear.kernel
    assert kernel is not None
    alone = [width for width, family in numbers.families.items() if family != DEPTH_FIRST and width in WIDTHS]
    missing = {width: kernel.family_at(width) for width in alone if width not in kernel.measured}
    blocks = kernel.blocks
    return tuple(Candidate(RepeatedKernel(family, width), blocks.get(family, 0)) for width, family in missing.items())


def _time_key(one: Candidates, candidate: Candidate) -> TimeKey:
    return one.key, candidate.kernel.width, candidate.kernel.family, candidate.blocks


def _recalled(content: Json) -> dict[TimeKey, Measurement]:
    """Return measurements by their places; what cannot be read is left out."""
    known: dict[TimeKey, Measurement] = {}
    for text in cast("list[object]", content) if isinstance(content, list) else ():
        try:
            one = Measurement.parse(str(text))
        except ValueError:
            continue
        known[one.layer, one.width, one.family, one.blocks] = one
    return known


def _candidates(module: ModuleOp, machine: Machine) -> list[Candidates]:
    """Return the candidates worth measuring, each pattern once."""
    linears = [*float_layers(module.walk())]
    found: dict[str, Candidates] = {}
    for linear, layer in zip(linears, layers_of_ops(linears), strict=True):
        key = layer_key(linear.weight, layer)
        if key in found or not layer.inputs or not layer.outputs:
            continue
        times = predicted_times(layer, machine)
        blocks = _block_counts(layer, times, machine)
        kernels = [
            Candidate(RepeatedKernel(family, width), count)
            for width in WIDTHS
            for family in _best(times[width])
            for count in blocks.get(family, (0,))
        ]
        found[key] = Candidates(key, linear.weight, layer, tuple(kernels))
    return list(found.values())


def _block_counts(layer: Layer, times: Times, machine: Machine) -> dict[str, tuple[int, ...]]:
    """Return the numbers of blocks to measure for families over blocks: the usual one, and the best of the others."""
    counts = {family: {usual} for family, usual in block_counts(layer).items()}
    for price in price_blocks(layer, times, machine):
        counts[price.family] |= {price.blocks, price.other}
    return {family: tuple(sorted(own)) for family, own in counts.items()}


def _best(times: Mapping[str, float]) -> list[str]:
    ranked = sorted(times, key=times.__getitem__)[:CANDIDATES]
    return [family for family in ranked if times[family] <= WITHIN * times[ranked[0]]]


def _shown(layers: Sequence[Candidates]) -> Iterable[Candidates]:
    """Go through layers; a terminal shows how far it is."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(layers, "measuring kernels", console=console, transient=True, disable=not console.is_terminal)


def _measured(missing: Sequence[Candidates], tuning: Tuning) -> dict[TimeKey, Measurement]:
    """Return the times of all candidates; each layer gets an equal part of the seconds that are left."""
    clock = KernelClock((candidate.kernel for one in missing for candidate in one.kernels), tuning.target)
    found: dict[TimeKey, Measurement] = {}
    spent = 0.0
    for number, one in enumerate(_shown(missing)):
        packed = {
            (family, blocks): packed_layer(family, one.weight, one.layer.with_blocks({family: blocks}))
            for family, blocks in dict.fromkeys((kernel.family, blocks) for kernel, blocks in one.kernels)
        }
        start = time.perf_counter()
        samples = {
            candidate: clock.sample(candidate.kernel, packed[candidate.kernel.family, candidate.blocks])
            for candidate in one.kernels
        }
        least = clock.fastest(samples, max(0.0, tuning.seconds - spent) / (len(missing) - number), least_rounds=3)
        spent += time.perf_counter() - start
        for candidate in one.kernels:
            (family, width), us = candidate.kernel, float(f"{least[candidate]:.4g}")
            found[_time_key(one, candidate)] = Measurement(one.key, width, family, us, candidate.blocks)
    return found


def known_times(target: CpuTarget, folder: Path) -> dict[TimeKey, Measurement]:
    """Return the times of kernels that were measured on this machine before, with results in `folder`."""
    return _recalled(recall(folder, _file(target)))


def _file(target: CpuTarget) -> str:
    return f"tuning-{machine_name(target)}"

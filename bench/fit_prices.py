"""Make the prices of kernel families from measured rows.

`python -m redpebble.bench.fit_prices` reads `bench/data`, and writes `kernels/prices.py` and
`kernels/measured/examples`: the layers that `redpebble tune` measures, as they were measured on these machines.

The time of a kernel is `(core^2 + far^2)^(1/2)`, core its units of work at a price each, far the time of a plain stream
of its weights times an exposure (see `kernels/prediction.py`). For each exposure of a few, prices are those that are
not negative and make the relative errors least; the exposure is the one of least errors. A machine is not equally fast
all the time: what the kernels of a layer have in common beyond what is predicted is taken for its speed at that moment,
and prices are fitted again to times without it.

What was not measured on a machine is as on the first one: the exposures, where no layer was measured among others, and
families without rows, whose prices are multiplied by what the times of all other kernels say.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.optimize import nnls

from ..kernels import prices
from ..kernels.families import FAMILIES
from ..kernels.formats import count_blocks, dense_outputs
from ..kernels.machine import Machine
from ..kernels.measured.built_in_examples import examples_file
from ..kernels.measured.neighbours import Examples
from ..kernels.prediction import LEAST_CORE, example_of, stream_of
from ..kernels.tile_widths import WIDTHS
from ..kernels.work import Tile
from ..tuning.probe_layers import PROBES
from .measured_layers import MeasuredLayer, MeasuredMachine, measured_machines

HEAD: Final = '''\
"""Nanoseconds of the units of work of kernel families, by machine, lanes and family; last the exposure.

Of a byte from the last-level cache and from memory, too, by machine.

Written by `bench/fit_prices.py`: not to be edited.
"""

from collections.abc import Mapping
from typing import Final

PRICES: Final[Mapping[str, Mapping[int, Mapping[str, tuple[float, ...]]]]] = {'''

STREAMS: Final = "STREAMS: Final[Mapping[str, tuple[float, float]]] = {"

Floats = NDArray[np.float64]
Prices = dict[str, tuple[float, ...]]
"""Nanoseconds of each unit of work by family, last the exposure."""

EXPOSURES: Final = tuple(0.25 * step for step in range(1, 11))
DIGITS: Final = 3
LIKE_MOST: Final = count_blocks.FAMILY.name
STREAM: Final = f"{dense_outputs.FAMILY.name}@1"
"""The kernel that does little but read."""


def with_streams(measured: MeasuredMachine) -> Machine:
    """Return a machine with the time of a byte from beyond its second-level cache: measured, or as wide layers tell."""
    l2 = measured.l2_bytes
    if measured.streams is not None:
        return Machine(measured.lanes, measured.l1_bytes, l2, 8 * l2, *measured.streams)
    layers = [one for one in measured.layers if not one.other_bytes]
    sizes = np.array(
        [FAMILIES[dense_outputs.FAMILY.name].work(one.layer(), Tile(1, 16, 1)).stream_bytes for one in layers]
    )
    times = np.array([1000 * one.microseconds[STREAM] for one in layers]) / sizes
    near = np.median(times[(sizes > l2 / 8) & (sizes <= l2 / 2)])
    l3, dram = (
        float(np.sqrt(max(median**2 - near**2, (LEAST_CORE * median) ** 2)))
        for median in (np.median(times[(sizes >= 2 * l2) & (sizes < 4 * l2)]), np.median(times[sizes >= 8 * l2]))
    )
    return Machine(measured.lanes, measured.l1_bytes, l2, 8 * l2, l3, max(l3, dram))


@dataclass(frozen=True)
class Times:
    """All times of a family: units of work [times, units], plain streams and times in ns, and the row of each."""

    units: Floats
    streams: Floats
    times: Floats
    rows: NDArray[np.int64]

    def predicted(self, priced: Sequence[float]) -> Floats:
        """Return the times that follow from prices and an exposure."""
        return np.hypot(self.units @ np.array(priced[:-1]), priced[-1] * self.streams)

    def fitted(self, times: Floats, exposures: Sequence[float]) -> tuple[float, ...]:
        """Return the prices and the exposure that fit best to times, which are those of the family without speeds."""
        best: tuple[float, ...] = ()
        least = float("inf")
        for exposure in exposures:
            core = np.sqrt(np.maximum(times**2 - (exposure * self.streams) ** 2, (LEAST_CORE * times) ** 2))
            # an error of the core counts as the relative error of the time that follows from it
            weight = core / times**2
            fitted, _ = nnls(self.units * weight[:, None], core * weight)
            priced = (*(float(price) for price in fitted), exposure)
            error = float((np.log(self.predicted(priced) / times) ** 2).sum())
            if error < least:
                best, least = priced, error
        return best


def times_of(family: str, layers: Sequence[MeasuredLayer], machine: Machine) -> Times:
    """Return the measured rows of a family."""
    found: list[tuple[tuple[float, ...], float, float, int]] = []
    for row, one in enumerate(layers):
        layer = one.layer()
        for width in FAMILIES[family].widths:
            time = one.microseconds.get(f"{family}@{width}")
            if time is not None:
                work = FAMILIES[family].work(layer, Tile(width, machine.lanes, machine.l1_bytes))
                found.append((work.units, stream_of(work, layer, width, machine), 1000 * time, row))
    units, streams, times, rows = zip(*found, strict=True)
    return Times(np.array(units), np.array(streams), np.array(times), np.array(rows))


def fitted(measured: MeasuredMachine, first: Prices | None = None) -> Prices:
    """Return the prices of the families that were measured, given those of the first machine."""
    machine = with_streams(measured)
    names = [name for name in FAMILIES if any(f"{name}@" in kernel for kernel in _kernels(measured))]
    known = {name: times_of(name, measured.layers, machine) for name in names}
    among = any(one.other_bytes for one in measured.layers)
    # what the first machine lacks is exposed as the kernels that it is chosen among
    exposures = {
        name: EXPOSURES if among or first is None else (first.get(name, first[LIKE_MOST])[-1],) for name in names
    }
    priced = {name: one.fitted(one.times, exposures[name]) for name, one in known.items()}
    # rounding families came later, on the scale of the others: what they take says nothing about the machine's speed
    others = {name: one for name, one in known.items() if not FAMILIES[name].rounds}
    speeds = _speeds(others, priced, len(measured.layers))
    return {name: one.fitted(one.times / speeds[one.rows], exposures[name]) for name, one in known.items()}


def _kernels(measured: MeasuredMachine) -> set[str]:
    return {kernel for one in measured.layers for kernel in one.microseconds}


def _speeds(known: Mapping[str, Times], priced: Prices, count: int) -> Floats:
    """Return how slow the machine was while it measured each layer, 1 on the geometric mean."""
    rows = np.concatenate([one.rows for one in known.values()])
    errors = np.concatenate([np.log(one.times / one.predicted(priced[name])) for name, one in known.items()])
    medians = np.array([np.median(errors[rows == row]) for row in range(count)])
    return np.exp(medians - medians.mean())


def fit_all() -> dict[str, dict[int, Prices]]:
    """Return the prices by machine and lanes, the machine with most kinds of vectors first."""
    by_name: dict[str, list[MeasuredMachine]] = {}
    for one in measured_machines():
        by_name.setdefault(one.name, []).append(one)
    found: dict[str, dict[int, Prices]] = {}
    origin: dict[int, MeasuredMachine] = {}
    for name in sorted(by_name, key=lambda name: (-len(by_name[name]), name)):
        own = sorted(by_name[name], key=lambda one: -one.lanes)
        first = next(iter(found.values()), dict[int, Prices]())
        found[name] = {one.lanes: _completed(one, first.get(one.lanes), origin) for one in own}
        origin = origin or {one.lanes: one for one in own}
    return found


def _completed(measured: MeasuredMachine, first: Prices | None, origin: Mapping[int, MeasuredMachine]) -> Prices:
    """Return the prices of a machine, with those of the first one for families that it did not measure."""
    own = fitted(measured, first)
    if first is None:
        return own
    ratio = slowness(measured, origin[measured.lanes])
    scaled = {name: (*(ratio * price for price in priced[:-1]), priced[-1]) for name, priced in first.items()}
    return scaled | own


def slowness(measured: MeasuredMachine, other: MeasuredMachine) -> float:
    """Return the times of one machine over those of another, the geometric mean over what both have measured."""
    times = {
        (one.number, one.other_bytes, kernel): time for one in other.layers for kernel, time in one.microseconds.items()
    }
    logs = [
        np.log(time / times[one.number, one.other_bytes, kernel])
        for one in measured.layers
        for kernel, time in one.microseconds.items()
        if (one.number, one.other_bytes, kernel) in times
    ]
    return float(np.exp(np.mean(logs)))


def text_of(found: Mapping[str, Mapping[int, Prices]]) -> str:
    """Return the source of `kernels/prices.py`."""
    lines: list[str] = []
    for name, by_lanes in found.items():
        lines.append(f'    "{name}": {{')
        for lanes, priced in by_lanes.items():
            lines.append(f"        {lanes}: {{")
            lines += [f'            "{family}": ({", ".join(map(_number, own))}),' for family, own in priced.items()]
            lines.append("        },")
        lines.append("    },")
    return "\n".join([HEAD, *lines, "}", "", STREAMS, *_streams_of(found), "}", ""])


def _streams_of(names: Iterable[str]) -> Iterator[str]:
    """Yield the lines of the speeds of reading of some machines, with the widest vectors that were measured there."""
    machines = [*measured_machines()]
    for name in names:
        own = [measured for measured in machines if measured.name == name]
        if own:
            machine = with_streams(max(own, key=lambda one: one.lanes))
            yield f'    "{name}": ({_number(machine.l3_ns)}, {_number(machine.dram_ns)}),'


def _number(value: float) -> str:
    return repr(float(f"{value:.{DIGITS}g}"))


def examples_of(measured: MeasuredMachine, prices_of: str) -> Examples:
    """Return the examples of `redpebble tune`'s layers on a machine, beside the prices of one."""
    machine = replace(with_streams(measured), prices=prices_of)
    rows = (one for one in measured.layers if one.number in PROBES and not one.other_bytes)
    return Examples.of(example_of(one.layer(), _tuned(one.microseconds), machine) for one in rows)


def _tuned(microseconds: Mapping[str, float]) -> dict[str, float]:
    """Return the times that `redpebble tune` would have measured: other rows may stem from a faster day of the machine.

    `tune` measures the kernels that any layer may use; kernels that round weights are left out.
    """
    return {
        kernel: time
        for kernel, time in microseconds.items()
        if int(kernel.partition("@")[2]) in WIDTHS and not FAMILIES[kernel.partition("@")[0]].rounds
    }


def write_examples() -> None:
    """Write the examples of all machines beside their prices, which have been read already."""
    for measured in measured_machines():
        words = examples_of(measured, measured.name).words
        examples_file(measured.name, measured.lanes).write_text("\n".join((*words, "")), encoding="utf-8")


def main(prices_too: Annotated[bool, typer.Option("--prices/--examples")] = True) -> None:
    """Fit and write: prices, then in a new process what measured layers say beside them."""
    if prices_too:
        Path(prices.__file__).write_text(text_of(fit_all()), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "redpebble.bench.fit_prices", "--examples"], check=True)
    else:
        write_examples()


if __name__ == "__main__":
    typer.run(main)

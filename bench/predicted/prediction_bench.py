"""The worth of predicted prices where the truth is known: x86 machines that were measured, by the same method.

    python -m redpebble.bench.predicted.prediction_bench [--mca llvm-mca-22] [--write]

prints for each machine what times are over the predicted ones, the median (a clock that was another one), the median
error beside that, and the regret: the time of the kernel that predicted prices choose over that of the fastest one, the
mean over the layers and widths that were measured. The regret of prices that were fitted to the measured times, and of
those of the other measured machines, stand beside it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np
import typer

from ...kernels.families import FAMILIES
from ...kernels.machine import Machine
from ...kernels.prediction import stream_of
from ...kernels.prices import PRICES
from ...kernels.work import Layer, Tile
from ..fit_prices import fitted, with_streams
from ..measured_layers import DATA, PREDICTED, MeasuredLayer, read_rows
from ..results.page_tables import PageTable, Write
from ..transfer_bench import ratios_of
from .predict_rows import CHECKS, NUMBERS, Mca, predicted_machines

WORTH: Final = PageTable(
    "predicted against measured",
    (
        "machine",
        "times measured over predicted, median",
        "median error beside that",
        "regret of predicted prices",
        "of fitted prices",
        "of the best other machine's",
    ),
    Path("docs/arm.md"),
    of_machine=False,
)


class Check(NamedTuple):
    """The worth of predicted prices on a machine."""

    machine: str
    factor: float
    error: float
    regrets: Mapping[str, float]
    """The machine whose prices choose -> the regret."""


def checked(name: str, mca: str, step: int) -> Check:
    """Return what prices are worth that are predicted of a measured machine, on every `step`-th measured layer."""
    measured = read_rows(DATA / f"{name}.csv")
    (virtual,) = predicted_machines({measured.name: CHECKS[name]}, NUMBERS, mca)
    prices = fitted(virtual, dict(PRICES[measured.name][measured.lanes]))
    machine, layers = with_streams(measured), measured.layers[::step]
    ratios = np.array(
        [
            time / predicted
            for one in layers
            for kernel, time in exact(one).items()
            for family, _, width in [kernel.partition("@")]
            if (predicted := time_of(family, one.layer(), int(width), prices, machine))
        ]
    )
    factor = float(np.median(ratios))
    others = {other: by_lanes[measured.lanes] for other, by_lanes in PRICES.items() if measured.lanes in by_lanes}
    regrets = {PREDICTED: regret(layers, prices, machine)}
    regrets |= {other: regret(layers, own, machine) for other, own in others.items()}
    return Check(name, factor, float(np.median(np.abs(np.log(ratios / factor)))), regrets)


def exact(one: MeasuredLayer) -> dict[str, float]:
    """Return the microseconds of the kernels of floats on a layer."""
    return {kernel: time for kernel, time in one.microseconds.items() if not FAMILIES[kernel.partition("@")[0]].rounds}


def time_of(family: str, layer: Layer, width: int, prices: Mapping[str, tuple[float, ...]], machine: Machine) -> float:
    """Return the microseconds of a kernel by prices, 0 without any."""
    if family not in prices:
        return 0.0
    *own, exposure = prices[family]
    work = FAMILIES[family].work(layer, Tile(width, machine.lanes, machine.l1_bytes))
    core = float(np.dot(work.units, own))
    return float(np.hypot(core, exposure * stream_of(work, layer, width, machine))) / 1000


def regret(layers: tuple[MeasuredLayer, ...], prices: Mapping[str, tuple[float, ...]], machine: Machine) -> float:
    """Return the time of the kernels that prices choose over that of the fastest, the mean over layers and widths."""

    def predicted(family: str, layer: Layer, width: int) -> float:
        return time_of(family, layer, width, prices, machine) or np.inf

    return float(np.mean([ratio for one in layers for _, ratio in ratios_of(one, predicted)]))


def main(
    mca: Mca = "llvm-mca-22",
    step: Annotated[int, typer.Option(help="Take every so many layers.")] = 4,
    *,
    write: Write = False,
) -> None:
    """Print a row of a table for each machine."""
    with WORTH.rows(write=write) as add:
        for name in CHECKS:
            one = checked(name, mca, step)
            fitted_to = name.rpartition("-")[0]
            own = (one.regrets[PREDICTED], one.regrets[fitted_to])
            others = min(value for whose, value in one.regrets.items() if whose not in (PREDICTED, fitted_to))
            regrets = (f"{100 * (value - 1):.1f} %" for value in (*own, others))
            add(name, f"{one.factor:.2f}", f"{100 * one.error:.0f} %", *regrets)


if __name__ == "__main__":
    typer.run(main)

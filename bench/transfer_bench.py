"""The choice of kernels on a machine that prices were not fitted to: with and without measured layers nearby.

`python -m redpebble.bench.transfer_bench [--step 1]` reads `bench/data` and measures nothing. Of each machine it
takes the prices of itself and of all others, and prints by width the time of the kernel that is chosen over that of the
fastest one, the mean over the layers that are no probes: by the cost model alone, and corrected by what was measured on
the layers that `redpebble tune` measures.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated, Final

import typer

from ..kernels.families import FAMILIES
from ..kernels.machine import PREDICTED_MACHINES, Machine
from ..kernels.prediction import predicted_us
from ..kernels.prices import PRICES
from ..kernels.tile_widths import WIDTHS
from ..kernels.work import Layer
from ..tuning.probe_layers import PROBES
from .fit_prices import examples_of, with_streams
from .measured_layers import MeasuredLayer, MeasuredMachine, measured_machines
from .results.page_tables import PageTable, Write

REGRETS: Final = PageTable(
    "choice of kernels", ("machine", "prices of", "measured layers", *map(str, WIDTHS)), of_machine=False
)


@dataclass(frozen=True)
class Regret:
    """The time of the kernels that are chosen over that of the fastest, the mean, by width."""

    machine: str
    lanes: int
    prices: str
    examples: int
    by_width: dict[int, float]


def machine_of(measured: MeasuredMachine, prices: str) -> Machine:
    """Return a measured machine with prices that are its own, or another one's."""
    return replace(with_streams(measured), prices=prices)


def probed(measured: MeasuredMachine, machine: Machine) -> Machine:
    """Return the machine as `redpebble tune` leaves it, by the rows of the layers that it measures."""
    return replace(machine, examples=examples_of(measured, machine.prices))


def regrets(measured: MeasuredMachine, machine: Machine, step: int) -> dict[int, float]:
    """Return the regret by width, over every `step`-th of the layers that are no probes."""
    ratios: dict[int, list[float]] = {width: [] for width in WIDTHS}

    def predicted(family: str, layer: Layer, width: int) -> float:
        return predicted_us(family, layer, width, machine)

    for one in [one for one in measured.layers if one.number not in PROBES][::step]:
        for width, ratio in ratios_of(one, predicted):
            ratios[width].append(ratio)
    return {width: fmean(own) for width, own in ratios.items()}


def ratios_of(one: MeasuredLayer, predicted: Callable[[str, Layer, int], float]) -> Iterator[tuple[int, float]]:
    """Yield each width, and the time of the family that is predicted to be fastest there over that of the fastest."""
    layer = one.layer()
    for width in WIDTHS:
        found = [kernel.partition("@")[0] for kernel in one.microseconds if kernel.endswith(f"@{width}")]
        names = [name for name in found if not FAMILIES[name].rounds]  # layers are of floats
        times = {name: one.microseconds[f"{name}@{width}"] for name in names}
        chosen = min(times, key=lambda name: predicted(name, layer, width))
        yield width, times[chosen] / min(times.values())


def bench_transfer(step: int, lanes: Sequence[int]) -> Iterator[Regret]:
    """Yield the regrets of each machine with the prices of each, without and with its probes."""
    # machines that were predicted have not run
    names = [name for name in PRICES if name not in PREDICTED_MACHINES]
    for measured in [one for one in measured_machines() if one.lanes in lanes and one.name in names]:
        for prices in [name for name in names if measured.lanes in PRICES[name]]:
            alone = machine_of(measured, prices)
            for machine in (alone, probed(measured, alone)):
                count = len(machine.examples.words)
                yield Regret(measured.name, measured.lanes, prices, count, regrets(measured, machine, step))


def main(
    step: Annotated[int, typer.Option(help="Take every so many layers.")] = 1,
    lanes: Annotated[str, typer.Option(help="Floats of a vector.")] = "16,8,4",
    *,
    write: Write = False,
) -> None:
    """Print a line for each machine, prices, and number of measured layers."""
    with REGRETS.rows(write=write) as add:
        for one in bench_transfer(step, [int(one) for one in lanes.split(",")]):
            ratios = (f"{one.by_width[width]:.3f}" for width in WIDTHS)
            add(f"{one.machine}-{one.lanes}", one.prices, one.examples, *ratios)


if __name__ == "__main__":
    typer.run(main)

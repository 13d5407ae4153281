"""Predicted over measured gains of pruned layers: `python -m redpebble.bench.price_bench [--layer 512x512]`.

Each layer is measured alone in onnxruntime, dense and pruned in the same rounds, on one thread. Predicted gains are
those by which `redpebble prune` allocates densities: as the cost model says, which goals of a loss use, and as
measurements at three densities correct it, which goals of a time use. A layer that is no option has none.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Final

import numpy as np
import typer

from ..pruning.layer_prices import LayerPrices
from ..pruning.layers import PrunableLayer
from ..pruning.measured_prices import measured_corrections
from ..pruning.options import Goal, PruneOptions
from ..pruning.runs.call_sizes import CallSizes
from ..pruning.runs.layer_times import LayerClock
from ..pruning.solving.methods import Sparsity
from ..runtime.jit import host_target
from ..tools.console.console import console
from ..tuning.machines import machine_for

STRUCTURES: Final = "equal,rows:4,rows:16,64:2:8,64:2:16"
DENSITIES: Final = "0.1,0.2,0.3,0.4,0.5"


def lines(size: tuple[int, int], structures: list[str], rows: int, densities: list[float]) -> Iterator[str]:
    """Yield a line for each structure and density: gains as predicted, corrected and measured."""
    layer = PrunableLayer("layer", 0, "x", "w", False, *size)
    first = CallSizes(1, {layer.name: rows}, {})
    for name in structures:
        options = PruneOptions(Goal("sparsity", 0.5), rows, structure=name)
        structure, clock = options.chosen_structure, LayerClock(options, first)
        plain, corrected = (LayerPrices([layer], options, first, machine_for(host_target(), None)) for _ in range(2))
        corrected.correct(measured_corrections([layer], structure, corrected, clock, _unwatched))
        scores = np.random.default_rng(1).random(size, dtype=np.float32)
        for density in densities if structure.density is None else [structure.density]:
            measured = clock.times(layer, (scores + 1) * Sparsity(structure, density).mask(scores)).speedup
            gains = [_gain(prices, layer, density) for prices in (plain, corrected)]
            ratios = "".join(
                "     -       " if math.isnan(gain) else f"{gain:5.2f} {gain / measured:6.2f} " for gain in gains
            )
            yield f"{name:8} {rows:4d} {density:6.3f} {measured:9.2f} {ratios}"


def _unwatched(what: str, done: int, total: int) -> None:
    del what, done, total


def _gain(prices: LayerPrices, layer: PrunableLayer, density: float) -> float:
    us = prices.sparse_us(layer, density)
    return math.nan if us is None else prices.dense_us(layer) / us


def main(
    layer: Annotated[str, typer.Option(help="Inputs and outputs.")] = "512x512",
    structures: str = STRUCTURES,
    rows: str = "16,64,128,256",
    densities: str = DENSITIES,
) -> None:
    """Print the table; behind a predicted gain stands that over the measured one."""
    inputs, outputs = map(int, layer.split("x"))
    console.print(f"{'':8} rows density  measured  predicted  corrected", highlight=False)
    for count in map(int, rows.split(",")):
        for line in lines((inputs, outputs), structures.split(","), count, list(map(float, densities.split(",")))):
            console.print(line, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)

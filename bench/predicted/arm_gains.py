"""Predicted gains of networks on ARM over onnxruntime, from prices that are predictions themselves.

    python -m redpebble.bench.predicted.arm_gains [--zeros 0.9] [--write]

Linear layers and convolutions alone, by the cheapest kernel of each, on one thread; what is not pruned, as attention
is, counts as dense for both. onnxruntime is taken to reach what `kernels/dense_work.py` states for it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np
import typer

from ...kernels.dense_work import runtime_us
from ...kernels.machine import Machine
from ...kernels.prediction import all_predicted_us
from ...kernels.tile_widths import WIDTHS
from ...kernels.work import Layer
from ...lowering.cpu_target import ARM_CPUS
from ...tuning.machines import machine_for
from ..results.page_tables import PageTable, Write

GAINS: Final = PageTable("predicted gains", ("CPU",), Path("docs/arm.md"), of_machine=False)

CPUS: Final = ("neoverse-v2", "neoverse-n2", "neoverse-n1", "cortex-a76", "apple-m2")

LEAST_ROWS: Final = 8
"""Rows of the narrowest tile that a layer of few rows is priced for."""


class Layers(NamedTuple):
    """Layers of one shape: a matrix [inputs, outputs], the rows that it gets, and how many there are."""

    inputs: int
    outputs: int
    rows: int
    times: int

    @property
    def weight_bytes(self) -> int:
        """The bytes of the weights of one, dense."""
        return 4 * self.inputs * self.outputs


class Network(NamedTuple):
    """The pruned layers, and one layer for all other operators; None where there are no others."""

    layers: tuple[Layers, ...]
    dense: Layers | None = None


def _stage(inputs: int, middle: int, outputs: int, pixels: int, blocks: int, stride: int) -> Iterator[Layers]:
    """Yield the convolutions of some blocks of ResNet-50, the first of which has a stride in its second one."""
    yield Layers(inputs, middle, pixels * stride**2, 1)
    yield Layers(9 * middle, middle, pixels, blocks)
    yield Layers(middle, outputs, pixels, blocks)
    yield Layers(inputs, outputs, pixels, 1)
    yield Layers(outputs, middle, pixels, blocks - 1)


NETWORKS: Final[Mapping[str, Network]] = {
    # scores and sums of six layers of attention are as much work as two products of a row with 128 columns
    "MiniLM, 128 tokens": Network(
        (Layers(384, 384, 128, 24), Layers(384, 1536, 128, 6), Layers(1536, 384, 128, 6)), Layers(384, 128, 128, 12)
    ),
    "ResNet-50": Network(
        (
            Layers(147, 64, 112 * 112, 1),
            *_stage(64, 64, 256, 56 * 56, 3, 1),
            *_stage(256, 128, 512, 28 * 28, 4, 2),
            *_stage(512, 256, 1024, 14 * 14, 6, 2),
            *_stage(1024, 512, 2048, 7 * 7, 3, 2),
            Layers(2048, 1000, 1, 1),
        )
    ),
}


def gain(network: Network, zeros: float, machine: Machine, *, rounded: bool = False) -> float:
    """Return the time of onnxruntime over that of our kernels, which may round to bfloat16."""
    total = sum(one.times * one.weight_bytes for one in network.layers)
    rest = 0.0 if network.dense is None else _dense_us(network.dense, machine, 0.0)
    dense = sum(_dense_us(one, machine, total - one.weight_bytes) for one in network.layers)
    # a weight that is left has an index beside it
    others = 2 * (1 - zeros)
    sparse = sum(
        _sparse_us(one, zeros, machine, others * (total - one.weight_bytes), rounded) for one in network.layers
    )
    return (dense + rest) / (sparse + rest)


def _dense_us(one: Layers, machine: Machine, other_bytes: float) -> float:
    return one.times * runtime_us(one.inputs, one.outputs, one.rows, machine, other_bytes)


def _sparse_us(one: Layers, zeros: float, machine: Machine, other_bytes: float, rounded: bool) -> float:
    counts = np.random.default_rng(0).binomial(one.inputs, 1 - zeros, one.outputs).astype(np.int64)
    layer = Layer(one.inputs, counts, other_bytes, rounded=rounded)
    times = (
        -(-one.rows // width) * min(all_predicted_us(layer, width, machine).values())
        for width in WIDTHS
        if width <= max(LEAST_ROWS, one.rows)
    )
    return one.times * min(times)


def main(zeros: Annotated[float, typer.Option(help="Share of zeros.")] = 0.9, *, write: Write = False) -> None:
    """Print the table."""
    heads = [head for name in NETWORKS for head in (name, f"{name}, in bfloat16")]
    with GAINS.rows(*heads, write=write) as add:
        for cpu in CPUS:
            machine = machine_for(ARM_CPUS[cpu], None)
            cells: list[str] = []
            for network in NETWORKS.values():
                cells.append(f"{gain(network, zeros, machine):.1f}x")
                cells.append(f"{gain(network, zeros, machine, rounded=True):.1f}x" if machine.bfloat else "")
            add(cpu, *cells)


if __name__ == "__main__":
    typer.run(main)

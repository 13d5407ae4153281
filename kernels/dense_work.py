"""Predicted time of dense layers: by our kernels, and by onnxruntime's, which a sparse layer has to beat."""

from collections.abc import Iterable, Mapping
from math import hypot
from typing import Final, NamedTuple

import numpy as np

from .families import is_dense
from .formats import dense_outputs
from .machine import DEFAULT_PRICES, PREDICTED_MACHINES, Machine
from .prediction import candidates, parts_of, predicted_us
from .tile_widths import WIDTHS, time_of_rows
from .work import Layer

TYPICAL: Final = 1024
"""Inputs and outputs of the dense layer whose time is that of all dense work."""

DENSE: Final = dense_outputs.FAMILY.name


def dense_us(rows: int, machine: Machine) -> float:
    """Return the microseconds of a multiply-add of a dense layer that gets so many rows."""
    return dense_layer_us(TYPICAL, TYPICAL, rows, machine) / (rows * TYPICAL * TYPICAL)


def dense_layer_us(inputs: int, outputs: int, rows: int, machine: Machine, other_bytes: float = 0.0) -> float:
    """Return the microseconds of a dense layer by our kernels, beside so many bytes of other weights."""
    layer = _dense(inputs, outputs, other_bytes)
    times = {
        width: min(
            predicted_us(name, layer, width, machine) for name in candidates(layer, width, machine) if is_dense(name)
        )
        for width in WIDTHS
    }
    return time_of_rows(times, rows)


class Overheads(NamedTuple):
    """Microseconds of a call of a session from Python, and of a node of onnxruntime beside its arithmetic."""

    call: float
    node: float


OVERHEADS: Final = {
    DEFAULT_PRICES: Overheads(20.0, 2.5),
    "emerald_rapids": Overheads(7.0, 0.5),
    "zen5": Overheads(8.0, 0.7),
}
"""Machine in `kernels/prices.py` -> what was measured there."""


class Runtime(NamedTuple):
    """onnxruntime's dense kernels beside ours, as the machine prices them."""

    block: int
    """Rows that it computes at once; those that are left are a smaller block."""
    shares: Mapping[int, float]
    """Rows of a block, from so many on -> its time over that of our instructions."""
    reading: float
    """Time for weights from beyond the second-level cache over ours."""


RUNTIMES: Final[Mapping[str, Mapping[int, Runtime]]] = {
    "cascade_lake": {
        16: Runtime(12, {1: 1.0, 12: 0.72}, 0.6),
        8: Runtime(6, {1: 1.0, 6: 0.72}, 0.6),
        4: Runtime(4, {1: 1.0, 4: 0.72}, 0.6),
    },
    "emerald_rapids": {
        16: Runtime(12, {1: 1.0, 4: 0.87, 5: 0.78, 6: 0.87, 7: 1.05, 9: 0.9, 12: 0.87}, 0.74),
        8: Runtime(6, {1: 1.0, 6: 0.72}, 0.6),
        4: Runtime(4, {1: 1.0, 4: 0.72}, 0.6),
    },
    "zen5": {
        16: Runtime(12, {1: 1.0, 2: 1.2, 5: 0.88, 6: 1.0, 7: 1.2, 12: 1.0}, 1.2),
        8: Runtime(6, {1: 0.92, 3: 1.15, 4: 0.92}, 1.55),
        4: Runtime(4, {1: 0.96}, 1.0),
    },
    # stated, not measured: matrix products at 85 % of what the instructions allow, vectors as fast as ours
    **{name: {4: Runtime(4, {1: 1.0, 4: 0.5}, 1.0)} for name in PREDICTED_MACHINES},
}
"""Kernels of onnxruntime by prices and floats in a vector: lower ends of what was measured, so that a layer which beats
these times is faster in all rounds. Measured on layers of 256 to 4096 inputs and outputs, at 1 to 512 rows on Zen 5, 1
to 256 on Emerald Rapids (vectors of 16 alone), 2 to 24 on Cascade Lake, and on Zen 1 for vectors of 8 with the prices
of `zen5`: there all takes 3.5 times as long."""

WAITING: Final = 0.4
"""Share of the time to read from memory in which onnxruntime's kernels compute nothing."""


def runtime_us(inputs: int, outputs: int, rows: int, machine: Machine, other_bytes: float = 0.0) -> float:
    """Return the microseconds of a dense layer in onnxruntime, beside so many bytes of other weights."""
    return runtime_times(inputs, outputs, [rows], machine, other_bytes)[rows]


def runtime_times(
    inputs: int, outputs: int, counts: Iterable[int], machine: Machine, other_bytes: float = 0.0
) -> dict[int, float]:
    """Return the same for several numbers of rows."""
    layer, runtime = _dense(inputs, outputs, other_bytes), RUNTIMES[machine.prices][machine.lanes]
    blocks = [0.0]
    for rows in range(1, runtime.block + 1):
        share = next(runtime.shares[least] for least in sorted(runtime.shares, reverse=True) if rows >= least)
        blocks.append(share * parts_of(DENSE, layer, rows, machine).core)
    weights = 4.0 * inputs * outputs
    far = runtime.reading * parts_of(DENSE, layer, 1, machine).far
    waiting = WAITING * machine.memory_ns(weights, weights + other_bytes)
    times = dict[int, float]()
    for rows in counts:
        whole, left = divmod(rows, runtime.block)
        times[rows] = (hypot(whole * blocks[-1] + blocks[left], far) + waiting) / 1000
    return times


def rows_share(rows: int, width: int, layer: tuple[int, int], machine: Machine) -> float:
    """Return the time of our dense kernels for some rows over that of a whole tile: they compute no more than these."""
    some, whole = (parts_of(DENSE, _dense(*layer, 0.0), count, machine) for count in (rows, width))
    return min(1.0, hypot(some.core, some.far) / hypot(whole.core, whole.far))


def _dense(inputs: int, outputs: int, other_bytes: float) -> Layer:
    return Layer(inputs, np.full(outputs, inputs, dtype=np.int64), other_bytes, "dense")

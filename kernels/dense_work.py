"""Predicted time of a multiply-add of dense layers, which stands for all work that a runtime does."""

from typing import Final

import numpy as np

from redpebble.kernels.families import is_dense
from redpebble.kernels.machine import Machine
from redpebble.kernels.prediction import candidates, predicted_us
from redpebble.kernels.tile_widths import WIDTHS, time_of_rows
from redpebble.kernels.work import Layer

TYPICAL: Final = 1024
"""Inputs and outputs of the dense layer whose time is that of all dense work."""


def dense_us(rows: int, machine: Machine) -> float:
    """Return the microseconds of a multiply-add of a dense layer that gets so many rows."""
    return dense_layer_us(TYPICAL, TYPICAL, rows, machine) / (rows * TYPICAL * TYPICAL)


def dense_layer_us(inputs: int, outputs: int, rows: int, machine: Machine, other_bytes: float = 0.0) -> float:
    """Return the microseconds of a dense layer by our kernels, beside so many bytes of other weights."""
    layer = Layer(inputs, np.full(outputs, inputs, dtype=np.int64), other_bytes, "dense")
    times = {
        width: min(
            predicted_us(name, layer, width, machine) for name in candidates(layer, width, machine) if is_dense(name)
        )
        for width in WIDTHS
    }
    return time_of_rows(times, rows)


RUNTIME_SHARES: Final = {"cascade_lake": {48: 0.71, 24: 0.8}, "zen5": {48: 0.96}}
"""Time of a dense layer in onnxruntime over that of our dense kernels as a machine prices them, from so many rows on:
measured on layers of 256 to 1536 inputs and outputs, in rounds without disturbance: 0.62 to 0.75 from 48 rows on, and
0.94 to 0.97 on Zen 5, where our dense kernels are as good."""


def runtime_share(rows: int, machine: Machine) -> float:
    """Return the time of a dense layer in onnxruntime over that of our dense kernels, 1 for a few rows."""
    shares = RUNTIME_SHARES.get(machine.prices, {})
    return next((share for least, share in shares.items() if rows >= least), 1.0)

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
    layer = Layer(TYPICAL, np.full(TYPICAL, TYPICAL, dtype=np.int64), stored="dense")
    times = {
        width: min(
            predicted_us(name, layer, width, machine) for name in candidates(layer, width, machine) if is_dense(name)
        )
        for width in WIDTHS
    }
    return time_of_rows(times, rows) / (rows * TYPICAL * TYPICAL)

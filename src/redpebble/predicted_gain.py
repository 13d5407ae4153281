"""Predicted gain of a model in onnxruntime: from where its work lies, and the predicted times of sparse networks.

Only multiply-adds count. Those that stay, and those of the original model, are priced as dense ones by the same cost
model, at as many rows at once as the sparse layers get: what onnxruntime adds for single nodes is left out on both
sides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from redpebble.dialect.reports.network_report import NetworkReport
from redpebble.kernels.dense_work import dense_us
from redpebble.kernels.machine import Machine
from redpebble.kernels.tile_widths import time_of_rows
from redpebble.placement import Placement


@dataclass(frozen=True)
class PredictedGain:
    """Microseconds of the multiply-adds of a call for a batch of 1, see `Placement`."""

    rows: int
    original_us: float
    networks_us: float
    """Time of what was taken."""
    stays_us: float

    @property
    def ratio(self) -> float:
        """Times as fast."""
        ours = self.networks_us + self.stays_us
        return self.original_us / ours if ours else 1.0


def predicted_gain(placement: Placement, networks: Sequence[NetworkReport], machine: Machine) -> PredictedGain | None:
    """Return what sparse networks are predicted to gain; None where there are none, or no times of them."""
    if not networks or not placement.linear_taken or not all(network.predicted_us for network in networks):
        return None
    rows = placement.rows
    dense = dense_us(rows, machine)
    times = [{int(width): time for width, time in network.predicted_us.items()} for network in networks]
    sparse = sum(time_of_rows(one, rows) for one in times)
    attention = dense * (placement.taken - placement.linear_taken)
    left = placement.multiply_adds - placement.taken
    return PredictedGain(rows, dense * placement.multiply_adds, sparse + attention, dense * left)

"""Predicted gain of a model in onnxruntime: from where its work lies, and the predicted times of sparse networks.

Layers that are taken are priced as onnxruntime computes them, all other multiply-adds as dense ones by the same cost
model, at as many rows at once as the sparse layers get. To them come a call, its nodes, and the values that operators
without weights yield, with prices that were fitted to TabNets at 1 to 128 rows.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..dialect.reports.network_report import AttentionReport, NetworkReport
from ..frontend.multiply_adds import LONG
from ..kernels.byte_times import dense_layers_us
from ..kernels.dense_work import OVERHEADS, dense_us, runtime_us
from ..kernels.machine import DEFAULT_PRICES, Machine
from ..kernels.tile_widths import PIXELS, time_of_rows
from ..theory.attention_cost import BLOCK_QUERIES, AttentionSize, attention_work
from .placement import Placement

OPERATOR_US: Final = 0.1
"""Microseconds of an operator inside a sparse network."""

VALUE_US: Final = 3e-4
"""Microseconds of a value that an operator without weights yields, there and here."""

QUICK_US: Final = 1e-4
"""Microseconds of such a value that takes a few instructions."""


@dataclass(frozen=True)
class PredictedGain:
    """Microseconds of a call for a batch of 1, see `Placement`."""

    rows: int
    """Rows of a layer; 0 where layers are convolutions, and the batch is an image."""
    original_us: float
    networks_us: float
    """Time of what was taken."""
    stays_us: float

    @property
    def ratio(self) -> float:
        """Times as fast."""
        ours = self.networks_us + self.stays_us
        return self.original_us / ours if ours else 1.0

    @property
    def bound(self) -> float:
        """Amdahl's bound: times as fast if what was taken took no time."""
        return self.original_us / self.stays_us if self.stays_us else 1.0


def size_of(attention: AttentionReport, length: int = LONG, samples: int = 1) -> AttentionSize:
    """Return the sizes of an attention in a call whose free lengths are `length`; with a past, in one of its steps."""
    queries = attention.queries or (1 if attention.has_past else length)
    sizes = attention.heads, queries, attention.keys or length, attention.key_size, attention.value_size
    return AttentionSize(samples, *sizes, attention.has_mask)


def predicted_gain(placement: Placement, networks: Sequence[NetworkReport], machine: Machine) -> PredictedGain | None:
    """Return the predicted gain of sparse networks; None without networks, or without their times."""
    if any(network.image_us for network in networks):
        return _gain_of_images(placement, networks, machine)
    if not networks or not placement.linear_taken or not all(network.predicted_us for network in networks):
        return None
    rows = placement.rows
    dense = dense_us(rows, machine)
    times = [{int(width): time for width, time in network.predicted_us.items()} for network in networks]
    sparse = sum(time_of_rows(one, rows) for one in times)
    sparse += OPERATOR_US * sum(network.operators for network in networks)
    sizes = [size_of(one) for network in networks for one in network.attentions]
    attention = dense_us(BLOCK_QUERIES, machine) * sum(map(attention_work, sizes))
    quick = sum(network.quick_values for network in networks)
    slow = sum(network.values for network in networks) - quick
    values = rows * (VALUE_US * slow + QUICK_US * quick)
    call, node = OVERHEADS.get(machine.prices, OVERHEADS[DEFAULT_PRICES])
    left = dense * (placement.multiply_adds - placement.taken) + node * placement.nodes_left
    integers = [sizes for network in networks for sizes in network.integer_layers]
    floats = [sizes for network in networks for sizes in network.float_layers]
    products = rows * sum(inputs * outputs for inputs, outputs in (*integers, *floats))
    original = dense * max(0, placement.multiply_adds - products) + dense_layers_us(integers, rows, machine.prices)
    original += _floats_us(floats, rows, machine)
    # of nodes on codes the runtime makes one a layer, too
    nodes = placement.nodes_left + sum(network.operators for network in networks) if integers else placement.nodes
    return PredictedGain(rows, call + original + node * nodes + values, sparse + attention + values, call + left)


def _floats_us(layers: Sequence[tuple[int, int]], rows: int, machine: Machine) -> float:
    """Return the microseconds of dense layers of floats in onnxruntime, which reads the weights of all at each call."""
    weights = sum(4.0 * inputs * outputs for inputs, outputs in layers)
    counts = Counter(layers).items()
    return sum(
        count * runtime_us(inputs, outputs, rows, machine, weights - 4.0 * inputs * outputs)
        for (inputs, outputs), count in counts
    )


def _gain_of_images(placement: Placement, networks: Sequence[NetworkReport], machine: Machine) -> PredictedGain:
    """Return the gain of networks on images: they know their own times; other layers are priced as tiles of pixels."""
    images = [network for network in networks if network.image_us]
    others = [network for network in networks if network.predicted_us]
    sparse = sum(network.image_us for network in images)
    sparse += sum(time_of_rows({int(width): us for width, us in one.predicted_us.items()}, 1) for one in others)
    products = sum(network.image_products for network in images)
    call, node = OVERHEADS.get(machine.prices, OVERHEADS[DEFAULT_PRICES])
    beside = dense_us(PIXELS, machine) * (placement.multiply_adds - products) + node * placement.nodes_left
    left = dense_us(PIXELS, machine) * (placement.multiply_adds - placement.taken) + node * placement.nodes_left
    original = sum(network.dense_image_us for network in images) + max(left, beside)
    return PredictedGain(0, call + original, sparse, call + left)

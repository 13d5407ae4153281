"""Costs of a tile beside the kernels of its layers: transposition, reductions, and threads that share it.

The costs of threads were measured on two cores whose second-level caches are their own.
"""

from typing import Final, NamedTuple

from ..sparse.csr import CONNECTION_BYTES

TRANSPOSED_US: Final = 0.13e-3
"""Microseconds for a value that goes in or out, of a tile without bytes."""

TRANSPOSED_US_A_BYTE: Final = 0.13e-3 / (1 << 20)
"""Microseconds more for each byte of all values that do: with 2 MiB of second-level cache a value was measured to take
from 0.14 ns in tiles of 100 KB to 0.40 ns in tiles of 2 MB."""

MOST_TRANSPOSED_US: Final = 0.5e-3
"""Microseconds for a value in tiles that leave that cache."""

COPIED_US: Final = 0.03e-3
"""Microseconds for a value that goes in or out of a tile of rows."""

REDUCED_US: Final = 0.3e-3
"""Microseconds for a value in a normalisation or softmax."""

WEIGHT_US: Final = 0.12e-3
"""Microseconds for reading the weight of a connection of a layer whose kernel's time is not known."""

PRODUCT_US: Final = 0.018e-3
"""Microseconds more for each batch column that such a connection meets."""

FETCH_US: Final = 0.8e-3
"""Microseconds for reading a value that another thread has written."""

BARRIER_US: Final = 0.3
"""Microseconds of a barrier of two threads."""


def transpose_us(features: int, width: int) -> float:
    """Return the microseconds for values with so many features together to come into a tile and to leave it."""
    values = features * width
    return values * min(MOST_TRANSPOSED_US, TRANSPOSED_US + TRANSPOSED_US_A_BYTE * 4 * values)


def boundary_us(features: int, width: int, *, of_rows: bool) -> float:
    """Return the same for a tile of columns, or for one of rows, which are only copied."""
    return COPIED_US * features * width if of_rows else transpose_us(features, width)


def unknown_layer_us(connections: int, width: int) -> float:
    """Return an estimate of the microseconds of a layer whose kernel's time is not known."""
    return connections * (WEIGHT_US + PRODUCT_US * width)


# The time of layers on a tile whose values leave the cache, from what moves between the caches.
#
# `time = operations / peak + second-level misses / far + stream / memory + first-level misses / near + neurons`, with
# rows that are written back counted as misses. The rates were fitted to 170 networks and orders on a Xeon with AVX-512
# (median error 13 to 19 %, rank correlation 0.95 to 0.97), the time of neurons to butterflies, scattered rows to
# schedules of a grid whose slots take more than the cache.

PEAK_GFLOPS: Final = 200.0
FAR_GBS: Final = 42.0
SCATTERED_GBS: Final = 24.0
STREAM_GBS: Final = 12.0
NEAR_GBS: Final = 400.0

NEURON_NS: Final = 4.0
"""Time of a neuron beside its connections: where it goes, its bias, and a branch that is not foreseen."""


class TileTraffic(NamedTuple):
    """Traffic of a schedule for a tile: connections, and bytes from beyond the first- and the second-level cache."""

    connections: int
    near_bytes: float
    far_bytes: float
    neurons: int = 0
    scattered_bytes: float = 0.0
    """Part of those from beyond the second-level cache: rows that lie anywhere, which nothing fetches ahead."""

    @property
    def stream_bytes(self) -> int:
        """Bytes of the connections themselves."""
        return CONNECTION_BYTES * self.connections

    def microseconds(self, width: int) -> float:
        """Return the time for a tile of `width` columns."""
        operations = 2e-3 * self.connections * width / PEAK_GFLOPS
        stream = 1e-3 * self.stream_bytes / STREAM_GBS
        neurons = 1e-3 * NEURON_NS * self.neurons
        far = (self.far_bytes - self.scattered_bytes) / FAR_GBS + self.scattered_bytes / SCATTERED_GBS
        return operations + stream + neurons + 1e-3 * (far + self.near_bytes / NEAR_GBS)

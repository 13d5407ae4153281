"""The time of layers on a tile whose values leave the cache, from what moves between the caches.

`time = operations / peak + second-level misses / far + stream / memory + first-level misses / near + neurons`, with
rows that are written back counted as misses. The rates were fitted to 170 networks and orders on a Xeon with AVX-512
(median error 13 to 19 %, rank correlation 0.95 to 0.97), the time of neurons to butterflies, scattered rows to
schedules of a grid whose slots take more than the cache.
"""

from typing import Final, NamedTuple

from ..sparse.csr import CONNECTION_BYTES

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

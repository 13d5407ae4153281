"""Times of kernels on a layer: native loops over the kernels that a compiled network would call."""

import time
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..kernels.family import PackedArrays
from ..lowering.cpu_target import CpuTarget
from ..lowering.kernels.timed_kernels import RepeatedKernel, repeated_kernels
from ..lowering.llvm.call_tables import VECTOR_ROOM
from ..runtime.jit import MachineCode, emit_object, load_object
from ..runtime.memory import address_of, aligned_bytes, aligned_copy

SAMPLE_SECONDS = 1e-4
"""Time of a sample: long beside the clock's own time and the way from Python to native code."""

FEW_KERNELS = 32
MOST_COPIES = 1024

PADDING = 2 * 16
"""Features of room behind those of a tile, whose kernel may write whole groups of them, or have rows of whole lines."""

K = TypeVar("K", bound=Hashable)
"""A key that tells samples apart."""


class PackedLayer(NamedTuple):
    """A layer as a family reads it, and the bytes of weights that are read before it is used again."""

    shape: tuple[int, int]
    arrays: PackedArrays
    between_bytes: int


class Sample(NamedTuple):
    """A kernel on a layer, ready to be called; `call` runs it `kernels` times."""

    symbol: str
    tables: NDArray[np.uint64]
    shape: tuple[int, int]
    owned: tuple[NDArray[np.generic], ...]

    @property
    def kernels(self) -> int:
        """Calls of the kernel in one call from Python."""
        return len(self.tables)


def sample_of(kernel: RepeatedKernel, layer: PackedLayer) -> Sample:
    """Return a call of `kernel` on a layer, once for each copy of it, with tiles of its own."""
    own = sum(array.nbytes for array in layer.arrays)
    copies = [layer.arrays]
    while own and len(copies) < MOST_COPIES and len(copies) * own < layer.between_bytes:
        copies.append(tuple(array.copy() for array in layer.arrays))
    aligned = [tuple(aligned_copy(array) for array in copy) for copy in copies]
    x, y = (_tile(features, kernel.width) for features in layer.shape)
    table = [[address_of(array) for array in (x, y, *arrays)] for arrays in aligned]
    owned = (x, y, *(array for arrays in aligned for array in arrays))
    return Sample(kernel.symbol, np.array(table, dtype=np.uint64), layer.shape, owned)


class KernelClock:
    """Native code of some kernels, and the time that it takes."""

    def __init__(self, kernels: Iterable[RepeatedKernel], target: CpuTarget) -> None:
        """Compile `kernels` for `target`, which this machine can run."""
        chosen = list(dict.fromkeys(kernels))
        image = emit_object(repeated_kernels(chosen, target), target)
        self._code: MachineCode = load_object(image, {kernel.symbol: (1, 3) for kernel in chosen})

    def sample(self, kernel: RepeatedKernel, layer: PackedLayer) -> Sample:
        """Return a call of `kernel` on `layer` with tiles of its own."""
        once = sample_of(kernel, layer)
        return once._replace(tables=np.tile(once.tables, (self._repeats(once), 1)))

    def seconds(self, sample: Sample) -> float:
        """Return the time of one kernel in one call of `sample`."""
        function = self._code.functions[sample.symbol]
        arguments = (address_of(sample.tables), len(sample.tables), *sample.shape)
        if sample.kernels <= FEW_KERNELS:
            function(*arguments)  # what other samples left in the caches would count
        start = time.perf_counter()
        function(*arguments)
        return (time.perf_counter() - start) / sample.kernels

    def fastest(self, samples: Mapping[K, Sample], seconds: float, least_rounds: int = 5) -> dict[K, float]:
        """Return the least time of each sample in microseconds, called in turn for `seconds` or `least_rounds`."""
        times: dict[K, list[float]] = {name: [] for name in samples}
        end, rounds = time.perf_counter() + seconds, 0
        while rounds < least_rounds or time.perf_counter() < end:
            for name, sample in samples.items():
                times[name].append(self.seconds(sample))
            rounds += 1
        return {name: min(values) * 1e6 for name, values in times.items()}

    def _repeats(self, sample: Sample) -> int:
        self.seconds(sample)
        once = self.seconds(sample) * sample.kernels
        return max(1, min(4096, round(SAMPLE_SECONDS / max(once, 1e-9))))


def _tile(features: int, width: int) -> NDArray[np.float32]:
    """Return a buffer of ones, as large as a tile's of columns or rows."""
    floats = (features + PADDING) * width + VECTOR_ROOM
    tile = aligned_bytes(4 * floats).view(np.float32)
    tile[:] = 1
    return tile

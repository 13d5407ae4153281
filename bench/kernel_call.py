"""Our kernel of a single layer, alone: feature-major tiles in and out, as the compiler chose it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dialect.ops.constants import constant_array
from ..dialect.ops.layers import LinearOp
from ..dialect.ops.tile import TileOp
from ..dialect.tensors import shape_of
from ..kernels.family import KernelFamily, LayerWeights, PackedArrays
from ..kernels.tile_widths import WIDTHS
from ..lowering.kernels.kernel_form import OUTPUT_PADDING, layer_weights
from ..lowering.kernels.table import ChosenKernel, kernel_at
from ..lowering.kernels.timed_kernels import RepeatedKernel, repeated_kernels
from ..lowering.llvm.call_tables import VECTOR_ROOM
from ..options import Options
from ..passes.analysis.weights import weight_of
from ..pipeline import build
from ..runtime.jit import MachineCode, emit_object, host_target, load_object
from ..runtime.memory import address_of, aligned_bytes, aligned_copy
from ..runtime.store.cache import default_folder
from ..sparse.csr import CscMatrix
from ..tuning.measure_kernels import Tuning
from ..verification.measuring import Call

Floats = NDArray[np.float32]


class Tiles(NamedTuple):
    """A feature-major batch cut into tiles [tiles, features, width]; `floats` has room behind each of them."""

    floats: Floats
    features: int
    width: int

    @staticmethod
    def of(features: int, batch: int, width: int) -> "Tiles":
        """Return zeros for `batch` columns."""
        room = (features + OUTPUT_PADDING) * width + VECTOR_ROOM
        shape = (-(-batch // width), -(-room // VECTOR_ROOM) * VECTOR_ROOM)
        floats = aligned_bytes(4 * shape[0] * shape[1]).view(np.float32).reshape(shape)
        floats[...] = 0
        return Tiles(floats, features, width)

    def columns(self) -> Floats:
        """Return the content of all tiles, [tiles, features, width], to read or write."""
        used = self.floats[:, : self.features * self.width]
        return used.reshape(len(used), self.features, self.width)

    def addresses(self) -> list[int]:
        """Return the address of each tile."""
        return [address_of(tile) for tile in self.floats]


class OurKernel:
    """The kernels that are chosen on this machine for the only layer of a model, and the layer as they read it."""

    def __init__(self, model: Path) -> None:
        """Choose kernels for the layer of `model`."""
        module = build(model, Options(tuning=Tuning.predicted(host_target(), default_folder())))
        (self._layer,) = [op for op in module.walk() if isinstance(op, LinearOp)]
        (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
        self._module = module
        # at further widths kernels do fewer columns than vectors hold
        self._widths = [width for width in tile.schedule.widths if width in WIDTHS]
        self.shape: tuple[int, int] = (shape_of(self._layer.weight)[0], shape_of(self._layer.weight)[1])
        self._packed: dict[ChosenKernel, PackedArrays] = {}

    @property
    def weight(self) -> CscMatrix:
        """The layer's weight, [inputs, outputs]."""
        weight = weight_of(self._layer.weight)
        assert weight is not None
        return weight if isinstance(weight, CscMatrix) else CscMatrix.from_dense(weight)

    def width_at(self, batch: int) -> int:
        """Return the batch columns of the tiles into which `batch` columns are cut."""
        return max([width for width in self._widths if width <= batch] or [self._widths[0]])

    def prepare(self, x: Floats) -> "KernelCall":
        """Return a call that multiplies x [inputs, columns]."""
        batch = x.shape[1]
        width = self.width_at(batch)
        kernel = RepeatedKernel(self.family_at(width), width)
        sources, sums = (Tiles.of(features, batch, width) for features in self.shape)
        padded = np.pad(x, ((0, 0), (0, len(sources.floats) * width - batch)))
        sources.columns()[...] = padded.reshape(self.shape[0], -1, width).swapaxes(0, 1)
        arrays = [aligned_copy(array) for array in self._arrays(width)]
        constants = [address_of(array) for array in arrays]
        tiles = zip(sources.addresses(), sums.addresses(), strict=True)
        table = np.array([[x_at, y_at, *constants] for x_at, y_at in tiles], dtype=np.uint64)
        return KernelCall(kernel, self.shape, table, sums, (sources, arrays))

    def family_at(self, width: int) -> str:
        """Return the kernel family for tiles of `width` columns."""
        assert self._layer.kernel is not None
        return self._layer.kernel.family_at(width)

    def bytes_of(self, family: KernelFamily) -> int:
        """Return the bytes of the layer as a family packs it."""
        return sum(array.nbytes for array in family.pack(self._weights(None)))

    def _arrays(self, width: int) -> Sequence[NDArray[np.generic]]:
        kernel = kernel_at(self._layer.kernel, width)
        if kernel not in self._packed:
            self._packed[kernel] = kernel.family.pack(self._weights(kernel.blocks))
        return self._packed[kernel]

    def _weights(self, blocks: int | None) -> LayerWeights:
        bias = np.zeros(self.shape[1], dtype=np.float32)
        found = constant_array(self._layer.bias) if self._layer.bias is not None else None
        return layer_weights(self._layer.weight, bias if found is None else found, blocks)


@dataclass(frozen=True)
class KernelCall:
    """A kernel and the addresses of what it reads and writes, a row a tile."""

    kernel: RepeatedKernel
    shape: tuple[int, int]
    table: NDArray[np.uint64]
    sums: Tiles
    owned: object

    def repeated(self, repeats: int) -> Call:
        """Return a call that does all tiles `repeats` times."""
        function = _code_of(self.kernel).functions[self.kernel.symbol]
        table = np.tile(self.table, (repeats, 1))
        return lambda: (function(address_of(table), len(table), *self.shape), self)

    def result(self, batch: int) -> Floats:
        """Return the outputs, [outputs, batch]."""
        return self.sums.columns().swapaxes(0, 1).reshape(self.shape[1], -1)[:, :batch]


@cache
def _code_of(kernel: RepeatedKernel) -> MachineCode:
    target = host_target()
    return load_object(emit_object(repeated_kernels([kernel], target), target), {kernel.symbol: (1, 3)})

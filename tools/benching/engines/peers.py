"""Libraries that multiply a sparse matrix, as engines for chains of linear layers.

Each gets its favourite layout, feature-major: rows are transposed at the two ends only, as ours are. A product is done
by the library, bias and activation by numpy or torch in place.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ....dialect.attributes.activations import activate
from ....verification.measuring import Call
from ..errors import PeerError
from .aligned import aligned, aligned_zeros
from .chain import ChainLayer
from .mkl import MklMatrix, load_mkl, load_openmp

Floats = NDArray[np.float32]
Tensor = Any
"""A tensor of torch, whose types are not there when it is not installed."""

Runner = Callable[[Floats], Floats]


class Peer(Protocol):
    """A library that runs a chain of layers on row-major batches of one size."""

    def check(self) -> None:
        """Raise `PeerError` where the library cannot be used."""
        ...

    def prepare(self, layers: Sequence[ChainLayer], batch: int, threads: int) -> Runner:
        """Return a function from x [batch, inputs] to y [batch, outputs]."""
        ...

    def product(self, weight: csr_array, x: Floats, threads: int) -> Call:
        """Return a call that multiplies `weight` [outputs, inputs] with feature-major x [inputs, batch]."""
        ...


class ScipyPeer:
    """scipy's CSR matrices; they have one thread, whatever is asked for, and are the same for every batch."""

    def check(self) -> None:
        """Do nothing: we need scipy ourselves."""

    def prepare(self, layers: Sequence[ChainLayer], batch: int, threads: int) -> Runner:
        del batch, threads

        def run(x: Floats) -> Floats:
            value = np.ascontiguousarray(x.T)
            for layer in layers:
                value = _finish(layer, np.asarray(layer.weight @ value))
            return np.ascontiguousarray(value.T)

        return run

    def product(self, weight: csr_array, x: Floats, threads: int) -> Call:
        del threads
        return lambda: weight @ x


@dataclass(frozen=True)
class MklPeer:
    """MKL's inspector-executor, with hints, on aligned buffers."""

    package: str = "mkl"

    def check(self) -> None:
        load_mkl(self.package)

    def prepare(self, layers: Sequence[ChainLayer], batch: int, threads: int) -> Runner:
        matrices = [MklMatrix(layer.weight, batch, threads) for layer in layers]
        buffers = [aligned_zeros(matrix.shape[0], batch) for matrix in matrices]

        def run(x: Floats) -> Floats:
            value: Floats = aligned(x.T)
            for layer, matrix, target in zip(layers, matrices, buffers, strict=True):
                matrix.multiply(value, target)
                value = _finish(layer, target)
            return np.ascontiguousarray(value.T)

        return run

    def product(self, weight: csr_array, x: Floats, threads: int) -> Call:
        matrix, source = MklMatrix(weight, x.shape[1], threads), aligned(x)
        target = aligned_zeros(matrix.shape[0], x.shape[1])

        def run() -> Floats:
            matrix.multiply(source, target)
            return target

        return run


@dataclass(frozen=True)
class TorchPeer:
    """torch's CSR tensors."""

    package: str = "torch"

    def check(self) -> None:
        self._torch()

    def prepare(self, layers: Sequence[ChainLayer], batch: int, threads: int) -> Runner:
        del batch
        torch = self._torch()
        weights = [self._csr(layer.weight) for layer in layers]
        biases = [torch.tensor(layer.bias) for layer in layers]

        def run(x: Floats) -> Floats:
            torch.set_num_threads(threads)
            value = torch.from_numpy(x).t().contiguous()
            for layer, weight, bias in zip(layers, weights, biases, strict=True):
                value = torch.mm(weight, value).add_(bias)
                value = value.relu_() if _is_relu(layer) else torch.from_numpy(_activated(layer, value.numpy()))
            return value.t().contiguous().numpy()

        return run

    def product(self, weight: csr_array, x: Floats, threads: int) -> Call:
        torch = self._torch()
        matrix, source = self._csr(weight), torch.from_numpy(x)

        def run() -> Floats:
            torch.set_num_threads(threads)
            return torch.mm(matrix, source).numpy()

        return run

    def _csr(self, weight: csr_array) -> Tensor:
        """Return a matrix as torch's sparse tensor; that torch calls these a beta is no news for a user of ours."""
        torch = self._torch()
        parts = (torch.tensor(array.astype(np.int32)) for array in (weight.indptr, weight.indices))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return torch.sparse_csr_tensor(*parts, torch.tensor(weight.data), weight.shape, check_invariants=False)

    def _torch(self) -> ModuleType:
        load_openmp()
        try:
            return import_module(self.package)
        except ModuleNotFoundError:
            raise PeerError(f"the package {self.package} is not installed, the extra bench has it") from None


def _finish(layer: ChainLayer, value: Floats) -> Floats:
    """Add the bias in place, and return what the activation makes of it."""
    value += layer.bias
    return np.maximum(value, 0, out=value) if _is_relu(layer) else _activated(layer, value)


def _is_relu(layer: ChainLayer) -> bool:
    return layer.activation is not None and layer.activation.kind == "relu"


def _activated(layer: ChainLayer, value: Floats) -> Floats:
    return value if layer.activation is None else activate(layer.activation, value).astype(np.float32, copy=False)


PEERS: Final[Mapping[str, Peer]] = MappingProxyType({"scipy": ScipyPeer(), "mkl": MklPeer(), "torch": TorchPeer()})

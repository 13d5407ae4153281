"""MatMulNBits: a linear layer whose weight is codes of four or eight bits with a scale for each group of inputs.

Where many codes are the zero of their group it becomes `pebble.linear` of a sparse weight, which holds the floats and
the attribute `few_bits`: kernels may read codes instead, and the node is written as it was where it is written again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ...dialect.attributes.few_bits import ROUNDED_INPUTS, FewBitsAttr
from ...dialect.ops.layers import LinearOp
from ...sparse.csr import CscMatrix
from ...sparse.densities import STORED_CODES, STORED_SPARSE
from .conversion import Conversion, Converter, NotCovered

OPERATOR: Final = "MatMulNBits"

SCALES, ZEROS, ORDER, BIAS = 2, 3, 4, 5
"""Inputs behind x and the codes; `ORDER` are groups of inputs that do not lie side by side."""


CODE_BITS: Final = 4
"""Bits of codes that kernels of all CPUs read."""


@dataclass(frozen=True)
class Codes:
    """The weight of a node: steps [outputs, inputs] are code - zero of each entry."""

    steps: NDArray[np.int16]
    scales: NDArray[np.float32]
    """[outputs, groups]."""
    zeros: NDArray[np.int64]
    """[outputs, groups], or empty where the zero is the middle code."""
    bits: int
    size: int

    @property
    def floats(self) -> NDArray[np.float32]:
        """The weight [inputs, outputs]."""
        outputs, inputs = self.steps.shape
        groups = self.scales.shape[1]
        padded = np.pad(self.steps, ((0, 0), (0, groups * self.size - inputs)))
        by_group = padded.reshape(outputs, groups, self.size) * self.scales[:, :, np.newaxis]
        return by_group.reshape(outputs, -1)[:, :inputs].T

    @property
    def matrix(self) -> CscMatrix:
        """The same without its zeros."""
        return CscMatrix.from_dense(self.floats)


def convert_matmul_nbits(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the layer of a MatMulNBits, sparse where enough of its codes are zeros.

    Raises:
        NotCovered: its weight is no constant, has groups of inputs in another order or scales of other floats, or it is
            dense and may stay.
    """
    if conversion.has_input(ORDER):
        raise NotCovered("expected groups of neighbouring inputs, got an order of inputs, g_idx")
    x, codes, accuracy = conversion.tensor(0), _codes(conversion), conversion.integer("accuracy_level", 0)
    if len(conversion.sizes(x)) < 2:
        raise NotCovered("expected an activation of rank 2 or more, got one without rows")
    bias = conversion.constant(BIAS)
    if bias is None and conversion.has_input(BIAS):
        raise NotCovered("expected a constant bias of float32, got another value")
    density = np.count_nonzero(codes.steps) / max(1, codes.steps.size)
    reads_codes = codes.bits == CODE_BITS and accuracy == ROUNDED_INPUTS
    is_dense = density > (STORED_CODES if reads_codes else STORED_SPARSE)
    if is_dense and conversion.scope.only_gaining and not (reads_codes and conversion.scope.takes_dense_codes):
        raise NotCovered(
            f"{100 * (1 - density):.0f} % of its quantized values are zeros; the runtime is as fast on so few"
        )
    name, variant = _name(conversion, 1), ",".join(_name(conversion, index) for index in (SCALES, ZEROS))
    if is_dense and not reads_codes:
        weight = conversion.emit_constant(blockwise_copy(codes.floats), name, "floats")
    else:
        attribute = FewBitsAttr(
            codes.bits,
            codes.size,
            accuracy,
            codes.scales.reshape(-1),
            codes.zeros.reshape(-1).astype(np.int16),
        )
        if is_dense:
            weight = conversion.emit_codes(lambda: blockwise_copy(codes.floats), name, variant, attribute)
        else:
            weight = conversion.emit_sparse(lambda: codes.matrix, name, variant, attribute)
    added = None if bias is None else conversion.emit_constant(bias.reshape(-1), _name(conversion, BIAS))
    return [conversion.emit(LinearOp(x, weight, added)).result]


TRANSPOSED: Final = 64
"""Rows and columns that are transposed at once: their lines stay in the cache."""


def blockwise_copy(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a copy of a transposed matrix whose rows lie one behind the other, block by block."""
    copied = np.empty(matrix.shape, matrix.dtype)
    for row, column in product(*(range(0, size, TRANSPOSED) for size in matrix.shape)):
        own = slice(row, row + TRANSPOSED), slice(column, column + TRANSPOSED)
        copied[own] = matrix[own]
    return copied


def _codes(conversion: Conversion) -> Codes:
    """Return the weight of the node.

    Raises:
        NotCovered: it is none of ours.
    """
    inputs, outputs, bits, size = (conversion.integer(name, default) for name, default in SIZES.items())
    if bits not in (4, 8):
        raise NotCovered(f"expected bits of 4 or 8, got {bits}")
    if inputs < 1 or outputs < 1 or size < 16 or size & (size - 1):
        raise NotCovered(f"expected groups of 16 inputs or a larger power of two, got {size} of {inputs}")
    groups = -(-inputs // size)
    packed = _array(conversion, 1, np.dtype(np.uint8), "a constant weight of packed values")
    scales = _array(conversion, SCALES, np.dtype(np.float32), "constant scales of float32")
    if packed.size != outputs * groups * size * bits // 8:
        raise NotCovered(f"expected {outputs * groups * size * bits // 8} bytes of quantized values, got {packed.size}")
    if scales.size != outputs * groups:
        raise NotCovered(f"expected {outputs * groups} scales, got {scales.size}")
    if not np.all(np.isfinite(scales) & ((scales == 0) | (np.abs(scales) >= np.finfo(np.float32).tiny))):
        raise NotCovered("expected scales that are normal numbers, got others")
    codes = _unpacked(packed.reshape(outputs, -1), bits)[:, :inputs].astype(np.int16)
    zeros, middle = _zeros(conversion, (outputs, groups), bits), 1 << (bits - 1)
    if zeros.size:
        codes -= zeros.repeat(size, axis=1)[:, :inputs].astype(np.int16)
    else:
        codes -= middle
    return Codes(codes, scales.reshape(outputs, groups), zeros, bits, size)


SIZES: Final = {"K": 0, "N": 0, "bits": 4, "block_size": 0}
"""Attribute -> its default: inputs, outputs, bits, inputs of a group."""


def _zeros(conversion: Conversion, shape: tuple[int, int], bits: int) -> NDArray[np.int64]:
    """Return the zero of each group, or nothing where the node has no zeros of its own."""
    if not conversion.has_input(ZEROS):
        return np.zeros(0, np.int64)
    outputs, groups = shape
    if (floats := conversion.constant(ZEROS)) is not None:
        return _whole_zeros(floats, shape, bits)
    packed = _array(conversion, ZEROS, np.dtype(np.uint8), "constant packed zeros")
    row_bytes = -(-groups * bits // 8)
    if packed.size != outputs * row_bytes:
        raise NotCovered(f"expected {outputs * row_bytes} bytes of zeros, got {packed.size}")
    return _unpacked(packed.reshape(outputs, row_bytes), bits)[:, :groups].astype(np.int64)


def _whole_zeros(zeros: NDArray[np.float32], shape: tuple[int, int], bits: int) -> NDArray[np.int64]:
    """Return zeros of float32 as the codes that they are.

    Raises:
        NotCovered: they are no codes.
    """
    if zeros.size != math.prod(shape):
        raise NotCovered(f"expected {math.prod(shape)} zeros of float32, got {zeros.size}")
    with np.errstate(invalid="ignore"):
        whole = zeros.reshape(shape).astype(np.int64)
    if not np.array_equal(whole, zeros.reshape(shape)) or whole.min() < 0 or whole.max() >= 1 << bits:
        raise NotCovered(f"expected zeros that are codes of {bits} bits, got other numbers")
    return whole


def _unpacked(rows: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Return the codes of rows of bytes; of two in a byte the first one is the lower half."""
    if bits == 8:
        return rows
    return np.stack((rows & np.uint8(15), rows >> np.uint8(4)), axis=-1).reshape(len(rows), -1)


def _array(conversion: Conversion, index: int, dtype: "np.dtype[Any]", what: str) -> NDArray[Any]:
    array = conversion.any_constant(index)
    if array is None or array.dtype != dtype:
        raise NotCovered(f"expected {what}, got {'a computed value' if array is None else array.dtype.name}")
    return array


def _name(conversion: Conversion, index: int) -> str:
    value = conversion.input(index)
    return "" if value is None else value.name or ""


FEW_BITS_CONVERTERS: Final[dict[tuple[str, str], Converter]] = {("com.microsoft", OPERATOR): convert_matmul_nbits}
"""(domain, operator) -> converter."""

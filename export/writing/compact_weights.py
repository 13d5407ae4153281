"""Sparse weights in a few bytes a connection, and the standard operators that make the dense matrix of them again.

A weight is stored as its values and the gaps between their positions in the matrix, read row by row:

```
[[0, 5, 0], [0, 0, 7]]  ->  values [5, 7], gaps [1, 4]         positions 1 and 1 + 4
```

Gaps take one byte each, or two where that is shorter; a gap that is too wide is bridged by values of 0. What is decoded
depends on constants alone, so a runtime that folds constants holds the dense matrix after loading.
"""

from typing import Final, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from ...dialect.tensors import Shape
from ...sparse.csr import CscMatrix
from .node_builder import NodeBuilder

GAP_TYPES: Final = (np.dtype(np.uint8), np.dtype(np.uint16))
SINCE: Final = 11
"""The opset from which there are CumSum and ScatterElements."""


class CompactWeight(NamedTuple):
    """The entries of a matrix of `shape` that are not zero, and maybe some that are, by ascending positions."""

    shape: Shape
    values: NDArray[np.float32 | np.int8]
    """Bytes where they all are integers of eight bits, as those of quantized layers are."""
    gaps: NDArray[np.integer]
    """Distances from one position to the next, the first from 0."""

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.gaps.nbytes


def compact(weight: CscMatrix, *, transposed: bool) -> CompactWeight:
    """Return the weight [inputs, outputs], or its transpose, in whichever width of gaps takes fewest bytes."""
    stays = weight.values != 0
    rows, columns, values = weight.rows[stays], weight.columns[stays], weight.values[stays]
    inputs, outputs = weight.shape
    if transposed:
        shape, positions = (outputs, inputs), columns * inputs + rows
    else:
        shape, positions = (inputs, outputs), rows * outputs + columns
    order = np.argsort(positions, kind="stable")
    return compact_entries(shape, positions[order], values[order])


def compact_entries(shape: Shape, positions: NDArray[np.int64], values: NDArray[np.float32]) -> CompactWeight:
    """Return the matrix of `shape` with `values` at `positions`, ascending ones of the matrix read row by row."""
    gaps, narrow = np.diff(positions, prepend=0), _narrow(values)
    return min((_with_gaps(shape, narrow, gaps, kind) for kind in GAP_TYPES), key=lambda candidate: candidate.nbytes)


def _narrow(values: NDArray[np.float32]) -> NDArray[np.float32 | np.int8]:
    """Return values as bytes where these are the same."""
    if not np.all((values >= -128) & (values <= 127)):
        return values
    narrow = values.astype(np.int8)
    return narrow if np.array_equal(narrow, values) else values


def _with_gaps(
    shape: Shape,
    values: NDArray[np.float32 | np.int8],
    gaps: NDArray[np.int64],
    kind: np.dtype[np.unsignedinteger],
) -> CompactWeight:
    """Return the weight with gaps of an integer type, those above its range bridged."""
    widest = int(np.iinfo(kind).max)
    bridges = np.maximum(gaps - 1, 0) // widest
    positions = np.cumsum(bridges + 1) - 1
    # one entry of 0 where there is none, for runtimes that do not run operators on nothing
    count = int(positions[-1]) + 1 if len(positions) else 1
    all_values, all_gaps = np.zeros(count, values.dtype), np.full(count, widest if len(positions) else 0, kind)
    all_values[positions] = values
    all_gaps[positions] = gaps - bridges * widest
    return CompactWeight(shape, all_values, all_gaps)


def compact_edges(graph: CscMatrix) -> CompactWeight:
    """Return all entries of a graph [sources, targets], target by target, even those of 0: none is added for a gap."""
    sources, targets = graph.shape
    gaps = np.diff(graph.columns * sources + graph.rows, prepend=0)
    widest = int(gaps.max(initial=0))
    kind = next((kind for kind in GAP_TYPES if widest <= np.iinfo(kind).max), np.dtype(np.int64))
    narrow = np.dtype(np.int32) if kind == np.int64 and widest <= np.iinfo(np.int32).max else kind
    return CompactWeight((targets, sources), graph.values, gaps.astype(narrow))


def emit_decoding(shape: Shape, values: ir.Value, gaps: ir.Value, builder: NodeBuilder) -> ir.Value:
    """Add the nodes that make the dense matrix of `shape`, of floats or bytes, and return it."""
    zero = ir.Tensor(np.zeros(1, np.float32))
    empty = builder.node("ConstantOfShape", builder.integers([shape[0] * shape[1]]), value=zero)
    wide = builder.node("Cast", gaps, to=int(ir.DataType.INT64))
    positions = builder.node("CumSum", wide, builder.initializers.literal(np.array(0, np.int64)))
    floats = builder.node("Cast", values, to=int(ir.DataType.FLOAT)) if values.dtype == ir.DataType.INT8 else values
    filled = builder.node("ScatterElements", empty, positions, floats, axis=0)
    return builder.node("Reshape", filled, builder.integers(shape))

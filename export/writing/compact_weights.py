"""Sparse weights in a few bytes a connection, and the standard operators that make the dense matrix of them again.

A weight is stored as its values and the gaps between their places in the matrix, read row by row:

```
[[0, 5, 0], [0, 0, 7]]  ->  values [5, 7], gaps [1, 4]         places 1 and 1 + 4
```

Gaps take one byte each, or two where that is shorter; a gap that is too wide is bridged by values of 0. What is decoded
depends on constants alone, so a runtime that folds constants holds the dense matrix after loading.
"""

from typing import Final, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from redpebble.export.writing.node_builder import Draft
from redpebble.sparse.csr import CscMatrix

GAP_TYPES: Final = (np.dtype(np.uint8), np.dtype(np.uint16))
SINCE: Final = 11
"""The opset from which there are CumSum and ScatterElements."""


class CompactWeight(NamedTuple):
    """The entries of a matrix of `shape` that are not zero, and maybe some that are, in the order of their places."""

    shape: tuple[int, int]
    values: NDArray[np.float32]
    gaps: NDArray[np.uint8] | NDArray[np.uint16]
    """From one place to the next, the first from 0."""

    @property
    def nbytes(self) -> int:
        """Bytes of values and gaps."""
        return self.values.nbytes + self.gaps.nbytes


def compact(weight: CscMatrix, *, transposed: bool) -> CompactWeight:
    """Return the weight [inputs, outputs], or its transpose, in whichever width of gaps takes fewest bytes."""
    stays = weight.values != 0
    rows, columns, values = weight.rows[stays], weight.columns[stays], weight.values[stays]
    inputs, outputs = weight.shape
    if transposed:
        shape, places = (outputs, inputs), columns * inputs + rows
    else:
        shape, places = (inputs, outputs), rows * outputs + columns
    order = np.argsort(places, kind="stable")
    return compact_entries(shape, places[order], values[order])


def compact_entries(shape: tuple[int, int], places: NDArray[np.int64], values: NDArray[np.float32]) -> CompactWeight:
    """Return the matrix of `shape` with `values` at `places`, ascending ones of the matrix read row by row."""
    gaps = np.diff(places, prepend=0)
    return min((_with_gaps(shape, values, gaps, kind) for kind in GAP_TYPES), key=lambda candidate: candidate.nbytes)


def _with_gaps(
    shape: tuple[int, int], values: NDArray[np.float32], gaps: NDArray[np.int64], kind: np.dtype[np.unsignedinteger]
) -> CompactWeight:
    """Return the weight with gaps of an integer type, those above its range bridged."""
    widest = int(np.iinfo(kind).max)
    bridges = np.maximum(gaps - 1, 0) // widest
    places = np.cumsum(bridges + 1) - 1
    # one entry of 0 where there is none, for runtimes that do not run operators on nothing
    count = int(places[-1]) + 1 if len(places) else 1
    all_values, all_gaps = np.zeros(count, np.float32), np.full(count, widest if len(places) else 0, kind)
    all_values[places] = values
    all_gaps[places] = gaps - bridges * widest
    return CompactWeight(shape, all_values, all_gaps)


def emit_decoding(shape: tuple[int, int], values: ir.Value, gaps: ir.Value, draft: Draft) -> ir.Value:
    """Add the nodes that make the dense matrix of `shape`, and return it."""
    zero = ir.tensor(np.zeros(1, np.float32))
    empty = draft.node("ConstantOfShape", draft.integers([shape[0] * shape[1]]), value=zero)
    wide = draft.node("Cast", gaps, to=int(ir.DataType.INT64))
    places = draft.node("CumSum", wide, draft.initializers.literal(np.array(0, np.int64)))
    filled = draft.node("ScatterElements", empty, places, values, axis=0)
    return draft.node("Reshape", filled, draft.integers(shape))

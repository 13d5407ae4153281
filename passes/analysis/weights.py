"""Weights of linear layers, dense or sparse alike: which connections they hold, and the arithmetic of passes on them.

A weight is [inputs, outputs]: row k holds the outgoing connections of input k, column n the incoming ones of output n.
"""

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...sparse.csr import CscMatrix

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

Weight = Floats | CscMatrix
"""A weight as its constant stores it."""


def weight_of(value: SSAValue) -> Weight | None:
    """Return the weight behind a value, or None when it is no constant matrix."""
    match value.owner:
        case ConstantOp() as op if op.array.ndim == 2:
            return op.array
        case SparseConstantOp() as op:
            return op.weight
        case _:
            return None


def constant_for(weight: Weight) -> ConstantOp | SparseConstantOp:
    """Return the constant that stores `weight` as it is."""
    return SparseConstantOp(weight) if isinstance(weight, CscMatrix) else ConstantOp(weight)


def connection_count(weight: Weight) -> int:
    """Return the number of connections: stored entries, or those of a dense weight that are not zero."""
    return len(weight.values) if isinstance(weight, CscMatrix) else int(np.count_nonzero(weight))


def density(weight: Weight) -> float:
    """Return the share of connections among all that the shape allows; 0 for an empty weight."""
    size = weight.shape[0] * weight.shape[1]
    return connection_count(weight) / size if size else 0.0


def has_outgoing(weight: Weight) -> Mask:
    """Return for each input whether a connection that is not zero leaves it, [inputs]."""
    if isinstance(weight, CscMatrix):
        return np.bincount(weight.rows[weight.values != 0], minlength=weight.shape[0]) > 0
    return np.asarray(np.any(weight != 0, axis=1))


def has_incoming(weight: Weight) -> Mask:
    """Return for each output whether a connection that is not zero enters it, [outputs]."""
    if isinstance(weight, CscMatrix):
        return np.bincount(weight.columns[weight.values != 0], minlength=weight.shape[1]) > 0
    return np.asarray(np.any(weight != 0, axis=0))


def finite_inputs(weight: Weight) -> Mask:
    """Return for each input whether all its connections are finite, [inputs]."""
    if isinstance(weight, CscMatrix):
        return np.bincount(weight.rows[~np.isfinite(weight.values)], minlength=weight.shape[0]) == 0
    return np.asarray(np.all(np.isfinite(weight), axis=1))


def finite_outputs(weight: Weight) -> Mask:
    """Return for each output whether all its connections are finite, [outputs]."""
    if isinstance(weight, CscMatrix):
        return np.bincount(weight.columns[~np.isfinite(weight.values)], minlength=weight.shape[1]) == 0
    return np.asarray(np.all(np.isfinite(weight), axis=0))


def inputs_at(weight: Weight, which: Indices) -> Weight:
    """Return the weight whose row i is row `which[i]`; each row at most once."""
    if not isinstance(weight, CscMatrix):
        return np.ascontiguousarray(weight[which])
    position = np.full(weight.shape[0], -1, dtype=np.int64)
    position[which] = np.arange(len(which))
    rows: Indices = position[weight.rows]
    stays = np.flatnonzero(rows >= 0)
    # a column's entries stay together, in ascending rows
    entries = stays if np.all(np.diff(which) > 0) else stays[np.lexsort((rows[stays], weight.columns[stays]))]
    pointers = _pointers(weight.columns[entries], weight.shape[1])
    return CscMatrix((len(which), weight.shape[1]), pointers, rows[entries], weight.values[entries])


def outputs_at(weight: Weight, which: Indices) -> Weight:
    """Return the weight whose column i is column `which[i]`; each column at most once."""
    if not isinstance(weight, CscMatrix):
        return np.ascontiguousarray(weight[:, which])
    counts = np.diff(weight.pointers)[which]
    pointers = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    entries = np.repeat(weight.pointers[which] - pointers[:-1], counts) + np.arange(pointers[-1], dtype=np.int64)
    return CscMatrix((weight.shape[0], len(which)), pointers, weight.rows[entries], weight.values[entries])


def with_inputs_added(weight: Weight, position: Indices, count: int) -> Weight:
    """Return a weight of `count` rows, in which row k is added to row `position[k]`; the sums are rounded once."""
    if not isinstance(weight, CscMatrix):
        merged = np.zeros((count, weight.shape[1]), dtype=np.float32)
        by_target = np.argsort(position, kind="stable")
        targets, first = np.unique(position[by_target], return_index=True)
        with np.errstate(over="ignore"):  # callers look for sums that f32 cannot hold
            if len(targets):
                merged[targets] = np.add.reduceat(weight[by_target].astype(np.float64), first, axis=0)
        return merged
    keys = weight.columns * count + position[weight.rows]
    unique, entry = np.unique(keys, return_inverse=True)
    values = np.bincount(entry, weights=weight.values.astype(np.float64), minlength=len(unique))
    columns, rows = (np.divmod(unique, count)) if count else (unique, unique)
    merged = CscMatrix((count, weight.shape[1]), _pointers(columns, weight.shape[1]), rows, np.zeros(0, np.float32))
    return _with_values(merged, values.astype(np.float32))


def _pointers(columns: Indices, output_count: int) -> Indices:
    """Return the pointers of a matrix whose entries stand in `columns`, ascending."""
    pointers = np.zeros(output_count + 1, dtype=np.int64)
    np.cumsum(np.bincount(columns, minlength=output_count), out=pointers[1:])
    return pointers


def scaled_inputs(weight: Weight, factors: Doubles) -> Weight:
    """Return the weight with row k multiplied by `factors[k]`."""
    if isinstance(weight, CscMatrix):
        return _with_values(weight, (weight.values * factors[weight.rows]).astype(np.float32))
    return (weight * factors[:, None]).astype(np.float32)


def scaled_outputs(weight: Weight, factors: Doubles) -> Weight:
    """Return the weight with column n multiplied by `factors[n]`."""
    if isinstance(weight, CscMatrix):
        return _with_values(weight, (weight.values * factors[weight.columns]).astype(np.float32))
    return (weight * factors).astype(np.float32)


def _with_values(weight: CscMatrix, values: Floats) -> CscMatrix:
    """Return the weight with other values; those that are 0 are no connections any more."""
    stays = values != 0
    pointers = _pointers(weight.columns[stays], weight.shape[1])
    return CscMatrix(weight.shape, pointers, weight.rows[stays], values[stays])


def product_with(row: Doubles, weight: Weight) -> Doubles:
    """Return `row` [inputs] times the weight, summed in double precision; entries of `row` that are 0 take no part."""
    if isinstance(weight, CscMatrix):
        entries = row[weight.rows] != 0
        terms = row[weight.rows[entries]] * weight.values[entries]
        return np.bincount(weight.columns[entries], weights=terms, minlength=weight.shape[1]).astype(np.float64)
    taken = np.flatnonzero(row)
    return row[taken] @ weight[taken].astype(np.float64)


def entries_of(weight: Weight) -> Floats:
    """Return the stored entries."""
    return weight.values if isinstance(weight, CscMatrix) else weight

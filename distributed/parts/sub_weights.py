"""The parts of weights that one rank holds."""

import numpy as np

from ...passes.analysis.weights import Weight
from ...sparse.csr import CscMatrix
from .steps import Indices


def sub_weight(weight: Weight, inputs: Indices, outputs: Indices) -> Weight:
    """Return a weight's rows `inputs` and columns `outputs`, both in any order."""
    if not isinstance(weight, CscMatrix):
        return np.ascontiguousarray(weight[np.ix_(inputs, outputs)])
    position = np.full(weight.shape[0], -1, dtype=np.int64)
    position[inputs] = np.arange(len(inputs))
    counts = np.diff(weight.pointers)[outputs]
    ends = np.cumsum(counts)
    numbers: Indices = np.arange(int(counts.sum()))
    entries: Indices = np.repeat(weight.pointers[:-1][outputs] - (ends - counts), counts) + numbers
    columns, rows = np.repeat(np.arange(len(outputs)), counts), position[weight.rows[entries]]
    stays = rows >= 0
    columns, rows, entries = columns[stays], rows[stays], entries[stays]
    order = np.lexsort((rows, columns))
    pointers = np.zeros(len(outputs) + 1, dtype=np.int64)
    np.cumsum(np.bincount(columns, minlength=len(outputs)), out=pointers[1:])
    return CscMatrix((len(inputs), len(outputs)), pointers, rows[order], weight.values[entries[order]])


def uses(weight: Weight, inputs: Indices, outputs: Indices) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each of `outputs` whether it is connected with one of `inputs`; all are where it is stored dense."""
    if not isinstance(weight, CscMatrix):
        return np.full(len(outputs), bool(len(inputs)))
    wanted = np.zeros(weight.shape[0], dtype=np.bool_)
    wanted[inputs] = True
    hits = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(wanted[weight.rows])))
    return hits[weight.pointers[1:]][outputs] > hits[weight.pointers[:-1]][outputs]


def permutation(rows: Indices, count: int) -> CscMatrix:
    """Return the matrix of ones that puts feature i into column `rows[i]` of `count`."""
    order = np.argsort(rows)
    pointers = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=count), out=pointers[1:])
    return CscMatrix((len(rows), count), pointers, order, np.ones(len(rows), dtype=np.float32))


def nothing(outputs: int) -> CscMatrix:
    """Return the weight of `outputs` neurons that are connected with nothing."""
    none = np.zeros(0, dtype=np.int64)
    return CscMatrix((1, outputs), np.zeros(outputs + 1, dtype=np.int64), none, none.astype(np.float32))

"""Sums over the inputs of a layer that least squares need, batch by batch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..layers import PrunableLayer
from .traces import Trace

Array = NDArray[np.float32]

ROWS: Final = 1024
"""Rows of a product, at least: of a few of them it takes twice as long, and as many sums of all entries."""


@dataclass(frozen=True)
class LayerInputs:
    """Mean products of the inputs X [rows, inputs] that a layer has now, and of the dense model's Y."""

    hessian: Array
    """X^T X / rows."""
    crossed: Array | None
    """X^T Y / rows; None where X is Y."""
    rows: int


def layer_inputs(layer: PrunableLayer, trace: Trace, dense: Trace | None) -> LayerInputs:
    """Return the sums of a layer of the next segment; `dense` is the run of the dense model, None where it is the same.

    States of a recurrence, which are not seen, are taken to be equally large and independent: weights go by magnitude.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    if layer.is_of_states:
        return LayerInputs(np.eye(layer.inputs, dtype=np.float32), None, layer.inputs)
    hessian, count = _mean((x, x) for x in trace.rows(layer))
    if not np.isfinite(hessian).all():
        raise ValueError(f"layer {layer.name}: expected finite values from the data, got NaN or infinity")
    if dense is None:
        return LayerInputs(hessian, None, count)
    return LayerInputs(hessian, _mean(zip(trace.rows(layer), dense.rows(layer), strict=True))[0], count)


def _mean(pairs: Iterable[tuple[Array, Array]]) -> tuple[Array, int]:
    total, count = np.zeros((0, 0), dtype=np.float32), 0
    with np.errstate(over="ignore", invalid="ignore"):
        for left, right in _gathered(pairs):
            product = left.T @ right
            total = product if count == 0 else np.add(total, product, out=total)
            count += len(left)
    total /= np.float32(max(1, count))
    return total, count


def _gathered(pairs: Iterable[tuple[Array, Array]]) -> Iterator[tuple[Array, Array]]:
    """Yield the same rows, more of them at once."""
    waiting, count = list[tuple[Array, Array]](), 0
    for pair in pairs:
        waiting.append(pair)
        count += len(pair[0])
        if count >= ROWS:
            yield _joined(waiting)
            waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(pairs: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    left = np.concatenate([one for one, _ in pairs])
    # numpy takes half the time for the product of an array with itself
    is_same = all(one is other for one, other in pairs)
    return left, left if is_same else np.concatenate([other for _, other in pairs])

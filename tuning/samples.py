"""Samples of the inputs of a model: they show the ranges of values, and what results change by."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp, TensorType

from ..dialect.semantics.interpreter import Foreign, Observed, argument_names, main_of, observe
from ..dialect.tensors import DYNAMIC, Shape, compatible, shape_of

Array = NDArray[Any]
Samples = Mapping[str, Array]
"""An array [samples, ...] for each input."""


def batches_of(module: ModuleOp, samples: Samples, most: int | None = None) -> list[Samples]:
    """Return samples as the inputs of a module take them: at once, or cut where its batches have a size.

    Of more than `most` about as many are taken, evenly spread.

    Raises:
        ValueError: they do not fit the inputs, there are none, or some are no numbers.
    """
    function = main_of(module)
    names = argument_names(function, list(samples))
    if sorted(names) != sorted(samples):
        held = ", ".join(samples) or "none"
        raise ValueError(f"expected arrays for {', '.join(names)} in the data, got {held}")
    inputs = zip(names, function.args, strict=True)
    shapes = {name: shape_of(value) for name, value in inputs if isinstance(value.type, TensorType)}
    stated = {shape[0] for shape in shapes.values() if shape and shape[0] != DYNAMIC}
    counts = {len(array) if array.ndim else 0 for array in samples.values()}
    count = counts.pop() if len(counts) == 1 else 0
    size = max(stated, default=DYNAMIC)
    is_cut = len(stated) == 1 and count > size > 0 and count % size == 0
    for name, shape in shapes.items():
        _check(name, samples[name], (DYNAMIC, *shape[1:]) if is_cut else shape, shape)
    step = -(-count // most) if most and count else 1
    if not is_cut:
        return [{name: array[::step] if size == DYNAMIC else array for name, array in samples.items()}]
    starts = range(0, count, size * step)
    return [{name: array[start : start + size] for name, array in samples.items()} for start in starts]


def _check(name: str, array: Array, accepted: Shape, stated: Shape) -> None:
    if not compatible(array.shape, accepted):
        sizes = ", ".join("any" if size == DYNAMIC else str(size) for size in stated)
        raise ValueError(f"input {name!r} of the data: expected shape ({sizes}), got {array.shape}")
    if not array.size:
        raise ValueError("expected some hundred samples in the data, got none")
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        what = "NaN" if np.isnan(array).any() else "infinity"
        raise ValueError(f"input {name!r} of the data: expected finite numbers, got {what}")


def observe_batches(module: ModuleOp, batches: Sequence[Samples], foreign: Foreign | None) -> Observed:
    """Return the results of a module on batches of samples, joined.

    Raises:
        InterpretationError: it holds an op of unknown meaning.
    """
    first, *others = (observe(module, batch, foreign) for batch in batches)
    if not others:
        return first
    results = [_joined(parts) for parts in zip(first.results, *(one.results for one in others), strict=True)]
    values = {value: _joined([one.values[value] for one in (first, *others)]) for value in first.values}
    return Observed(results, values)


def _joined(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts) if parts[0].ndim else parts[0]

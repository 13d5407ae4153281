"""The initializers of a model that are trained, and the places of their values in native code.

A value is known by a number that stands in its place while the model goes through all passes and into packed weights:
what has the number there is the value, whatever passes did with its place. What they computed from it instead, as
where a scale is multiplied into a weight, is no such number, and is not trained. Numbers are met twice, in two orders,
so that no constant of the model is taken for one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ..dialect.ops.constants import SparseConstantOp
from ..frontend.errors import UnsupportedModelError
from ..passes.training.differentiate import Constant

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

MOST_VALUES: Final = 1 << 24
"""Values that are trained, at most: a float32 counts no further."""


class NumberedModel(NamedTuple):
    """A model whose values to be trained are numbers from 1 on, in one order or another."""

    model: onnx_ir.Model
    starts: Mapping[str, int]
    """The number before the first one of each initializer, in the first order."""
    total: int
    turn: int
    """Number that is added to each one; the first one follows the last."""


@dataclass(frozen=True)
class Parameter:
    """An initializer that is trained: the places of its values in its array, and theirs among all that are trained."""

    name: str
    places: Indices
    values: Indices


def candidates_of(model: onnx_ir.Model) -> list[str]:
    """Return the initializers that may be trained: matrices and vectors of float32."""
    return [
        name
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
        and value.const_value.dtype == onnx_ir.DataType.FLOAT
        and len(value.const_value.shape) in (1, 2)
        and value.const_value.size > 1
    ]


def array_of(model: onnx_ir.Model, name: str) -> Floats:
    """Return the values of an initializer."""
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return tensor.numpy()


def places_of(array: Floats) -> Indices:
    """Return the places of the values to be trained: connections of a matrix, all of a vector."""
    return np.flatnonzero(array) if array.ndim == 2 else np.arange(array.size)


def numbered(model: onnx_ir.Model, names: Sequence[str], *, turned: bool) -> NumberedModel:
    """Return a model whose initializers hold numbers; `turned` gives each value the number behind its own.

    Raises:
        UnsupportedModelError: there are more values than numbers.
    """
    arrays = {name: array_of(model, name) for name in names}
    places = {name: places_of(array) for name, array in arrays.items()}
    count = sum(map(len, places.values()))
    if count > MOST_VALUES:
        raise UnsupportedModelError(f"{count} values to be trained, accepted are up to {MOST_VALUES}")
    result, starts, start = model.clone(), dict[str, int](), 0
    for name, array in arrays.items():
        own = np.arange(start, start + len(places[name]))
        replaced = np.zeros(array.size, np.float32)
        replaced[places[name]] = (own + turned) % max(1, count) + 1
        result.graph.initializers[name].const_value = onnx_ir.tensor(replaced.reshape(array.shape), name=name)
        starts[name] = start
        start += len(own)
    return NumberedModel(result, starts, count, int(turned))


def parameter_of(constant: Constant, source: NumberedModel, arrays: Mapping[str, Floats]) -> Parameter | None:
    """Return the initializer whose values are those of a constant, each once; None where there is none.

    Its places are in the order of the constant's gradient: connections output by output.
    """
    stored = constant.weight.values if isinstance(constant, SparseConstantOp) else constant.array.T.ravel()
    numbers = stored.astype(np.int64)
    if not len(numbers) or not np.array_equal(numbers, stored):
        return None
    if not 1 <= numbers.min() <= numbers.max() <= source.total:
        return None
    values = (numbers - 1 - source.turn) % source.total
    for name, start in source.starts.items():
        places = places_of(arrays[name])
        if start == values.min() and np.array_equal(np.sort(values), np.arange(start, start + len(places))):
            return Parameter(name, places[values - start], values)
    return None

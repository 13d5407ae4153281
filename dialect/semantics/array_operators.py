"""Operators of ONNX on numpy arrays: those that networks compute positions, masks and rows of tables with.

They come before the first layer, on integers and truth values. Each function gets the arrays of its inputs, None for
one that is left out, and the attributes of its node.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..symbolic_sizes import Size

Array = NDArray[Any]
Attributes = Mapping[str, Any]
"""Integers, floats, texts, and lists of integers by name; json holds them as they are."""

Operator = Callable[..., Array | list[Array]]
"""(attributes, arrays...) -> the only result, or all."""


def _axes(attributes: Attributes, given: Array | None) -> tuple[int, ...] | None:
    """Return axes from an input, or from the attribute of older opsets; None for all."""
    axes = attributes.get("axes") if given is None else given.reshape(-1).tolist()
    return None if axes is None else tuple(int(axis) for axis in axes)


def _shape(attributes: Attributes, x: Array) -> Array:
    return np.array(x.shape[attributes.get("start", 0) : attributes.get("end", x.ndim)], dtype=np.int64)


def _sizes(attributes: Attributes, *arrays: Array) -> Array:
    """Return a shape: `sizes` are fractions times named sizes to their powers, `axes` an array and an axis by name."""
    axes: Mapping[str, tuple[int, int]] = attributes["axes"]
    named = {name: arrays[number].shape[axis] for name, (number, axis) in axes.items()}
    shape = [
        Size(Fraction(numerator, denominator), tuple(sorted(powers.items()))).evaluate(named)
        for numerator, denominator, powers in attributes["sizes"]
    ]
    return np.array(shape[attributes.get("start", 0) : attributes.get("end", len(shape))], dtype=np.int64)


def _gather(attributes: Attributes, x: Array, indices: Array) -> Array:
    # numpy's own wrap of negative indices is ONNX's; others are its error
    return x.take(indices, attributes.get("axis", 0))


def _gather_elements(attributes: Attributes, x: Array, indices: Array) -> Array:
    axis = attributes.get("axis", 0) % x.ndim
    # indices may be fewer than entries along the other axes
    part = x[tuple(slice(None) if other == axis else slice(size) for other, size in enumerate(indices.shape))]
    return np.take_along_axis(part, indices, axis=axis)


def _gather_nd(attributes: Attributes, x: Array, indices: Array) -> Array:
    batch = attributes.get("batch_dims", 0)
    places = np.moveaxis(indices, -1, 0)
    rest = places.ndim - 1 - batch
    own: list[Array] = []
    for axis, size in enumerate(x.shape[:batch]):
        samples: NDArray[np.int64] = np.arange(size, dtype=np.int64)
        own.append(samples.reshape((-1,) + (1,) * (batch - axis - 1 + rest)))
    return x[(*own, *places)]


def _scatter_nd(attributes: Attributes, x: Array, indices: Array, updates: Array) -> Array:
    if attributes.get("reduction", "none") != "none":
        raise ValueError("expected reduction=none, got another")
    result = x.copy()
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return result


def _unsqueeze(attributes: Attributes, x: Array, given: Array | None = None) -> Array:
    return np.expand_dims(x, _axes(attributes, given) or ())


def _squeeze(attributes: Attributes, x: Array, given: Array | None = None) -> Array:
    return np.squeeze(x, axis=_axes(attributes, given))


def _cast(attributes: Attributes, x: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return x.astype(attributes["to"])


def _concat(attributes: Attributes, *parts: Array) -> Array:
    return np.concatenate(parts, axis=attributes["axis"])


def _reshape(attributes: Attributes, x: Array, target: Array) -> Array:
    copies = not attributes.get("allowzero", 0)
    sizes = [x.shape[axis] if size == 0 and copies else size for axis, size in enumerate(target.tolist())]
    return x.reshape(sizes)


def _reshape_to(attributes: Attributes, x: Array) -> Array:
    """Return the reshape of the dialect: below -1 an entry copies an axis."""
    return x.reshape([x.shape[-2 - entry] if entry < -1 else entry for entry in attributes["target"]])


def _flatten(attributes: Attributes, x: Array) -> Array:
    axis = attributes.get("axis", 1)
    axis += x.ndim if axis < 0 else 0
    return x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))


def _expand(_: Attributes, x: Array, target: Array) -> Array:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(target.tolist())))


def _range(_: Attributes, start: Array, stop: Array, step: Array) -> Array:
    return np.arange(start.item(), stop.item(), step.item(), dtype=start.dtype)


def _divide(_: Attributes, left: Array, right: Array) -> Array:
    if not np.issubdtype(left.dtype, np.integer):
        with np.errstate(all="ignore"):
            return left / right
    if not np.all(right):
        raise ValueError("an integer is divided by zero")
    # towards zero, as in C
    quotient = np.abs(left) // np.abs(right)
    return (np.sign(left) * np.sign(right) * quotient).astype(left.dtype)


def _modulo(attributes: Attributes, left: Array, right: Array) -> Array:
    return np.fmod(left, right) if attributes.get("fmod", 0) else np.mod(left, right)


def _slice(
    _: Attributes, x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
) -> Array:
    chosen = [slice(None)] * x.ndim
    places = range(len(starts)) if axes is None else axes.tolist()
    strides = [1] * len(starts) if steps is None else steps.tolist()
    for axis, start, end, step in zip(places, starts.tolist(), ends.tolist(), strides, strict=True):
        size = x.shape[axis]
        low, high = (0, size) if step > 0 else (-1, size - 1)
        first, last = (min(max(low, place + size if place < 0 else place), high) for place in (start, end))
        chosen[axis] = slice(first, None if last < 0 else last, step)
    return x[tuple(chosen)]


def _constant_of_shape(attributes: Attributes, shape: Array) -> Array:
    return np.full(tuple(shape.tolist()), attributes.get("value", 0.0), dtype=attributes.get("dtype", "float32"))


def _cumulative_sum(attributes: Attributes, x: Array, axis: Array) -> Array:
    if attributes.get("exclusive", 0) or attributes.get("reverse", 0):
        raise ValueError("expected exclusive=0 and reverse=0, got another")
    return np.cumsum(x, axis=int(axis.item()), dtype=x.dtype)


def _split(attributes: Attributes, x: Array, sizes: Array | None = None) -> list[Array]:
    axis = attributes.get("axis", 0)
    parts = attributes.get("split") if sizes is None else sizes.tolist()
    if parts is not None:
        return np.split(x, np.cumsum(parts)[:-1].tolist(), axis=axis)
    count = attributes["outputs"]
    return np.split(x, range(step := -(-x.shape[axis] // count), step * count, step), axis=axis)


def _triangle(attributes: Attributes, x: Array, k: Array | None = None) -> Array:
    diagonal = 0 if k is None else int(k.item())
    return np.triu(x, diagonal) if attributes.get("upper", 1) else np.tril(x, diagonal)


def _activate(attributes: Attributes, x: Array) -> Array:
    """Return an activation of the dialect; what loads its IR is not needed by prologues without one."""
    from ..attributes.activations import ActivationAttr, activate

    return activate(ActivationAttr(attributes["activation"], attributes["parameters"]), x)


def _identity(_: Attributes, x: Array) -> Array:
    return x


def _size(_: Attributes, x: Array) -> Array:
    return np.array(x.size, dtype=np.int64)


def _tile(_: Attributes, x: Array, repeats: Array) -> Array:
    return np.tile(x, repeats.tolist())


def _transpose(attributes: Attributes, x: Array) -> Array:
    return np.transpose(x, attributes.get("perm"))


def _where(_: Attributes, chosen: Array, left: Array, right: Array) -> Array:
    return np.where(chosen, left, right)


def _nonzero(_: Attributes, x: Array) -> Array:
    return np.asarray(np.nonzero(np.atleast_1d(x)), dtype=np.int64)


def _scatter_elements(attributes: Attributes, x: Array, indices: Array, updates: Array) -> Array:
    function = REDUCTIONS.get(attributes.get("reduction", "none"))
    axis, result = attributes.get("axis", 0) % x.ndim, x.copy()
    if indices.shape != updates.shape:
        raise ValueError(f"indices have shape {list(indices.shape)}, updates {list(updates.shape)}")
    places = np.ogrid[tuple(slice(size) for size in indices.shape)]
    chosen = (*places[:axis], indices, *places[axis + 1 :])
    if function is None:
        result[chosen] = updates
    else:
        function.at(result, chosen if x.ndim > 1 else indices, updates)
    return result


REDUCTIONS: Final[Mapping[str, np.ufunc]] = MappingProxyType(
    {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
)
"""Ways in which ScatterElements puts several values into one place; "none" keeps the last one."""


def _edge_list(
    _: Attributes, sizes: Array, sources: Array, targets: Array, weights: Array | None = None
) -> list[Array]:
    """Return sources, targets and weights [edges] of a graph, whose nodes are as many as the first of `sizes`."""
    count, edges = int(sizes[0]), sources.size
    if max(count, edges) >= MOST_INDICES:
        raise ValueError(f"expected fewer than {MOST_INDICES} edges and nodes, got {edges} and {count}")
    ends = [_node_numbers(one.reshape(-1), count) for one in (sources, targets)]
    factors = np.ones(1, np.float32) if weights is None else weights.reshape(-1)
    return [np.broadcast_to(one, (edges,)) for one in (*ends, factors)]


def _node_numbers(index: Array, count: int) -> Array:
    # negative numbers are large ones without a sign: one pass checks both bounds
    if index.dtype == np.int64 and (not len(index) or index.view(np.uint64).max() < count):
        return index.astype(np.int32)
    if len(index) and not -count <= index.min() <= index.max() < count:
        wrong = index.max() if index.max() >= count else index.min()
        raise ValueError(f"expected indices of {count} nodes, {-count} to {count - 1}, got {wrong}")
    found = index.astype(np.int32)
    return np.where(found < 0, found + np.int32(count), found) if len(found) and found.min() < 0 else found


MOST_INDICES: Final = 1 << 31
"""Nodes, and edges, that are not numbered any more."""


def _all_of(function: Callable[..., Array]) -> Operator:
    """Return an operator for one array or more: a single one is the result."""

    def operator(_: Attributes, *arrays: Array) -> Array:
        return reduce(function, arrays)

    return operator


def _elementwise(function: Callable[..., Array]) -> Operator:
    """Return an operator for any number of arrays from a function for one or two."""

    def operator(_: Attributes, first: Array, *others: Array) -> Array:
        with np.errstate(all="ignore"):
            result = first if others else function(first)
            for other in others:
                result = function(result, other)
        return result

    return operator


def _reduction(function: Callable[..., Array]) -> Operator:
    def operator(attributes: Attributes, x: Array, given: Array | None = None) -> Array:
        axes, keep = _axes(attributes, given), bool(attributes.get("keepdims", 1))
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return x
        return np.asarray(function(x, axis=axes or None, keepdims=keep), dtype=x.dtype)

    return operator


def _dequantize(_: Attributes, x: Array, scale: Array, zero: Array | None = None) -> Array:
    if scale.size != 1:
        raise ValueError(f"expected a scale of one value, got {scale.size}")
    codes = x.astype(np.float32) - np.float32(0 if zero is None else zero.reshape(-1)[0])
    return codes * np.float32(scale.reshape(-1)[0])


OPERATORS: Final[Mapping[str, Operator]] = MappingProxyType(
    {
        "Abs": _elementwise(np.abs),
        "Activate": _activate,
        "Add": _elementwise(np.add),
        "And": _elementwise(np.logical_and),
        "Cast": _cast,
        "Concat": _concat,
        "ConstantOfShape": _constant_of_shape,
        "Cos": _elementwise(np.cos),
        "CumSum": _cumulative_sum,
        "DequantizeLinear": _dequantize,
        "Div": _divide,
        "EdgeList": _edge_list,
        "Equal": _elementwise(np.equal),
        "Expand": _expand,
        "Flatten": _flatten,
        "Gather": _gather,
        "GatherElements": _gather_elements,
        "GatherND": _gather_nd,
        "Greater": _elementwise(np.greater),
        "GreaterOrEqual": _elementwise(np.greater_equal),
        "Identity": _identity,
        "IsNaN": _elementwise(np.isnan),
        "Less": _elementwise(np.less),
        "LessOrEqual": _elementwise(np.less_equal),
        "Log": _elementwise(np.log),
        "Max": _all_of(np.maximum),
        "Min": _all_of(np.minimum),
        "Mod": _modulo,
        "Mul": _elementwise(np.multiply),
        "Neg": _elementwise(np.negative),
        "NonZero": _nonzero,
        "Not": _elementwise(np.logical_not),
        "Or": _elementwise(np.logical_or),
        "Pow": _elementwise(np.power),
        "Range": _range,
        "ReduceMax": _reduction(np.max),
        "ReduceMin": _reduction(np.min),
        "ReduceSum": _reduction(np.sum),
        "Reshape": _reshape,
        "ReshapeTo": _reshape_to,
        "ScatterElements": _scatter_elements,
        "ScatterND": _scatter_nd,
        "Shape": _shape,
        "Sign": _elementwise(np.sign),
        "Sin": _elementwise(np.sin),
        "Size": _size,
        "Sizes": _sizes,
        "Slice": _slice,
        "Split": _split,
        "Squeeze": _squeeze,
        "Sub": _elementwise(np.subtract),
        "Tile": _tile,
        "Transpose": _transpose,
        "Trilu": _triangle,
        "Unsqueeze": _unsqueeze,
        "Where": _where,
        "Xor": _elementwise(np.logical_xor),
    }
)
"""Operators by name, of the default domain; `Activate`, `EdgeList`, `ReshapeTo` are the dialect's, `Sizes` a shape."""

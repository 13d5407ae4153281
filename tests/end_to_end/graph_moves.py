"""Movements and activations that a random graph is drawn from; each returns None where it does not suit."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Final

import numpy as np
from onnx import TensorProto

from tests.end_to_end.graph_draft import Dim, GraphDraft, Value, known, product

Layer = Callable[[GraphDraft, Value], Value | None]

ACTIVATIONS: Final = MappingProxyType[str, tuple[int, dict[str, float | str]]](
    {
        "Relu": (7, {}),
        "LeakyRelu": (7, {"alpha": 0.1}),
        "Sigmoid": (7, {}),
        "Tanh": (7, {}),
        "Erf": (9, {}),
        "Elu": (7, {"alpha": 0.5}),
        "Selu": (7, {}),
        "Softplus": (7, {}),
        "HardSigmoid": (7, {"alpha": 0.3}),
        "Abs": (7, {}),
        "Neg": (7, {}),
        "Celu": (12, {"alpha": 0.7}),
        "HardSwish": (14, {}),
        "Mish": (18, {}),
        "Gelu": (20, {"approximate": "tanh"}),
        "Identity": (7, {}),
        "Dropout": (7, {}),
    }
)
"""Operator -> the opset that has it first, and attributes."""


def activation(draft: GraphDraft, x: Value) -> Value | None:
    """An operator of one input."""
    there = [name for name, (first, _) in ACTIVATIONS.items() if draft.opset >= first]
    operator = draft.choose(there)
    return draft.node(operator, [x], x.shape, **ACTIVATIONS[operator][1])


def clip(draft: GraphDraft, x: Value) -> Value | None:
    """Bounds are attributes before opset 11, and scalars, each of which may be left out, since."""
    if draft.opset < 11:
        return draft.node("Clip", [x], x.shape, min=-0.5, max=draft.choose((6.0, 0.5)))
    low = None if draft.flip() else draft.constant(np.array(-0.5, dtype=np.float32))
    high = draft.constant(np.array(draft.choose((6.0, 0.5)), dtype=np.float32))
    return draft.node("Clip", [x, low, high] if draft.flip() else [x, low], x.shape)


def prelu(draft: GraphDraft, x: Value) -> Value | None:
    """A slope for everything, or one for each feature."""
    if not x.shape or not isinstance(count := x.shape[-1], int):
        return None
    return draft.node("PRelu", [x, draft.numbers(*draft.choose(((1,), (count,))))], x.shape)


def gated(draft: GraphDraft, x: Value) -> Value | None:
    """SiLU and Mish as exporters write them."""
    if draft.flip():
        return draft.node("Mul", [x, draft.part("Sigmoid", [x], x.shape)], x.shape)
    gate = draft.part("Tanh", [draft.part("Softplus", [x], x.shape)], x.shape)
    return draft.node("Mul", [x, gate], x.shape)


def gelu_by_parts(draft: GraphDraft, x: Value) -> Value | None:
    """Gelu by erf as torch writes it below opset 20."""
    if draft.opset < 9:
        return None
    root, one, half = (draft.constant(np.array(number, dtype=np.float32)) for number in (2.0**0.5, 1.0, 0.5))
    erf = draft.part("Erf", [draft.part("Div", [x, root], x.shape)], x.shape)
    scaled = draft.part("Mul", [x, draft.part("Add", [erf, one], x.shape)], x.shape)
    return draft.node("Mul", [scaled, half], x.shape)


def cast(draft: GraphDraft, x: Value) -> Value | None:
    """A cast to what the value is already."""
    return draft.node("Cast", [x], x.shape, to=TensorProto.FLOAT)


def concat(draft: GraphDraft, x: Value) -> Value | None:
    """With values that differ along one axis at most; the same value may come twice."""
    axes = [axis for axis in range(len(x.shape)) if known(x.shape[axis])]
    if not axes:
        return None
    axis = draft.choose(list(reversed(axes)))
    beside = [value for value in draft.values if _beside(value, x, axis)]
    parts = [x] + [draft.choose(beside) for _ in range(draft.choose((1, 2)))]
    whole = sum(_number(part.shape[axis]) for part in parts)
    shape = (*x.shape[:axis], whole, *x.shape[axis + 1 :])
    return draft.node("Concat", parts, shape, axis=axis - len(x.shape) if draft.flip() else axis)


def _number(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.factor


def _beside(value: Value, x: Value, axis: int) -> bool:
    if len(value.shape) != len(x.shape) or not known(value.shape[axis]):
        return False
    return (*value.shape[:axis], *value.shape[axis + 1 :]) == (*x.shape[:axis], *x.shape[axis + 1 :])


def split(draft: GraphDraft, x: Value) -> Value | None:
    """Into two or three parts of given sizes, or two equal ones; all but one are read later, or never."""
    axes = [axis for axis in range(len(x.shape)) if isinstance(size := x.shape[axis], int) and size >= 2]
    if not axes:
        return None
    axis = draft.choose(list(reversed(axes)))
    whole = _number(x.shape[axis])
    first = draft.choose(range(1, whole))
    equal = whole % 2 == 0 and draft.flip()
    sizes = (whole // 2, whole // 2) if equal else (first, whole - first)
    shapes = [(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in sizes]
    if equal:
        attributes = {"num_outputs": 2} if draft.opset >= 18 else {}
        parts = draft.node_with_parts("Split", [x], shapes, axis=axis, **attributes)
    elif draft.opset >= 13:
        parts = draft.node_with_parts("Split", [x, draft.integers(*sizes)], shapes, axis=axis)
    else:
        parts = draft.node_with_parts("Split", [x], shapes, axis=axis, split=list(sizes))
    draft.values.extend(parts)
    return parts[0]


def cut(draft: GraphDraft, x: Value) -> Value | None:
    """Some neighbours along an axis by Slice, or one place of it by Gather, which takes the axis away."""
    axes = [axis for axis in range(len(x.shape)) if isinstance(x.shape[axis], int)]
    if not axes:
        return None
    axis = draft.choose(list(reversed(axes)))
    whole = _number(x.shape[axis])
    first = draft.start(whole - 1)
    if draft.flip():
        index = draft.constant(np.array(first - whole * draft.flip(), dtype=np.int64))
        return draft.node("Gather", [x, index], (*x.shape[:axis], *x.shape[axis + 1 :]), axis=axis)
    end = draft.choose(range(first + 1, whole + 1))
    shape = (*x.shape[:axis], end - first, *x.shape[axis + 1 :])
    if draft.opset < 10:
        return draft.node("Slice", [x], shape, starts=[first], ends=[end], axes=[axis])
    return draft.node("Slice", [x, *(draft.integers(number) for number in (first, end, axis))], shape)


def reshape_by_sizes(draft: GraphDraft, x: Value) -> Value | None:
    """To a matrix by a shape that the graph computes: the first axis from Shape, all others in a number."""
    if len(x.shape) < 2 or not all(isinstance(dim, int) for dim in x.shape[1:]):
        return None
    rest = product(x.shape[1:])
    sizes = draft.part("Shape", [x], (len(x.shape),))
    first = draft.part("Gather", [sizes, draft.integers(0)], (1,))
    target = draft.part("Concat", [first, draft.integers(_number(rest))], (2,), axis=0)
    return draft.node("Reshape", [x, target], (x.shape[0], rest))


def transpose(draft: GraphDraft, x: Value) -> Value | None:
    """Any order of axes, or the reversed order by leaving it out."""
    order = list(range(len(x.shape)))
    if draft.flip():
        order = list(draft.permutation(len(x.shape)))
        # an empty list of axes has no type in onnx; without one a scalar stays what it is
        axes = {"perm": order} if order else {}
        return draft.node("Transpose", [x], [x.shape[axis] for axis in order], **axes)
    return draft.node("Transpose", [x], list(reversed(x.shape)))


def flatten(draft: GraphDraft, x: Value) -> Value | None:
    """To a matrix."""
    axis = draft.choose(range(len(x.shape) + 1))
    return draft.node("Flatten", [x], (product(x.shape[:axis]), product(x.shape[axis:])), axis=axis)


def reshape(draft: GraphDraft, x: Value) -> Value | None:
    """Two neighbouring axes become one, or an axis becomes two."""
    if not x.shape:
        return None
    axis = draft.choose(range(len(x.shape)))
    size: Dim = x.shape[axis]
    factors = [factor for factor in (2, 3) if isinstance(size, int) and size % factor == 0]
    if factors and len(x.shape) < 4 and draft.flip():
        pair = (_number(size) // factors[0], factors[0])
        shape: tuple[Dim, ...] = (*x.shape[:axis], *pair, *x.shape[axis + 1 :])
    elif axis + 1 < len(x.shape):
        shape = (*x.shape[:axis], product(x.shape[axis : axis + 2]), *x.shape[axis + 2 :])
    else:
        return None
    numbers = [dim if isinstance(dim, int) else -1 for dim in shape]
    if x.shape[:1] == shape[:1] and draft.flip():
        numbers[0] = 0
    return draft.node("Reshape", [x, draft.integers(*numbers)], shape)


def squeeze(draft: GraphDraft, x: Value) -> Value | None:
    """One axis of size 1."""
    axes = [axis for axis in range(len(x.shape)) if x.shape[axis] == 1]
    if not axes:
        return None
    axis = draft.choose(axes)
    return _with_axes(draft, "Squeeze", (x, axis), (*x.shape[:axis], *x.shape[axis + 1 :]))


def unsqueeze(draft: GraphDraft, x: Value) -> Value | None:
    """One more axis of size 1."""
    if len(x.shape) > 3:
        return None
    axis = draft.choose(range(len(x.shape) + 1))
    return _with_axes(draft, "Unsqueeze", (x, axis), (*x.shape[:axis], 1, *x.shape[axis:]))


def _with_axes(draft: GraphDraft, operator: str, what: tuple[Value, int], shape: tuple[Dim, ...]) -> Value:
    x, axis = what
    if draft.opset >= 13:
        return draft.node(operator, [x, draft.integers(axis)], shape)
    return draft.node(operator, [x], shape, axes=[axis])


MOVES: Final[tuple[Layer, ...]] = (
    activation,
    activation,
    clip,
    prelu,
    gated,
    gelu_by_parts,
    cast,
    concat,
    split,
    cut,
    reshape_by_sizes,
    transpose,
    flatten,
    reshape,
    squeeze,
    unsqueeze,
)
"""Activations stand here twice: they follow on most layers."""

"""Layers that a random graph is drawn from: each takes a draft and a value and returns the value that it computes.

A layer returns None where it does not suit the value's shape or the opset.
"""

from collections.abc import Callable

import numpy as np

from tests.end_to_end.graph_attention import attention
from tests.end_to_end.graph_draft import Dim, GraphDraft, Value, known

Layer = Callable[[GraphDraft, Value], Value | None]


def matmul(draft: GraphDraft, x: Value) -> Value | None:
    """x W, with W a vector, a matrix or a stack of matrices."""
    if not x.shape or not isinstance(count := x.shape[-1], int):
        return None
    columns = draft.size()
    matrix = draft.weight(count, columns, count)
    match draft.choose(("matrix", "vector", "stack")):
        case "vector":
            return draft.node("MatMul", [x, draft.constant(matrix[:, 0])], x.shape[:-1])
        case "stack" if len(x.shape) > 1:
            beside = x.shape[-3] if len(x.shape) > 2 else 1
            stack = beside if isinstance(beside, int) and 1 < beside < 5 else 1 if beside != 1 else draft.choose((1, 2))
            weight = np.stack([matrix] + [draft.weight(count, columns, count) for _ in range(stack - 1)])
            lead: tuple[Dim, ...] = (*x.shape[:-3], stack if beside == 1 else beside)
            return draft.node("MatMul", [x, draft.constant(weight)], (*lead, x.shape[-2], columns))
        case _:
            return draft.node("MatMul", [x, draft.constant(matrix)], (*x.shape[:-1], columns))


def matmul_left(draft: GraphDraft, x: Value) -> Value | None:
    """W x, with W a vector or a matrix."""
    axis = max(len(x.shape) - 2, 0)
    if not x.shape or not isinstance(count := x.shape[axis], int):
        return None
    rows = draft.size()
    matrix = draft.weight(rows, count, count)
    kept = x.shape[axis + 1 :]
    if draft.flip():
        return draft.node("MatMul", [draft.constant(matrix[0]), x], (*x.shape[:axis], *kept))
    return draft.node("MatMul", [draft.constant(matrix), x], (*x.shape[:axis], rows, *kept))


def gemm(draft: GraphDraft, x: Value) -> Value | None:
    """alpha A B + beta C with x as A or as B."""
    if len(x.shape) != 2:
        return None
    x_transposed, weight_transposed, left = draft.flip(), draft.flip(), draft.flip()
    # the axis of x that is summed over
    axis = (1 if x_transposed else 0) if left else (0 if x_transposed else 1)
    count, rest = x.shape[axis], x.shape[1 - axis]
    if not isinstance(count, int):
        return None
    outputs = draft.size()
    matrix = draft.weight(count, outputs, count)
    weight = draft.constant(matrix.T if left != weight_transposed else matrix)
    shape: tuple[Dim, Dim] = (outputs, rest) if left else (rest, outputs)
    operands: list[Value | None] = [weight, x] if left else [x, weight]
    transposed = (weight_transposed, x_transposed) if left else (x_transposed, weight_transposed)
    addend = _addend(draft, shape)
    if addend is not None:
        operands.append(addend)
    return draft.node(
        "Gemm",
        operands,
        shape,
        transA=int(transposed[0]),
        transB=int(transposed[1]),
        alpha=draft.choose((1.0, 0.5, -2.0, 0.0)),
        beta=draft.choose((1.0, 0.5, -2.0, 0.0)),
    )


def _addend(draft: GraphDraft, shape: tuple[Dim, Dim]) -> Value | None:
    """C in any form that broadcasts to the result; it may be left out since opset 11."""
    if draft.opset >= 11 and draft.flip():
        return None
    same = [value for value in draft.values if value.shape == shape]
    if same and draft.flip():
        return draft.choose(same)
    rows, columns = shape
    forms: list[tuple[int, ...]] = [(), (1,), (1, 1)]
    if isinstance(columns, int):
        forms += [(columns,), (1, columns)]
    if isinstance(rows, int):
        forms.append((rows, 1))
    if isinstance(columns, int) and isinstance(rows, int):
        forms.append((rows, columns))
    return draft.numbers(*draft.choose(forms))


def with_constant(draft: GraphDraft, x: Value) -> Value | None:
    """x op c or c op x, where c broadcasts into x or has more axes than x."""
    suffix = x.shape[draft.start(len(x.shape)) :]
    shape = [dim if isinstance(dim, int) and draft.flip() else 1 for dim in suffix]
    result = x.shape
    if len(shape) == len(x.shape) and len(x.shape) < 4 and draft.flip():
        shape, result = [1, *shape], (1, *x.shape)
    operator = draft.choose(("Add", "Mul", "Sub", "Div"))
    constant = draft.numbers(*shape)
    if operator == "Div" or draft.flip():
        return draft.node(operator, [x, constant], result)
    return draft.node(operator, [constant, x], result)


def constant_over(draft: GraphDraft, x: Value) -> Value | None:
    """c / (|x| + 1): a constant on the left of a quotient that stays tame."""
    above = draft.part("Add", [draft.part("Abs", [x], x.shape), draft.positive()], x.shape)
    return draft.node("Div", [draft.numbers(), above], x.shape)


def with_value(draft: GraphDraft, x: Value) -> Value | None:
    """x op another value that has the same shape, fewer axes, or axes of size 1."""
    others = [value for value in draft.values if _fits(value, x)]
    other = draft.choose(others)
    operator = draft.choose(("Add", "Sub", "Mul"))
    if operator == "Mul":
        # a product of two values may grow with every layer
        other = draft.part("Sigmoid", [other], other.shape)
    pair = [other, x] if draft.flip() else [x, other]
    return draft.node(operator, pair, x.shape)


def _fits(value: Value, x: Value) -> bool:
    if len(value.shape) > len(x.shape):
        return False
    facing = x.shape[len(x.shape) - len(value.shape) :]
    return all(dim in (1, wanted) for dim, wanted in zip(value.shape, facing, strict=True))


def batch_norm(draft: GraphDraft, x: Value) -> Value | None:
    """Inference with constant statistics."""
    if len(x.shape) not in (2, 3, 4) or not isinstance(count := x.shape[1], int):
        return None
    parameters = [draft.numbers(count), draft.numbers(count), draft.numbers(count), draft.positive(count)]
    return draft.node("BatchNormalization", [x, *parameters], x.shape, epsilon=draft.choose((1e-5, 1e-3)))


def softmax(draft: GraphDraft, x: Value) -> Value | None:
    """Along one axis since opset 13, along all axes from one on before."""
    axes = [
        axis
        for axis in range(len(x.shape))
        if (known(x.shape[axis]) if draft.opset >= 13 else all(map(known, x.shape[axis:])))
    ]
    if not axes:
        return None
    operator = draft.choose(("Softmax", "LogSoftmax"))
    axis = draft.choose(list(reversed(axes)))
    return draft.node(operator, [x], x.shape, axis=axis - len(x.shape) if draft.opset >= 13 and draft.flip() else axis)


def layer_norm(draft: GraphDraft, x: Value) -> Value | None:
    """One operator since opset 17."""
    axes = [axis for axis in range(len(x.shape)) if all(map(known, x.shape[axis:]))]
    if draft.opset < 17 or not axes:
        return None
    axis = draft.choose(list(reversed(axes)))
    shape = [dim for dim in x.shape[axis:] if isinstance(dim, int)]
    parameters = [draft.numbers(*shape)] + ([draft.numbers(*shape)] if draft.flip() else [])
    return draft.node("LayerNormalization", [x, *parameters], x.shape, axis=axis, epsilon=draft.choose((1e-2, 1e-5)))


def norm_by_parts(draft: GraphDraft, x: Value) -> Value | None:
    """LayerNormalization or RMSNormalization on the last axis as exporters write them below opset 17 and 23."""
    if not x.shape or not isinstance(count := x.shape[-1], int):
        return None
    if draft.flip():
        x = draft.part("Sub", [x, mean_of(draft, x)], x.shape)
    two = draft.constant(np.array(2.0, dtype=np.float32))
    mean = mean_of(draft, draft.part("Pow", [x, two], x.shape))
    above = draft.part("Add", [mean, draft.constant(np.array(1e-2, dtype=np.float32))], mean.shape)
    normal = draft.part("Div", [x, draft.part("Sqrt", [above], above.shape)], x.shape)
    scaled = draft.part("Mul", [normal, draft.numbers(count)], x.shape)
    return draft.node("Add", [scaled, draft.numbers(count)], x.shape)


def mean_of(draft: GraphDraft, x: Value) -> Value:
    """The mean along the last axis, which stays with size 1."""
    shape = (*x.shape[:-1], 1)
    if draft.opset >= 18:
        return draft.part("ReduceMean", [x, draft.integers(-1)], shape)
    return draft.part("ReduceMean", [x], shape, axes=[-1])


def reduce_mean(draft: GraphDraft, x: Value) -> Value | None:
    """The mean along one axis of known size."""
    axes = [axis for axis in range(len(x.shape)) if known(x.shape[axis])]
    if not axes or len(x.shape) < 2:
        return None
    axis, keep = draft.choose(list(reversed(axes))), draft.flip()
    shape = (*x.shape[:axis], *((1,) if keep else ()), *x.shape[axis + 1 :])
    if draft.opset >= 18:
        return draft.node("ReduceMean", [x, draft.integers(axis)], shape, keepdims=int(keep))
    return draft.node("ReduceMean", [x], shape, axes=[axis], keepdims=int(keep))


LAYERS: tuple[Layer, ...] = (
    matmul,
    gemm,
    matmul,
    gemm,
    matmul_left,
    with_constant,
    with_value,
    constant_over,
    batch_norm,
    softmax,
    layer_norm,
    norm_by_parts,
    reduce_mean,
    attention,
)
"""Operators that are a model's bulk stand here twice."""

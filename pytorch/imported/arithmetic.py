"""Operators that compute each value by itself, or reduce along axes."""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn import functional

from .nodes import TYPES, Node, Tensor, operator

ONE: Final[dict[str, Callable[..., Tensor]]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Asin": torch.asin,
    "Atan": torch.atan,
    "BitwiseNot": torch.bitwise_not,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "IsInf": torch.isinf,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Mish": functional.mish,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Softplus": functional.softplus,
    "Softsign": functional.softsign,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
    "HardSwish": functional.hardswish,
}
"""Operators of one value without attributes."""

TWO: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "Add": torch.add,
    "And": torch.logical_and,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Mul": torch.mul,
    "Or": torch.logical_or,
    "Sub": torch.sub,
    "Xor": torch.logical_xor,
}


@operator(*ONE)
def _of_one(node: Node, x: Tensor) -> Tensor:
    return ONE[node.operator](x)


@operator(*TWO)
def _of_two(node: Node, x: Tensor, y: Tensor) -> Tensor:
    return TWO[node.operator](x, y)


@operator("Div")
def _divided(node: Node, x: Tensor, y: Tensor) -> Tensor:
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


@operator("Mod")
def _rest(node: Node, x: Tensor, y: Tensor) -> Tensor:
    return torch.fmod(x, y) if node.get("fmod", 0) else torch.remainder(x, y)


@operator("Pow")
def _power(node: Node, x: Tensor, y: Tensor) -> Tensor:
    return torch.pow(x, y).to(x.dtype)


@operator("Max", "Min")
def _extreme(node: Node, first: Tensor, *others: Tensor) -> Tensor:
    choose = torch.maximum if node.operator == "Max" else torch.minimum
    for one in others:
        first = choose(first, one)
    return first


@operator("Sum", "Mean")
def _sum(node: Node, first: Tensor, *others: Tensor) -> Tensor:
    total = first
    for one in others:
        total = total + one
    return total / (1 + len(others)) if node.operator == "Mean" else total


@operator("Where")
def _where(node: Node, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition, x, y)


@operator("Cast")
def _cast(node: Node, x: Tensor) -> Tensor:
    return x.to(TYPES[int(node.attributes["to"])])


@operator("CastLike")
def _cast_like(node: Node, x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


@operator("Clip")
def _clip(node: Node, x: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> Tensor:
    low, high = (node.get(name) if one is None else one for name, one in (("min", least), ("max", most)))
    return x if low is None and high is None else torch.clamp(x, low, high)


@operator("Gelu", "com.microsoft.Gelu", "com.microsoft.BiasGelu", "com.microsoft.FastGelu")
def _gelu(node: Node, x: Tensor, bias: Tensor | None = None) -> Tensor:
    way = "tanh" if node.operator.endswith("FastGelu") else str(node.get("approximate", "none"))
    return functional.gelu(x if bias is None else x + bias, approximate=way)


@operator("com.microsoft.QuickGelu", "Swish")
def _quick_gelu(node: Node, x: Tensor) -> Tensor:
    return x * torch.sigmoid(node.get("alpha", 1.702 if node.operator != "Swish" else 1.0) * x)


@operator("HardSigmoid")
def _hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    return torch.clamp(node.get("alpha", 0.2) * x + node.get("beta", 0.5), 0, 1)


@operator("Elu", "Celu")
def _elu(node: Node, x: Tensor) -> Tensor:
    activate = functional.elu if node.operator == "Elu" else functional.celu
    return activate(x, node.get("alpha", 1.0))


@operator("Selu")
def _selu(node: Node, x: Tensor) -> Tensor:
    alpha, gamma = node.get("alpha", 1.67326319217681884765625), node.get("gamma", 1.05070102214813232421875)
    return gamma * functional.elu(x, alpha)


@operator("LeakyRelu")
def _leaky(node: Node, x: Tensor) -> Tensor:
    return functional.leaky_relu(x, node.get("alpha", 0.01))


@operator("PRelu")
def _parametric(node: Node, x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, slope * x, x)


@operator("ThresholdedRelu")
def _thresholded(node: Node, x: Tensor) -> Tensor:
    return torch.where(x > node.get("alpha", 1.0), x, torch.zeros_like(x))


@operator("Softmax", "LogSoftmax")
def _softmax(node: Node, x: Tensor) -> Tensor:
    compute = torch.softmax if node.operator == "Softmax" else torch.log_softmax
    if node.opset >= 13:
        return compute(x, node.get("axis", -1))
    # all axes from that one on count as one
    axis = node.get("axis", 1) % max(1, x.dim())
    return compute(x.flatten(axis), axis).view_as(x)


@operator("CumSum")
def _running_sum(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    along = int(axis)
    turned = x.flip(along) if node.get("reverse", 0) else x
    total = turned.cumsum(along).to(x.dtype)
    total = total - turned if node.get("exclusive", 0) else total
    return total.flip(along) if node.get("reverse", 0) else total


@operator("ArgMax", "ArgMin")
def _place(node: Node, x: Tensor) -> Tensor:
    axis, kept = node.get("axis", 0), bool(node.get("keepdims", 1))
    find = torch.argmax if node.operator == "ArgMax" else torch.argmin
    if not node.get("select_last_index", 0):
        return find(x, axis, keepdim=kept)
    return x.shape[axis] - 1 - find(x.flip(axis), axis, keepdim=kept)


@operator("TopK")
def _largest(node: Node, x: Tensor, count: Tensor | None = None) -> tuple[Tensor, Tensor]:
    number = int(node.attributes["k"]) if count is None else int(count)
    return x.topk(number, node.get("axis", -1), bool(node.get("largest", 1)), bool(node.get("sorted", 1)))


@operator("MatMul", "com.microsoft.FusedMatMul")
def _product(node: Node, x: Tensor, y: Tensor) -> Tensor:
    x = x.transpose(-1, -2) if node.get("transA", 0) else x
    y = y.transpose(-1, -2) if node.get("transB", 0) else y
    return torch.matmul(x, y) * node.get("alpha", 1.0) if "alpha" in node.attributes else torch.matmul(x, y)


@operator("Gemm")
def _gemm(node: Node, x: Tensor, y: Tensor, added: Tensor | None = None) -> Tensor:
    product = (x.T if node.get("transA", 0) else x) @ (y.T if node.get("transB", 0) else y)
    return with_added(node, product, added)


def with_added(node: Node, product: Tensor, added: Tensor | None) -> Tensor:
    """Return alpha * product + beta * added of a Gemm."""
    alpha, beta = float(node.get("alpha", 1.0)), float(node.get("beta", 1.0))
    product = product if alpha == 1 else alpha * product
    return product if added is None else product + (added if beta == 1 else beta * added)


@operator("Einsum")
def _einsum(node: Node, *values: Tensor) -> Tensor:
    return torch.einsum(str(node.attributes["equation"]), *values)


def _sum_of(x: Tensor, axes: list[int], kept: bool) -> Tensor:
    return x.sum(axes, keepdim=kept).to(x.dtype)


def _product_of(x: Tensor, axes: list[int], kept: bool) -> Tensor:
    for axis in sorted((one % x.dim() for one in axes), reverse=True):
        x = x.prod(axis, keepdim=kept).to(x.dtype)
    return x


REDUCTIONS: Final[dict[str, Callable[[Tensor, list[int], bool], Tensor]]] = {
    "ReduceL1": lambda x, axes, kept: _sum_of(x.abs(), axes, kept),
    "ReduceL2": lambda x, axes, kept: x.square().sum(axes, keepdim=kept).sqrt(),
    "ReduceLogSum": lambda x, axes, kept: x.sum(axes, keepdim=kept).log(),
    "ReduceLogSumExp": lambda x, axes, kept: x.logsumexp(axes, keepdim=kept),
    "ReduceMax": lambda x, axes, kept: x.amax(axes, keepdim=kept),
    "ReduceMean": lambda x, axes, kept: x.mean(axes, keepdim=kept),
    "ReduceMin": lambda x, axes, kept: x.amin(axes, keepdim=kept),
    "ReduceProd": _product_of,
    "ReduceSum": _sum_of,
    "ReduceSumSquare": lambda x, axes, kept: _sum_of(x.square(), axes, kept),
}


@operator(*REDUCTIONS)
def _reduced(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    along = node.ints("axes", axes)
    if not along and node.get("noop_with_empty_axes", 0):
        return x
    reduce: Any = REDUCTIONS[node.operator]
    return reduce(x, along or list(range(x.dim())), bool(node.get("keepdims", 1)))

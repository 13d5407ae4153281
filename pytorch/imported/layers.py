"""Nodes with a constant weight, as layers of torch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import onnx_ir
from torch import nn

from .arithmetic import with_added
from .images import dilations_of, padded, padding_of, strides_of
from .nodes import Node, Operator, Tensor
from .rounding import ROUNDED, expanded
from .stored_weights import Constants, StoredWeight, integer_weight, packed_weight, stored_weight

CONVOLUTIONS: Final[dict[int, type[nn.Module]]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


@dataclass(frozen=True)
class Layer:
    """A node with a constant weight: its module, and how it is called."""

    weight: StoredWeight
    form: tuple[Any, ...]
    """The properties that modules of one weight have in common."""
    make: Callable[[], nn.Module]
    compute: Operator
    inputs: tuple[int, ...]
    """Inputs of the node that are not in the module."""
    key: str = ""

    def called(self, key: str) -> "Layer":
        return replace(self, key=key)

    def module(self) -> nn.Module:
        """Return the module with its weight."""
        module: Any = self.make()
        parameter: Any = nn.Parameter
        module.weight = parameter(self.weight.values)
        if self.weight.rounding is not None:
            setattr(module, "__class__", ROUNDED[type(module)])  # noqa: B010
            module.set_rounding(self.weight.rounding)
        return module

    def as_stored(self, weight: Tensor) -> Tensor:
        return weight


def _linear(node: onnx_ir.Node, opset: int, held: Constants) -> Layer | None:
    said = Node.of(node, opset)
    value = node.inputs[1]
    if value is None or said.get("transA", 0) or _is_held(node.inputs[0], held):
        return None
    weight = stored_weight(value, held, turned=not said.get("transB", 0))
    return _linear_layer(weight, _gemm if said.operator == "Gemm" else _product, (0, 2))


def _linear_layer(weight: StoredWeight | None, compute: Operator, inputs: tuple[int, ...]) -> Layer | None:
    if weight is None or weight.values.dim() != 2:
        return None
    return Layer(weight, ("linear",), lambda: _empty_linear(weight), compute, inputs)


def _empty_linear(weight: StoredWeight) -> nn.Module:
    outputs, inputs = weight.values.shape
    linear = cast("Any", nn.Linear)
    return linear(inputs, outputs, bias=False, device="meta")


def _product(node: Node, module: nn.Module, x: Tensor, *_: Tensor) -> Tensor:
    found = module(x)
    return found * float(node.get("alpha", 1.0)) if "alpha" in node.attributes else found


def _gemm(node: Node, module: nn.Module, x: Tensor, added: Tensor | None = None) -> Tensor:
    return with_added(node, module(x), added)


def _is_held(value: onnx_ir.Value | None, held: Constants) -> bool:
    return value is None or value.name in held.raw


def _packed(node: onnx_ir.Node, opset: int, held: Constants) -> Layer | None:
    weight = packed_weight(node, held)
    return _linear_layer(weight, _with_bias, (0, 5))


def _with_bias(node: Node, module: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return module(x) if bias is None else module(x) + bias


def _integers(node: onnx_ir.Node, opset: int, held: Constants) -> Layer | None:
    weight = integer_weight(node, held, turned=True)
    if weight is None:
        return None

    def compute(node: Node, module: nn.Module, x: Tensor, zero: Tensor | None = None) -> Tensor:
        codes = x.float() if zero is None else x.float() - expanded(zero, x.shape, x.dim() - 2, 0)
        return module(codes) / weight.product_scale

    return _linear_layer(weight, compute, (0, 2))


def _convolution(node: onnx_ir.Node, opset: int, held: Constants) -> Layer | None:
    value, said = node.inputs[1], Node.of(node, opset)
    if value is None or _is_held(node.inputs[0], held):
        return None
    is_integer = said.operator == "ConvInteger"
    weight = integer_weight(node, held, turned=False) if is_integer else stored_weight(value, held, turned=False)
    if weight is None or weight.values.dim() - 2 not in CONVOLUTIONS:
        return None
    kernel = tuple(weight.values.shape[2:])
    strides, dilations = (tuple(one(said, len(kernel))) for one in (strides_of, dilations_of))
    groups, outputs = said.get("group", 1), len(weight.values)
    pads = padding_of(said, [0] * len(kernel), list(kernel)) if "auto_pad" not in said.attributes else None
    # what torch's own padding says, prices are told by as well
    own = tuple(before for before, after in pads if before == after) if pads is not None else ()
    is_own = len(own) == len(kernel)
    padding = own if is_own else (0,) * len(kernel)
    kind = cast("Any", CONVOLUTIONS[len(kernel)])

    def make() -> nn.Module:
        inputs = weight.values.shape[1] * groups
        return kind(inputs, outputs, kernel, strides, padding, dilations, groups, bias=False, device="meta")

    def compute(node: Node, module: nn.Module, x: Tensor, added: Tensor | None = None) -> Tensor:
        if is_integer:
            x = x.float() if added is None else x.float() - added
            added = None
        x = x if is_own else padded(x, padding_of(node, list(x.shape[2:]), list(kernel)))
        found = module(x) / weight.product_scale if is_integer else module(x)
        return found if added is None else found + added.reshape(-1, *[1] * len(kernel))

    form = ("convolution", strides, padding, dilations, groups)
    return Layer(weight, form, make, compute, (0, 2))


LAYERS: Final[dict[str, Callable[[onnx_ir.Node, int, Constants], Layer | None]]] = {
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "Gemm": _linear,
    "MatMul": _linear,
    "MatMulInteger": _integers,
    "com.microsoft.FusedMatMul": _linear,
    "com.microsoft.MatMulNBits": _packed,
}

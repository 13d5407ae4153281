"""Quantized values in training: codes are whole floats, and gradients pass through the rounding.

A code is held in float32, so that operators between QuantizeLinear and DequantizeLinear move it like any other value.
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .images import convolved
from .nodes import Node, operator

RANGES: Final[dict[int, tuple[int, int]]] = {
    2: (0, 255),
    3: (-128, 127),
    4: (0, 65535),
    5: (-32768, 32767),
    6: (-(2**31), 2**31 - 1),
    21: (0, 15),
    22: (-8, 7),
}
"""Element type of ONNX -> the least and the greatest code."""


def rounded(x: Tensor) -> Tensor:
    """Return whole numbers, halves to the even one; the gradient is that of x."""
    return x + (x.round() - x).detach()


class Rounding(NamedTuple):
    """The scale and the zero of each value, in the shape of the values or one that is expanded to it."""

    scale: Tensor
    zero: Tensor
    least: int
    greatest: int

    def codes(self, values: Tensor) -> Tensor:
        """Return codes of values, as floats."""
        scale = torch.where(self.scale == 0, torch.ones_like(self.scale), self.scale)
        return torch.clamp(rounded(values / scale) + self.zero, self.least, self.greatest)

    def values(self, codes: Tensor) -> Tensor:
        return (codes - self.zero) * self.scale

    def __call__(self, values: Tensor) -> Tensor:
        """Return what is left of values once they were codes."""
        return self.values(self.codes(values))


def expanded(parameter: Tensor, shape: torch.Size, axis: int, block: int) -> Tensor:
    """Return a scale or a zero (one number, one an entry of an axis, or one a block) in a shape that is expanded."""
    parameter = parameter.float()
    if parameter.numel() == 1:
        return parameter.reshape(())
    if block:
        return parameter.repeat_interleave(block, axis).narrow(axis, 0, shape[axis])
    return parameter.reshape([-1 if one == axis % len(shape) else 1 for one in range(len(shape))])


@operator("QuantizeLinear", "com.microsoft.QuantizeLinear")
def _quantized(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    kind = node.types[2] if zero is not None else int(node.get("output_dtype", 0)) or 2
    if kind not in RANGES:
        raise ValueError(f"expected codes of 4, 8 or 16 bits, got element type {kind}")
    axis, block = node.get("axis", 1), node.get("block_size", 0)
    own = expanded(scale, x.shape, axis, block)
    zeros = torch.zeros_like(own) if zero is None else expanded(zero, x.shape, axis, block)
    return Rounding(own, zeros, *RANGES[kind]).codes(x)


@operator("DequantizeLinear", "com.microsoft.DequantizeLinear")
def _dequantized(node: Node, codes: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    axis, block = node.get("axis", 1), node.get("block_size", 0)
    own = expanded(scale, codes.shape, axis, block)
    zeros = torch.zeros_like(own) if zero is None else expanded(zero, codes.shape, axis, block)
    return (codes.float() - zeros) * own


@operator("DynamicQuantizeLinear")
def _range_of_now(node: Node, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    least, greatest = x.detach().amin().clamp(max=0), x.detach().amax().clamp(min=0)
    scale = (greatest - least) / 255
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero = torch.clamp(torch.round(-least / scale), 0, 255)
    return Rounding(scale, zero, 0, 255).codes(x), scale, zero


def _without(codes: Tensor, zero: Tensor | None, axis: int) -> Tensor:
    """Return codes less their zeros, of which there is one or one an entry of an axis."""
    return codes.float() if zero is None else codes.float() - expanded(zero, codes.shape, axis % codes.dim(), 0)


@operator("MatMulInteger")
def _integer_product(
    node: Node, x: Tensor, y: Tensor, x_zero: Tensor | None = None, y_zero: Tensor | None = None
) -> Tensor:
    return _without(x, x_zero, -2) @ _without(y, y_zero, -1)


@operator("ConvInteger")
def _integer_convolution(
    node: Node, x: Tensor, y: Tensor, x_zero: Tensor | None = None, y_zero: Tensor | None = None
) -> Tensor:
    return convolved(node, _without(x, x_zero, 1), _without(y, y_zero, 0))


class RoundedWeight(nn.Module):
    """A layer whose weight is rounded to its codes on the way: buffers hold scale and zero in its shape."""

    weight: nn.Parameter
    scale: Tensor
    zero: Tensor
    limits: tuple[int, int]

    @property
    def rounding(self) -> Rounding:
        return Rounding(self.scale, self.zero, *self.limits)

    def set_rounding(self, rounding: Rounding) -> None:
        self.register_buffer("scale", rounding.scale, persistent=False)
        self.register_buffer("zero", rounding.zero, persistent=False)
        self.limits = rounding.least, rounding.greatest


class RoundedLinear(RoundedWeight, nn.Linear):
    """A linear layer on codes."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return functional.linear(input, self.rounding(self.weight), self.bias)


class RoundedConv1d(RoundedWeight, nn.Conv1d):
    """A convolution over one axis on codes."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return self._conv_forward(input, self.rounding(self.weight), self.bias)


class RoundedConv2d(RoundedWeight, nn.Conv2d):
    """A convolution over two axes on codes."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return self._conv_forward(input, self.rounding(self.weight), self.bias)


class RoundedConv3d(RoundedWeight, nn.Conv3d):
    """A convolution over three axes on codes."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return self._conv_forward(input, self.rounding(self.weight), self.bias)


ROUNDED: Final[dict[type[nn.Module], type[RoundedWeight]]] = {
    nn.Linear: RoundedLinear,
    nn.Conv1d: RoundedConv1d,
    nn.Conv2d: RoundedConv2d,
    nn.Conv3d: RoundedConv3d,
}

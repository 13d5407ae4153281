"""Weights of few bits whose scales move with them: whole steps of a scale that neighbouring inputs of an output share.

Unlike `quantize(bits=4)`, this rounds weights that are computed as well, by `low_rank`. The grid is that of
`MatMulNBits`, as `redpebble prune --precision int4` writes it: the largest weight of a group is -8 steps exactly, and
zeros stay zeros. Gradients pass through the rounding, which is a parametrization of torch:
`torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")` leaves rounded weights.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

from .layers import Choice, PrunableWeight, chosen_names, prunable_weights

Context = Any
"""The memory of a function between forward and backward."""


class _Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, weight: Tensor, group: int, bits: int) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        del ctx
        least = -(1 << (bits - 1))
        outputs, inputs = weight.shape
        groups = functional.pad(weight.float(), (0, -inputs % group)).view(outputs, -1, group)
        scales = groups.gather(2, groups.abs().argmax(2, keepdim=True)) / least
        scales = torch.where(scales.abs() < torch.finfo(torch.float32).tiny, 1.0, scales)
        steps = (groups / scales).round_().clamp_(least, -least - 1)
        return steps.mul_(scales).view(outputs, -1)[:, :inputs].to(weight.dtype)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        del ctx
        return gradient, None, None


def rounded(weight: Tensor, group: int = 32, bits: int = 4) -> Tensor:
    """Return a weight [outputs, inputs] as few bits hold it; its gradient is that of the result."""
    return _Rounded.apply(weight, group, bits)


class FewBits(nn.Module):
    """The rounding of a weight, as a parametrization."""

    def __init__(self, group: int, bits: int) -> None:
        super().__init__()
        self.group, self.bits = group, bits

    def forward(self, weight: Tensor) -> Tensor:
        """weight [outputs, inputs]."""
        return rounded(weight, self.group, self.bits)


def round_weights(module: nn.Module, bits: int = 4, group: int = 32, layers: Choice = None) -> tuple[str, ...]:
    """Let linear layers compute with weights of few bits, those of `low_rank` among them, in place; return their names.

    Raises:
        ValueError: a layer is none, is tied or no `nn.Linear`, or there is no such group or number of bits.
    """
    if not 2 <= bits <= 8 or group < 2:
        raise ValueError(f"bits and group: expected 2 to 8 and 2 or more, got {bits} and {group}")
    names = _names(module, layers)
    for name in names:
        parametrize.register_parametrization(module.get_submodule(name), "weight", FewBits(group, bits))
    return names


def _names(module: nn.Module, layers: Choice) -> tuple[str, ...]:
    """Return the layers that are chosen, whether their weights are parameters or computed from some."""
    computed = [name for name, one in module.named_modules() if is_computed(one)]
    if computed:
        return chosen_names(module, computed, layers)
    weights = [one for one in prunable_weights(module, layers) if layers is not None or one.is_whole]
    for one in weights:
        expect_linear(one)
    return tuple(one.name for one in weights)


def expect_linear(weight: PrunableWeight) -> None:
    """Refuse a weight that is none of one `nn.Linear` alone.

    Raises:
        ValueError: it is tied, or of another layer.
    """
    first, *others = weight.modules
    if others or not isinstance(first, nn.Linear):
        kind = type(first).__name__
        raise ValueError(f"layer {weight.name!r}: expected nn.Linear that is not tied, got {kind}")


def is_computed(module: nn.Module) -> bool:
    """Whether the weight of a linear layer is computed, by a parametrization."""
    return isinstance(module, nn.Linear) and parametrize.is_parametrized(module, "weight")

"""Differences of low rank from weights that stay as they are: training that can be stored in a few bytes.

The weight of a layer becomes `(weight * (1 + gain) + left @ right)` inside its mask, gain [outputs] and the product
[outputs, rank] x [rank, inputs] being trained; the weight is not. What is trained is rounded while it is trained, to
whole steps of half the root mean square of its column or row, which take about three bits each.
"""

from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from .layers import Choice, prunable_weights
from .rounded_weights import expect_linear

STEP: Final = 0.5
"""Share of a component's root mean square that is a step."""

GAIN_STEP: Final = 1 / 512
MOST: Final = 127


class Codes(NamedTuple):
    """Whole numbers, and the step of each component."""

    codes: Tensor
    steps: Tensor

    @property
    def values(self) -> Tensor:
        return self.codes * self.steps


def codes_of(factor: Tensor, axis: int) -> Codes:
    """Return the codes of a factor whose components lie along the other axis; steps are half floats."""
    steps = (STEP * factor.square().mean(axis, keepdim=True).sqrt()).clamp(min=1e-6).half().float()
    return Codes((factor / steps).round().clamp(-MOST, MOST), steps)


def gain_codes(gain: Tensor) -> Tensor:
    """Return the codes of gains, steps of 1/512."""
    return (gain / GAIN_STEP).round().clamp(-MOST, MOST)


def _through(value: Tensor, rounded: Tensor) -> Tensor:
    """Return what is rounded, with the gradient of what was not."""
    return value + (rounded - value).detach()


class LowRank(nn.Module):
    """The difference of a weight [outputs, inputs], as a parametrization."""

    left: Any
    right: Any
    gain: Any
    mask: Tensor

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        outputs, inputs = weight.shape
        self.left = nn.Parameter(weight.new_zeros(outputs, rank))
        self.right = nn.Parameter(torch.randn(rank, inputs, device=weight.device, dtype=weight.dtype) / rank**0.5)
        self.gain = nn.Parameter(weight.new_zeros(outputs))
        self.register_buffer("mask", weight != 0)

    def forward(self, weight: Tensor) -> Tensor:
        """weight [outputs, inputs]."""
        with torch.autocast(weight.device.type, enabled=False):
            left = _through(self.left, codes_of(self.left, 0).values)
            right = _through(self.right, codes_of(self.right, 1).values)
            gain = _through(self.gain, gain_codes(self.gain) * GAIN_STEP)
            return torch.addmm(weight * (1 + gain)[:, None], left, right) * self.mask


def low_rank(module: nn.Module, rank: int, *, layers: Choice = None) -> tuple[str, ...]:
    """Freeze weights of linear layers and train a difference of low rank instead, in place; return their names.

    Zeros stay zeros. `torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")` leaves the sum.

    Raises:
        ValueError: a layer is none, is tied or no `nn.Linear`, or the rank is not positive.
    """
    if rank < 1:
        raise ValueError(f"rank: expected 1 or more, got {rank}")
    weights = [one for one in prunable_weights(module, layers) if layers is not None or one.is_whole]
    for one in weights:
        expect_linear(one)
    for one in weights:
        one.parameter.requires_grad_(False)
        parametrize.register_parametrization(one.modules[0], "weight", LowRank(one.parameter.detach(), rank))
    return tuple(one.name for one in weights)

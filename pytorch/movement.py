"""Movement of weights in training: the sum of -gradient * weight over its steps, positive away from zero.

Source: Sanh, Wolf and Rush, Movement Pruning: Adaptive Sparsity by Fine-Tuning, NeurIPS 2020.
"""

from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from .layers import PrunableWeight


class Movement:
    """The movement of some weights, by name, while it is entered."""

    def __init__(self, weights: Sequence[PrunableWeight]) -> None:
        self._weights = weights
        self._hooks = list[Any]()
        self.moved: dict[str, Tensor] = {}

    def __enter__(self) -> "Movement":
        for one in self._weights:
            self.moved[one.name] = torch.zeros_like(one.matrix)
            self._hooks.append(one.parameter.register_hook(partial(self._add, one)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()

    def _add(self, weight: PrunableWeight, gradient: Tensor) -> None:
        self.moved[weight.name] -= weight.as_matrix(weight.part_of(gradient.detach())).float() * weight.matrix

"""The weights of a module that can be pruned, each as a matrix [outputs, inputs].

Prunable are `nn.Linear`, `nn.Conv*` of one group, and the `Conv1D` of older language models, which is a linear layer
with a turned weight. A weight that an embedding shares stays dense: its rows are words, not outputs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .masks import mask_of

Choice = Callable[[str, nn.Module], bool] | Iterable[str] | None
"""A predicate of name and module, names (`*` stands for anything), or None for all layers."""


class Live(NamedTuple):
    """Outputs and inputs of a matrix [outputs, inputs] that are not masked as a whole."""

    outputs: Tensor
    inputs: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.outputs.sum()), int(self.inputs.sum())

    def part(self, matrix: Tensor) -> Tensor:
        """Return what a matrix has there."""
        return matrix[self.outputs][:, self.inputs]

    def whole(self, part: Tensor) -> Tensor:
        """Return a matrix that has a part there, and zeros elsewhere."""
        found = part.new_zeros((len(self.outputs), len(self.inputs)))
        found[self.outputs.nonzero(), self.inputs.nonzero().T] = part
        return found


@dataclass(frozen=True)
class PrunableWeight:
    """A weight, and the modules that multiply by it: more than one where it is tied."""

    name: str
    """The name of the first of these modules."""
    modules: tuple[nn.Module, ...]
    is_turned: bool

    @property
    def parameter(self) -> nn.Parameter:
        """The weight as torch stores it."""
        return self.modules[0].weight

    @property
    def matrix(self) -> Tensor:
        """The weight [outputs, inputs] in float32, without a gradient."""
        return self.as_matrix(self.parameter.detach()).float()

    def as_matrix(self, stored: Tensor) -> Tensor:
        """Return what has the shape of the weight as [outputs, inputs]; inputs of a convolution are channels x taps."""
        return stored.T if self.is_turned else stored.flatten(1)

    def as_stored(self, matrix: Tensor) -> Tensor:
        """Return a matrix [outputs, inputs] in the shape and type of the weight."""
        turned = matrix.T if self.is_turned else matrix
        return turned.reshape(self.parameter.shape).to(self.parameter.dtype)

    @property
    def zeros(self) -> int:
        return int((self.parameter == 0).sum())

    @property
    def live(self) -> Live:
        """The outputs and inputs that its mask leaves: a head that was dropped is none of them."""
        mask = mask_of(self.parameter)
        kept = torch.ones_like(self.matrix, dtype=torch.bool) if mask is None else self.as_matrix(mask) != 0
        return Live(kept.any(1), kept.any(0))

    @property
    def is_masked(self) -> bool:
        return mask_of(self.parameter) is not None


def prunable_weights(module: nn.Module, layers: Choice = None, more_than: int = 4096) -> tuple[PrunableWeight, ...]:
    """Return the weights to prune in the order of the module's layers.

    A layer of fewer takes about as long as its call: nothing is gained by zeros.

    Raises:
        ValueError: a name is that of no such layer, or there is none at all.
    """
    owners: dict[nn.Parameter, list[tuple[str, nn.Module]]] = {}
    for name, one in module.named_modules():
        # a weight that torch's parametrizations compute is no parameter
        weight = one._parameters.get("weight")
        if weight is not None and weight.numel() > more_than:
            owners.setdefault(weight, []).append((name, one))
    found = [
        PrunableWeight(sharing[0][0], tuple(one for _, one in sharing), _is_turned(sharing[0][1]))
        for sharing in owners.values()
        if all(_is_layer(one) for _, one in sharing)
    ]
    chosen = _chosen(found, layers)
    if not chosen:
        raise ValueError(f"expected nn.Linear or nn.Conv with more than {more_than} weights, got no layer to prune")
    return chosen


def _is_layer(module: nn.Module) -> bool:
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return module.groups == 1
    return isinstance(module, nn.Linear) or _is_turned(module)


def _is_turned(module: nn.Module) -> bool:
    # transformers need not be installed to tell its class
    return type(module).__name__ == "Conv1D" and isinstance(getattr(module, "weight", None), torch.Tensor)


def _chosen(found: Sequence[PrunableWeight], layers: Choice) -> tuple[PrunableWeight, ...]:
    named = {one.name: one for one in found}
    return tuple(named[name] for name in _matching({one.name: one.modules[0] for one in found}, layers))


def chosen_names(module: nn.Module, names: Iterable[str], layers: Choice) -> tuple[str, ...]:
    """Return those of some layers' names that are chosen.

    Raises:
        ValueError: a name is that of no such layer.
    """
    return _matching({name: module.get_submodule(name) for name in names}, layers)


def _matching(found: Mapping[str, nn.Module], layers: Choice) -> tuple[str, ...]:
    if layers is None:
        return tuple(found)
    if callable(layers):
        return tuple(name for name, one in found.items() if layers(name, one))
    patterns = [layers] if isinstance(layers, str) else list(layers)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in found):
            names = ", ".join(found) or "none"
            raise ValueError(f"layer to prune: expected one of {names}, got {pattern!r}")
    return tuple(name for name in found if any(fnmatchcase(name, pattern) for pattern in patterns))

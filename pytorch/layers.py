"""The weights of a module that can be pruned, each as a matrix [outputs, inputs].

Prunable are `nn.Linear`, `nn.Conv*` of one group, and the `Conv1D` of older language models, which is a linear layer
with a turned weight. A weight that an embedding shares stays dense: its rows are words, not outputs. An
`nn.MultiheadAttention` has the weights `q_proj`, `k_proj`, `v_proj` and `out_proj`: the first three are a third of its
packed weight each, where queries, keys and values are of one size.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from .masks import mask_of, set_mask

PACKED: Final = ("q_proj", "k_proj", "v_proj")
"""Weights of `nn.MultiheadAttention` that make queries, keys and values, in the order of its packed weight."""

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
    attribute: str = "weight"
    """The modules' name of the parameter."""
    rows: tuple[int, int] | None = None
    """The first row and the number of rows that are the weight, None where it is the whole parameter."""

    @property
    def parameter(self) -> nn.Parameter:
        """The parameter that the weight is, or is a part of."""
        return getattr(self.modules[0], self.attribute)

    @property
    def values(self) -> Tensor:
        """The weight as torch stores it, without a gradient; what is written there changes the parameter."""
        return self.part_of(self.parameter.detach())

    def part_of(self, whole: Tensor) -> Tensor:
        """Return what something of the shape of the parameter has for the weight."""
        return whole if self.rows is None else whole.narrow(0, *self.rows)

    @property
    def bias(self) -> Tensor | None:
        """The bias of the outputs, without a gradient; what is written there changes the parameter."""
        is_packed = isinstance(self.modules[0], nn.MultiheadAttention)
        found = getattr(self.modules[0], "in_proj_bias" if is_packed else "bias", None)
        if found is None or not is_packed:
            return None if found is None else found.detach()
        # queries, keys and values have one bias, even where they have weights of their own
        return found.detach().chunk(3)[PACKED.index(self.name.rpartition(".")[2])]

    @property
    def matrix(self) -> Tensor:
        """The weight [outputs, inputs] in float32, without a gradient."""
        return self.as_matrix(self.values).float()

    def as_matrix(self, stored: Tensor) -> Tensor:
        """Return what has the shape of the weight as [outputs, inputs]; inputs of a convolution are channels x taps."""
        return stored.T if self.is_turned else stored.flatten(1)

    def as_stored(self, matrix: Tensor) -> Tensor:
        """Return a matrix [outputs, inputs] in the shape and type of the weight."""
        turned = matrix.T if self.is_turned else matrix
        return turned.reshape(self.values.shape).to(self.parameter.dtype)

    @property
    def zeros(self) -> int:
        return int((self.values == 0).sum())

    @property
    def mask(self) -> Tensor | None:
        """The mask [outputs, inputs], None where the weight has none."""
        mask = mask_of(self.parameter)
        return None if mask is None else self.as_matrix(self.part_of(mask)) != 0

    def set_mask(self, mask: Tensor) -> None:
        """Let zeros be where a mask [outputs, inputs] has them, and stay there."""
        stored = self.as_stored(mask)
        if self.rows is not None:
            before = mask_of(self.parameter)
            whole = torch.ones_like(self.parameter) if before is None else before.clone()
            self.part_of(whole).copy_(stored)
            stored = whole
        set_mask(self.modules, stored, self.attribute)

    @property
    def live(self) -> Live:
        """The outputs and inputs that its mask leaves: a head that was dropped is none of them."""
        mask = self.mask
        kept = torch.ones_like(self.matrix, dtype=torch.bool) if mask is None else mask
        return Live(kept.any(1), kept.any(0))

    @property
    def is_whole(self) -> bool:
        """Whether the weight is that of a layer, and none of several that an attention has."""
        return self.attribute == "weight"

    @property
    def is_called(self) -> bool:
        """Whether layers multiply by the weight, which an attention does itself."""
        return self.is_whole and type(self.modules[0]).__name__ != "NonDynamicallyQuantizableLinear"


def prunable_weights(module: nn.Module, layers: Choice = None, more_than: int = 4096) -> tuple[PrunableWeight, ...]:
    """Return the weights to prune in the order of the module's layers.

    A layer of fewer takes about as long as its call: nothing is gained by zeros.

    Raises:
        ValueError: a name is that of no such layer, or there is none at all.
    """
    owners: dict[tuple[nn.Parameter, tuple[int, int] | None], list[PrunableWeight]] = {}
    for name, one in module.named_modules():
        for weight in _weights_of(name, one):
            if weight.values.numel() > more_than:
                owners.setdefault((weight.parameter, weight.rows), []).append(weight)
    found = [
        replace(sharing[0], modules=tuple(one.modules[0] for one in sharing))
        for sharing in owners.values()
        if all(_is_layer(one.modules[0]) for one in sharing)
    ]
    chosen = _chosen(found, layers)
    if not chosen:
        raise ValueError(f"expected nn.Linear or nn.Conv with more than {more_than} weights, got no layer to prune")
    return chosen


def _weights_of(name: str, module: nn.Module) -> list[PrunableWeight]:
    """Return the weights of a module itself."""
    # a weight that torch's parametrizations compute is no parameter
    if module._parameters.get("weight") is not None:
        return [PrunableWeight(name, (module,), _is_turned(module))]
    if not isinstance(module, nn.MultiheadAttention):
        return []
    packed, size = module._parameters.get("in_proj_weight"), module.embed_dim
    return [
        PrunableWeight(f"{name}.{part}".lstrip("."), (module,), False, *place)
        for index, part in enumerate(PACKED)
        for place in ([("in_proj_weight", (index * size, size))] if packed is not None else [(f"{part}_weight", None)])
        if module._parameters.get(place[0]) is not None
    ]


def _is_layer(module: nn.Module) -> bool:
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return module.groups == 1
    return isinstance(module, nn.Linear | nn.MultiheadAttention) or _is_turned(module)


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

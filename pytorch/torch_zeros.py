"""Zeros as modules of torch keep them, in masks of `torch.nn.utils.prune` or in layouts, turned into masks of ours.

A layout is what a weight is stored as: torch's own, or a class of tensors that `register_layout` names.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod

from .masks import set_mask

Dense = Callable[[Any], Tensor]
"""Return the dense tensor that a stored one stands for."""

LAYOUTS: Final[dict[type, Dense]] = {}


def register_layout(kind: type[Tensor], to_dense: Dense) -> None:
    """Let `compile`, `prune`, `keep_zeros` and `distil` read weights of a class of tensors: `to_dense(weight)`."""
    LAYOUTS[kind] = to_dense


def is_sparse(value: Tensor) -> bool:
    """Return whether a tensor is stored in a sparse layout: one of torch's, or one that was registered."""
    if value.layout != torch.strided or type(value) in LAYOUTS:
        return True
    return type(value).__name__.startswith("SparseSemiStructuredTensor")


def dense_of(value: Tensor) -> Tensor:
    """Return the dense tensor that one in a sparse layout stands for."""
    if (to_dense := LAYOUTS.get(type(value))) is not None:
        return to_dense(value).detach()
    return value.detach().to_dense()


def adopt_zeros(module: nn.Module) -> None:
    """Let weights be plain parameters, in place, with masks where `torch.nn.utils.prune` or a sparse layout has zeros.

    A masked parameter is the one that optimizers have already (`weight_orig`); one in a sparse layout, which
    optimizers of torch do not train, is replaced by a dense one of the same type.
    """
    found: dict[Tensor, tuple[list[nn.Module], Tensor]] = {}
    dense: dict[Tensor, nn.Parameter] = {}
    for one in module.modules():
        mask = _mask_of_hook(one)
        weight = one._parameters.get("weight")
        if weight is None:
            continue
        if is_sparse(weight):
            if weight not in dense:
                dense[weight] = nn.Parameter(dense_of(weight), requires_grad=weight.requires_grad)
            weight = dense[weight]
            one._parameters["weight"], mask = weight, weight.detach() != 0
        if mask is not None:
            others, before = found.get(weight, ([], torch.ones_like(mask)))
            found[weight] = ([*others, one], before * mask)
    for modules, mask in found.values():
        set_mask(modules, mask)


def _mask_of_hook(module: nn.Module) -> Tensor | None:
    """Take the pruning of a module's weight out of the module, and return the mask; None where it has none."""
    hooks: dict[int, Any] = module._forward_pre_hooks
    for key, hook in list(hooks.items()):
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == "weight":
            del hooks[key]
            module.__dict__.pop("weight", None)
            module._parameters["weight"] = module._parameters.pop("weight_orig")
            mask = module._buffers.pop("weight_mask")
            assert mask is not None
            return mask
    return None

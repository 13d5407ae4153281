"""Batches, and how a module is called with one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

Batch = Any
"""A mapping of keyword arguments, a tuple or list of arguments, or the one argument of a module."""

Module = Any
"""A module, or whatever else answers a batch."""

Output = Any
"""The value that a module returns."""

Forward = Callable[[Module, Batch], Output]
"""(module, batch) -> what the module answers."""


class Run(NamedTuple):
    """Batches, and how a module is called with them."""

    batches: Sequence[Batch]
    forward: Forward


def call(module: Module, batch: Batch) -> Output:
    """Return what a module answers to a batch."""
    if isinstance(batch, Mapping):
        return module(**batch)
    return module(*batch) if isinstance(batch, tuple | list) else module(batch)


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module's first parameter."""
    return next((one.device for one in module.parameters()), torch.device("cpu"))


def moved(batch: Batch, device: torch.device) -> Batch:
    """Return a batch with its tensors on a device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        named = cast("Mapping[str, Batch]", batch)
        return {name: moved(value, device) for name, value in named.items()}
    if isinstance(batch, tuple | list):
        values = cast("Sequence[Batch]", batch)
        return tuple(moved(value, device) for value in values)
    return batch


def token_mask(batch: Batch) -> Tensor | None:
    """Return the mask [samples, tokens] of a batch, False where tokens only fill it up; None where it has none."""
    mask = cast("Mapping[str, Any]", batch).get("attention_mask") if isinstance(batch, Mapping) else None
    return mask.bool() if mask is not None and mask.dim() == 2 else None

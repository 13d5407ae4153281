"""Whole blocks of a module: those of a transformer are found, and some of them kept."""

import re
from collections.abc import Sequence
from typing import Any, cast

from torch import nn

Config = Any
"""A configuration of transformers."""


def blocks_of(module: nn.Module) -> tuple[str, nn.ModuleList]:
    """Return the name of the longest list of blocks of one class in a module, and the list.

    Raises:
        ValueError: there is none.
    """
    found = [
        (name, one)
        for name, one in module.named_modules()
        if isinstance(one, nn.ModuleList) and len(one) and len({type(block) for block in one}) == 1
    ]
    if not found:
        raise ValueError("expected a transformer, got a module without an nn.ModuleList of blocks of one class")
    return max(found, key=lambda pair: sum(one.numel() for one in pair[1].parameters()))


def drop_layers(module: nn.Module, keep: Sequence[int]) -> nn.Module:
    """Keep some blocks of a transformer, in place, and return it: `drop_layers(copy.deepcopy(teacher), [0, 3, 5])`.

    Numbers that count layers in configurations of `transformers`, and those of layers, follow.

    Raises:
        ValueError: the module has no such blocks.
    """
    name, blocks = blocks_of(module)
    count = len(blocks)
    if not keep or sorted({*keep}) != list(keep) or not 0 <= keep[0] <= keep[-1] < count:
        raise ValueError(f"layers to keep: expected ascending numbers from 0 to {count - 1}, got {list(keep)}")
    kept = nn.ModuleList(blocks[index] for index in keep)
    parent, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(parent), attribute, kept)
    for config in {id(one): one for one in _configs(module)}.values():
        _shorten(config, count, keep)
    for index, block in enumerate(kept):
        for part in block.modules():
            # caches of keys and values are addressed by it
            if isinstance(getattr(part, "layer_idx", None), int):
                setattr(part, "layer_idx", index)  # noqa: B010
    return module


def _configs(module: nn.Module) -> list[Config]:
    return [one.config for one in module.modules() if getattr(one, "config", None) is not None]


def _shorten(config: Config, count: int, keep: Sequence[int]) -> None:
    fields = cast("dict[str, Any]", vars(config))
    for name, value in list(fields.items()):
        if name == "layer_types" and value is not None:
            config.layer_types = [value[index] for index in keep]
        elif value == count and re.fullmatch(r"(?:num_(?:hidden_)?|n_)layers?", name):
            setattr(config, name, len(keep))

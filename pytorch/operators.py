"""Modules with code of their own, and the modules of torch that compute the same: sessions run the latter."""

from collections.abc import Callable
from typing import Any, Final

from torch import nn

AsModule = Callable[[Any], nn.Module]
"""Return a module of torch's own functions that answers as a given one."""

STAND_INS: Final[dict[type[nn.Module], AsModule]] = {}


def register_operator(kind: type[nn.Module], as_module: AsModule) -> None:
    """Let `compile` take modules of a class that torch cannot export, such as one that calls a kernel of its own.

    `as_module(module)` returns the module that is compiled in its place; its weights may have any layout.
    """
    STAND_INS[kind] = as_module


def replaced_operators(module: nn.Module) -> list[tuple[nn.Module, str, nn.Module, nn.Module]]:
    """Return the modules below one that are compiled as others: parent, name, module, and what stands for it."""
    return [
        (parent, name, child, STAND_INS[type(child)](child))
        for parent in module.modules()
        for name, child in parent._modules.items()
        if child is not None and type(child) in STAND_INS
    ]

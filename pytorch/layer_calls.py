"""What comes into layers while a module runs, those among them that torch computes without calling them.

`nn.MultiheadAttention` reads its packed weight and that of `out_proj` itself. What comes into the latter is what the
attention answers with an identity in its place.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .layers import PACKED, PrunableWeight

See = Callable[[str, nn.Module, Tensor], object]
"""(name of the weight, the module that multiplies by it, what it reads)"""


@contextmanager
def seeing(module: nn.Module, weights: Sequence[PrunableWeight], see: See) -> Generator[None]:
    """Let a function see what comes into each weight whenever the module is called; of attentions samples first."""
    readers = {one.out_proj: one for one in module.modules() if isinstance(one, nn.MultiheadAttention)}
    attentions, hooks = dict[nn.MultiheadAttention, list[PrunableWeight]](), list[Any]()
    for weight in weights:
        for one in weight.modules:
            owner = one if isinstance(one, nn.MultiheadAttention) else readers.get(one)
            if owner is not None:
                attentions.setdefault(owner, []).append(weight)
            else:
                hooks.append(one.register_forward_pre_hook(partial(_see_layer, see, weight.name)))
    for owner, those in attentions.items():
        hooks.append(owner.register_forward_pre_hook(_Attention(see, those), with_kwargs=True))
    try:
        with calling_layers():
            yield
    finally:
        for hook in hooks:
            hook.remove()


def call_layers(module: nn.Module) -> None:
    """Let torch's encoders call their layers from now on: these have become others than their fast path takes."""
    for one in module.modules():
        if isinstance(one, nn.TransformerEncoderLayer):
            one.activation_relu_or_gelu = 0
        if isinstance(one, nn.TransformerEncoder):
            one.use_nested_tensor = False


@contextmanager
def calling_layers() -> Generator[None]:
    """Let torch's encoders call their layers: their fast path is one operator, which hooks and exporters do not see."""
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)


def _see_layer(see: See, name: str, module: nn.Module, arguments: tuple[Any, ...]) -> None:
    see(name, module, arguments[0])


class _Attention:
    """The sight of an attention's weights."""

    def __init__(self, see: See, weights: Sequence[PrunableWeight]) -> None:
        self._see, self._weights = see, weights
        self._is_asking = False

    def __call__(
        self, attention: nn.MultiheadAttention, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self._is_asking:
            return None
        given = signature(type(attention).forward).bind(attention, *arguments, **named).arguments
        asked = [given[name] for name in ("query", "key", "value")]
        turned = {id(one): _samples_first(attention, one) for one in asked}
        inputs = {name: turned[id(one)] for name, one in zip(PACKED, asked, strict=True)}
        for weight in self._weights:
            part = weight.name.rpartition(".")[2]
            x = self._results(attention, arguments, named) if weight.is_whole else inputs[part]
            self._see(weight.name, weight.modules[0], x)
        return None

    def _results(self, attention: nn.MultiheadAttention, arguments: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        """Return what comes into `out_proj`."""
        reader: Any = attention.out_proj
        places = {"out_proj.weight": torch.eye(len(reader.weight)).to(reader.weight)}
        if reader.bias is not None:
            places["out_proj.bias"] = torch.zeros_like(reader.bias)
        self._is_asking = True
        try:
            return _samples_first(attention, functional_call(attention, places, arguments, named)[0])
        finally:
            self._is_asking = False


def _samples_first(attention: nn.MultiheadAttention, x: Tensor) -> Tensor:
    return x if attention.batch_first or x.dim() < 3 else x.transpose(0, 1)

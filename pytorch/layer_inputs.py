"""Inputs of layers while a module runs, and statistics of them: mean squares, or the products X^T X / rows.

Torch computes some layers without calling them: `nn.MultiheadAttention` reads its packed weight and that of `out_proj`
itself. What comes into the latter is what the attention answers with an identity in its place.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from .batches import Batch, Module, Run, device_of, moved, token_mask
from .layers import PACKED, PrunableWeight
from .sparsifiers import Reads

WINDOWS: Final = 16384
"""Windows of a convolution, about, that are looked at in each batch."""

See = Callable[[str, nn.Module, Tensor], object]
"""(name of the weight, the module that multiplies by it, what it reads)"""


def layer_inputs(module: nn.Module, weights: Sequence[PrunableWeight], run: Run, reads: Reads) -> Mapping[str, Tensor]:
    """Return what `reads` says of the inputs of each weight that was used, by name, in float32 on its device.

    Layers that read the same tensor, in the same windows, share one result. Tokens that an `attention_mask` leaves out
    do not count.
    """
    sums = _Sums(reads)
    was_training, device = module.training, device_of(module)
    module.eval()
    try:
        with seeing(module, weights, sums.see), torch.no_grad(), torch.autocast(device.type, enabled=False):
            for batch in run.batches:
                sums.start(batch := moved(batch, device))
                run.forward(module, batch)
    finally:
        module.train(was_training)
    return sums.means()


class _Sums:
    """Sums over rows; several layers that get the same tensor in the first batch are counted once, by the first."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._sums: dict[str, Tensor] = {}
        self._rows: dict[str, int] = {}
        self._leaders: dict[str, str] = {}
        self._seen: dict[tuple[object, ...], tuple[str, Any]] = {}
        self._mask: Tensor | None = None

    def start(self, batch: Batch) -> None:
        self._seen, self._mask = {}, token_mask(batch)

    def see(self, name: str, module: nn.Module, x: Tensor) -> None:
        # the tensor is held, so that no other one has its id
        leader, _ = self._seen.setdefault((id(x), *_window(module)), (name, x))
        if leader != name and self._leaders.setdefault(name, leader) == leader and name not in self._sums:
            return
        rows = _rows(module, x, self._mask).float()
        found = rows.square().sum(0) if self._reads == "norms" else rows.T @ rows
        self._sums[name] = self._sums[name] + found if name in self._sums else found
        self._rows[name] = self._rows.get(name, 0) + len(rows)

    def means(self) -> dict[str, Tensor]:
        found = {name: total / max(1, self._rows[name]) for name, total in self._sums.items()}
        return found | {name: found[leader] for name, leader in self._leaders.items() if name not in found}


def _window(module: Module) -> tuple[object, ...]:
    """Return what rows of a convolution depend on beside its input: another one may read that in other windows."""
    names = ("kernel_size", "stride", "padding", "dilation", "padding_mode")
    return tuple(getattr(module, name, None) for name in names)


def _rows(module: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the rows [rows, inputs] that a layer multiplies; of convolutions some windows."""
    if not isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        counts = mask is not None and x.shape[:2] == mask.shape
        return x[mask] if counts else x.reshape(-1, x.shape[-1])
    windows = _windows(module, x)
    step = max(1, len(windows) // WINDOWS)
    return windows[::step]


def _windows(module: Module, x: Tensor) -> Tensor:
    """Return the windows [rows, channels x taps] of a convolution in any number of dimensions."""
    axes = len(module.kernel_size)
    if x.dim() == axes + 1:
        x = x[None]
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    padded = functional.pad(x, _padding(module), mode=mode)
    sizes = zip(module.kernel_size, module.stride, module.dilation, strict=True)
    for axis, (size, stride, dilation) in enumerate(sizes):
        padded = padded.unfold(2 + axis, (size - 1) * dilation + 1, stride)[..., ::dilation]
    # [samples, channels, places..., taps...]
    places = list(range(2, 2 + axes))
    taps = list(range(2 + axes, 2 + 2 * axes))
    ordered = padded.permute(0, *places, 1, *taps)
    # few images, spread evenly, have windows enough
    images = max(1, -(-2 * WINDOWS // max(1, ordered[0].shape[:axes].numel())))
    some = ordered[:: max(1, len(ordered) // images)]
    return some.reshape(-1, module.weight[0].numel())


def _padding(module: Module) -> list[int]:
    if isinstance(module.padding, str):
        return list(module._reversed_padding_repeated_twice)
    return [pad for size in reversed(module.padding) for pad in (size, size)]


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

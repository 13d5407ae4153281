"""Fake quantization of layers: a module is trained with the rounding that its form of eight or four bits will have.

Of eight bits, weights have a scale for each output and are symmetric, so zeros stay zero; inputs have one scale and a
zero point, from the range that data has. Gradients pass through the rounding. The legacy exporter of torch
(`dynamo=False`) writes QuantizeLinear and DequantizeLinear, the form that int8 kernels take. Of four bits, only weights
are rounded (`few_bits`).
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import torch
from torch import Tensor, nn

from .batches import Batch, Forward, Module, call, device_of, moved
from .layer_inputs import call_layers, seeing
from .layers import Choice, PrunableWeight, prunable_weights


def quantize(
    module: nn.Module,
    data: Iterable[Batch] | None = None,
    *,
    bits: Literal[4, 8] = 8,
    group: int = 32,
    layers: Choice = None,
    forward: Forward = call,
) -> tuple[str, ...]:
    """Let linear layers and convolutions compute as if with few bits, in place; return their names.

    Of eight bits a layer that no batch of `data` reaches stays as it is. Of four bits only the weights of linear layers
    are rounded, in groups of so many inputs with a scale each, which needs no data. Masks stay, and so do names of
    parameters.

    Raises:
        ValueError: a layer is none, or is shared or of a kind that has no such form, or data are missing.
    """
    if bits == 4:
        return _with_four_bits(module, group, layers)
    if bits != 8 or data is None:
        raise ValueError(f"quantize: expected 4 bits, or 8 with data, got {bits} and {'no ' * (data is None)}data")
    weights = {one.name: one for one in prunable_weights(module, layers) if layers is not None or one.is_called}
    for name, one in weights.items():
        kind = type(one.modules[0])
        if len(one.modules) > 1 or kind not in FORMS:
            raise ValueError(f"layer {name!r}: expected nn.Linear or nn.Conv that is not tied, got {kind.__name__}")
    ranges = _ranges(module, list(weights.values()), data, forward)
    call_layers(module)
    for name, (least, greatest) in ranges.items():
        _set_form(weights[name].modules[0], weights[name].matrix, least, greatest)
    return tuple(ranges)


def _with_four_bits(module: nn.Module, group: int, layers: Choice) -> tuple[str, ...]:
    from .few_bits import set_few_bits

    found = prunable_weights(module, layers)
    if layers is None:
        found = [one for one in found if type(one.modules[0]) is nn.Linear and len(one.modules) == 1]
    for one in found:
        kind = type(one.modules[0])
        if len(one.modules) > 1 or kind is not nn.Linear:
            raise ValueError(f"layer {one.name!r}: expected nn.Linear that is not tied, got {kind.__name__}")
    call_layers(module)
    for one in found:
        set_few_bits(one.modules[0], group)
    return tuple(one.name for one in found)


def _ranges(
    module: nn.Module, weights: Sequence[PrunableWeight], data: Iterable[Batch], forward: Forward
) -> dict[str, tuple[float, float]]:
    """Return the least and the greatest value that comes into each layer, 0 among them."""
    found: dict[str, tuple[float, float]] = {}

    def see(name: str, _: nn.Module, x: Tensor) -> None:
        least, greatest = found.get(name, (0.0, 0.0))
        found[name] = min(least, float(x.min())), max(greatest, float(x.max()))

    was_training = module.training
    module.eval()
    try:
        with seeing(module, weights, see), torch.no_grad():
            for batch in data:
                forward(module, moved(batch, device_of(module)))
    finally:
        module.train(was_training)
    return found


def _set_form(layer: nn.Module, matrix: Tensor, least: float, greatest: float) -> None:
    """Make a layer one of the quantized class of its kind: its parameters, hooks and names are what they were."""
    scale = max(greatest - least, 1e-8) / 255
    device = matrix.device
    buffers = {
        "input_scale": torch.tensor(scale, device=device),
        "input_zero": torch.tensor(round(-least / scale), dtype=torch.int32, device=device),
        "weight_scale": matrix.abs().amax(1).clamp(min=1e-8) / 127,
        "weight_zero": torch.zeros(len(matrix), dtype=torch.int32, device=device),
    }
    for name, value in buffers.items():
        layer.register_buffer(name, value)
    setattr(layer, "__class__", FORMS[type(layer)])  # noqa: B010


def _floats(x: Tensor) -> Tensor:
    # a cast that does nothing would be a node of the exported graph
    return x if x.dtype == torch.float32 else x.float()


def _rounded_inputs(layer: Module, x: Tensor) -> Tensor:
    return torch.fake_quantize_per_tensor_affine(_floats(x), layer.input_scale, layer.input_zero, 0, 255)


def _rounded_weight(layer: Module, weight: Tensor, axis: int) -> Tensor:
    """Return a weight as eight bits hold it; outputs lie along an axis."""
    return torch.fake_quantize_per_channel_affine(
        _floats(weight), layer.weight_scale, layer.weight_zero, axis, -128, 127
    )


class QuantizedLinear(nn.Linear):
    """A linear layer of eight bits."""

    def forward(self, x: Tensor) -> Tensor:
        # turned before it is rounded: exporters turn the constant, and no node is left between its codes and MatMul
        product = torch.matmul(_rounded_inputs(self, x), _rounded_weight(self, self.weight.T, 1))
        return product if self.bias is None else product + self.bias


class _QuantizedConvolution:
    """A convolution of eight bits, in any number of dimensions."""

    def forward(self: Module, x: Tensor) -> Tensor:
        return self._conv_forward(_rounded_inputs(self, x), _rounded_weight(self, self.weight, 0), self.bias)


class QuantizedConv1d(_QuantizedConvolution, nn.Conv1d):
    """A convolution of eight bits over one dimension."""


class QuantizedConv2d(_QuantizedConvolution, nn.Conv2d):
    """A convolution of eight bits over two dimensions."""


class QuantizedConv3d(_QuantizedConvolution, nn.Conv3d):
    """A convolution of eight bits over three dimensions."""


FORMS: Final[dict[type[nn.Module], type[nn.Module]]] = {
    nn.Linear: QuantizedLinear,
    nn.Conv1d: QuantizedConv1d,
    nn.Conv2d: QuantizedConv2d,
    nn.Conv3d: QuantizedConv3d,
}

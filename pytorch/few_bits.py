# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false
"""Linear layers whose weights are codes of four bits in groups of inputs, trained with the rounding.

Codes are those of `redpebble prune --precision int4`: whole steps of a scale for each group, the largest value of a
group a code exactly, zeros the code of the zero; rounding and gradients are those of `rounded_weights`. The legacy
exporter of torch (`dynamo=False`) writes MatMulNBits of onnxruntime, whose codes a session of ours reads.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..pruning.coded_model import BITS, packed
from ..pruning.solving.few_bits import Coded, Grid
from .rounded_weights import rounded

Traced = Any
"""The context of a function, a graph of torch's legacy exporter, or a value in it."""


class FewBitsLinear(nn.Linear):
    """A linear layer of four bits."""

    group: int

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        if not torch.onnx.is_in_onnx_export():
            return functional.linear(input, rounded(self.weight, self.group).to(input.dtype), self.bias)
        weight = np.ascontiguousarray(self.weight.detach().cpu().float().numpy().T)
        nearest, of_groups = Grid(self.group).nearest(weight)
        codes, scales = packed(Coded(nearest, of_groups), Grid(self.group)), of_groups.T.copy()
        product: Tensor = _Product.apply(input, torch.from_numpy(codes), torch.from_numpy(scales), self)
        return product if self.bias is None else product + self.bias


class _Product(torch.autograd.Function):
    """MatMulNBits where a module is traced."""

    @staticmethod
    def forward(ctx: Traced, x: Tensor, codes: Tensor, scales: Tensor, layer: FewBitsLinear) -> Tensor:
        del ctx, codes, scales
        return x.new_zeros((*x.shape[:-1], layer.out_features))

    @staticmethod
    def symbolic(graph: Traced, x: Traced, codes: Traced, scales: Traced, layer: FewBitsLinear) -> Traced:
        sizes = {"K_i": layer.in_features, "N_i": layer.out_features, "bits_i": BITS, "block_size_i": layer.group}
        product = graph.op("com.microsoft::MatMulNBits", x, codes, scales, **sizes)
        sizes_of_x = x.type().sizes()
        if sizes_of_x is not None:
            product.setType(x.type().with_sizes([*sizes_of_x[:-1], layer.out_features]))
        return product


def set_few_bits(layer: nn.Module, group: int) -> None:
    """Make a linear layer one of four bits, in place: its parameters, hooks and names are what they were.

    Raises:
        ValueError: MatMulNBits has no groups of so many.
    """
    if group < 16 or group & (group - 1):
        raise ValueError(f"group: expected a power of two, 16 or more, got {group}")
    setattr(layer, "__class__", FewBitsLinear)  # noqa: B010
    setattr(layer, "group", group)  # noqa: B010

"""Weights as a file has them (floats of any width, or codes of quantized values), as layers want them, and back.

```
MatMul, Gemm      W [inputs, outputs], or turned, maybe behind Transpose, Identity or Cast
...Integer        the same in codes less a zero
DequantizeLinear  codes with a scale for all, for each output, or for each block of inputs
MatMulNBits       packed codes [outputs, blocks, bytes] of com.microsoft
```
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..sparsifiers import without_denormals
from .nodes import Node
from .rounding import RANGES, Rounding, expanded

Array = NDArray[Any]

FLOATS: Final = (1, 10, 16)
"""Element types that are trained as float32."""

PASSED: Final = ("Identity", "Cast", "Transpose", "DequantizeLinear")
"""Operators that a weight may stand behind."""


@dataclass(frozen=True)
class StoredWeight:
    """A weight [outputs, inputs, ...] of a layer, and the way to the constant that it is stored in."""

    constant: str
    """The name of the initializer, or of a Constant's output."""
    values: Tensor
    rounding: Rounding | None
    """None where the file holds floats."""
    pack: Callable[[Tensor], Array]
    """(floats, or codes, in the shape of `values`) -> what the constant holds."""
    product_scale: float = 1.0
    """The number that outputs are divided by: codes that are multiplied as they are have no scale of their own."""

    def stored(self, values: Tensor) -> Array:
        """Return the constant for other values."""
        found = without_denormals(values) if self.rounding is None else self.rounding.codes(values)
        return self.pack(found.detach().cpu())


def stored_weight(value: onnx_ir.Value, constants: "Constants", *, turned: bool) -> StoredWeight | None:
    """Return the weight behind a value, turned or not to have its outputs first; None where it is no such constant."""
    permutations, scales, root = list[list[int] | None](), None, value
    while root.name not in constants.raw:
        node = root.producer()
        if node is None or node.op_type not in PASSED or node.domain not in ("", "ai.onnx") or not node.inputs:
            return None
        if node.op_type == "Transpose":
            permutations.append(Node.of(node, 0).ints("perm"))
        elif node.op_type == "DequantizeLinear":
            # codes that are moved before they become floats are moved together with their scales: too rare
            if scales is not None:
                return None
            scales = (node, len(permutations))
        before = node.inputs[0]
        if before is None:
            return None
        root = before
    array = constants.raw[root.name]
    kind = constants.types[root.name]
    orders = [one or list(reversed(range(array.ndim))) for one in reversed(permutations)]
    if kind not in (FLOATS if scales is None else RANGES) or array.ndim < 2:
        return None

    def moved(one: Tensor) -> Tensor:
        for order in orders:
            one = one.permute(order)
        return one.transpose(0, 1) if turned else one

    def back(one: Tensor) -> Tensor:
        one = one.transpose(0, 1) if turned else one
        for order in reversed(orders):
            one = one.permute([order.index(axis) for axis in range(len(order))])
        return one.contiguous()

    def pack(one: Tensor) -> Array:
        return back(one).numpy().astype(array.dtype)

    whole = torch.from_numpy(array.astype(np.float32))
    if scales is None:
        return StoredWeight(root.name or "", moved(whole).contiguous(), None, pack)
    rounding = _rounding(scales[0], whole, kind, constants)
    if rounding is None:
        return None
    wide = (one.expand(whole.shape) for one in (rounding.scale, rounding.zero))
    scale, zero = (moved(one).contiguous() for one in wide)
    found = Rounding(scale, zero, rounding.least, rounding.greatest)
    return StoredWeight(root.name or "", found.values(moved(whole)).contiguous(), found, pack)


def _rounding(node: onnx_ir.Node, whole: Tensor, kind: int, constants: "Constants") -> Rounding | None:
    said = Node.of(node, 0)
    names = [None if one is None else one.name for one in node.inputs[1:3]]
    if any(name is not None and name not in constants.raw for name in names):
        return None
    scale, *zeros = (torch.from_numpy(constants.raw[name].astype(np.float32)) for name in names if name is not None)
    axis, block = said.get("axis", 1), said.get("block_size", 0)
    own = expanded(scale, whole.shape, axis, block)
    zero = expanded(zeros[0], whole.shape, axis, block) if zeros else torch.zeros_like(own)
    return Rounding(own, zero, *RANGES[kind])


def integer_weight(node: onnx_ir.Node, constants: "Constants", *, turned: bool) -> StoredWeight | None:
    """Return the weight of MatMulInteger or ConvInteger: codes less their zeros."""
    name = node.inputs[1].name if node.inputs[1] is not None else None
    zero_value = node.inputs[3] if len(node.inputs) > 3 else None
    if name is None or name not in constants.raw or (zero_value is not None and zero_value.name not in constants.raw):
        return None
    array, kind = constants.raw[name], constants.types[name]
    if kind not in RANGES or array.ndim < 2:
        return None

    def moved(one: Tensor) -> Tensor:
        return (one.transpose(0, 1) if turned else one).contiguous()

    whole = torch.from_numpy(array.astype(np.float32))
    zero = (
        torch.zeros(()) if zero_value is None else torch.from_numpy(constants.raw[zero_value.name].astype(np.float32))
    )
    zeros = expanded(zero, whole.shape, 1 if turned else 0, 0).expand(whole.shape)
    steps = moved(whole - zeros)
    wide = steps.std().clamp(min=1e-6) * (steps[0].numel() ** 0.5)
    scale = float(1 / wide)
    rounding = Rounding(torch.full_like(steps, scale), moved(zeros), *RANGES[kind])
    return StoredWeight(name, steps * scale, rounding, lambda one: moved(one).numpy().astype(array.dtype), scale)


def packed_weight(node: onnx_ir.Node, constants: "Constants") -> StoredWeight | None:
    """Return the weight [outputs, inputs] of MatMulNBits."""
    said = Node.of(node, 0)
    inputs, outputs, bits, size = (int(said.attributes[name]) for name in ("K", "N", "bits", "block_size"))
    names = [None if one is None else one.name for one in node.inputs]
    others = [name for name in names[4:5] if name is not None]
    if bits not in (4, 8) or others or any(one is not None and one not in constants.raw for one in names[1:4]):
        return None
    name = names[1] or ""
    array, blocks = constants.raw[name], -(-inputs // size)
    codes = unpacked(array.reshape(outputs, -1), bits)
    scales = constants.raw[names[2] or ""].astype(np.float32).reshape(outputs, blocks)
    middle = np.full((outputs, blocks), 1 << (bits - 1), np.float32)
    if len(names) > 3 and names[3] is not None:
        zeros = constants.raw[names[3]]
        if zeros.dtype == np.uint8:
            middle = unpacked(zeros.reshape(outputs, -1), bits)[:, :blocks].astype(np.float32)
        else:
            middle = zeros.astype(np.float32).reshape(outputs, blocks)
    scale, zero = (torch.from_numpy(one.repeat(size, axis=1)[:, :inputs].copy()) for one in (scales, middle))
    rounding = Rounding(scale, zero, 0, (1 << bits) - 1)

    def pack(one: Tensor) -> Array:
        whole = codes.copy()
        whole[:, :inputs] = one.numpy().astype(np.uint8)
        return packed(whole, bits).reshape(array.shape)

    own = torch.from_numpy(codes[:, :inputs].astype(np.float32))
    return StoredWeight(name, rounding.values(own), rounding, pack)


def unpacked(rows: Array, bits: int) -> Array:
    """Return the codes of rows of bytes; of two in a byte the first one is the lower half."""
    return rows if bits == 8 else np.stack((rows & 15, rows >> 4), axis=-1).reshape(len(rows), -1)


def packed(codes: Array, bits: int) -> Array:
    """Return rows of bytes."""
    return codes if bits == 8 else codes[:, ::2] | (codes[:, 1::2] << 4)


@dataclass(frozen=True)
class Constants:
    """Initializers and Constant nodes of the main graph, by the name of their value, with their element types."""

    raw: dict[str | None, Array]
    types: dict[str | None, int]

    @staticmethod
    def of(model: onnx_ir.Model) -> "Constants":
        found = Constants({}, {})
        for name, value in model.graph.initializers.items():
            if value.const_value is not None:
                found._add(name, value.const_value)
        for node in model.graph:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                found._add(node.outputs[0].name, _held(node))
        return found

    def _add(self, name: str | None, tensor: onnx_ir.TensorProtocol) -> None:
        self.raw[name], self.types[name] = tensor.numpy(), int(tensor.dtype)

    def tensor(self, name: str | None) -> Tensor:
        """Return a constant; half floats are whole ones here."""
        array, kind = self.raw[name], self.types[name]
        if kind in FLOATS:
            array = array.astype(np.float32)
        elif kind in (21, 22):
            array = array.astype(np.int8)
        # arrays of files may not be written to
        return torch.from_numpy(np.array(array))


def _held(node: onnx_ir.Node) -> onnx_ir.TensorProtocol:
    (name, attribute), *_ = node.attributes.items()
    if name == "value":
        return attribute.as_tensor()
    dtype = np.float32 if "float" in name else np.int64
    return onnx_ir.tensor(np.array(attribute.value, dtype))

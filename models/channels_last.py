"""Networks on images [batch, height, width, channels], node by node as converters of TensorFlow and Keras write them.

Each convolution stands between two Transposes, a batch norm is Sub, Mul and Add, windows that move by two pixels have
a Pad before them, often on one side alone, and the mean of all pixels is a ReduceMean. Weights are random; those of
convolutions of several channels, but for the first one, are mostly zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike

from .graph_builder import GraphBuilder, Output
from .pruned_weights import magnitude_mask

if TYPE_CHECKING:
    import onnx_ir as ir

FIRST: Final = (0, 3, 1, 2)
LAST: Final = (0, 2, 3, 1)
OPSET: Final = 13
"""The opset that most of these converters write."""

COLOURS: Final = 3


class LayerWriter:
    """Writes layers on images whose channels stand last."""

    def __init__(self, rng: np.random.Generator, density: float) -> None:
        """Write layers of random weights of which a share is not zero."""
        self.builder = GraphBuilder(OPSET)
        self._rng, self._density, self._count = rng, density, 0

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"

    def op(self, op_type: str, *inputs: ir.Value, **attributes: object) -> ir.Value:
        """Write a node."""
        return self.builder.op(op_type, inputs, self._name(op_type), attributes)

    def _constant(self, kind: str, values: ArrayLike, dtype: type[np.float32 | np.int64] = np.float32) -> ir.Value:
        return self.builder.constant(self._name(kind), np.asarray(values, dtype))

    def convolution(self, x: ir.Value, widths: tuple[int, int], taps: int = 3, stride: int = 1) -> ir.Value:
        """Write a convolution, one of each channel alone where there are no `widths` but 1 and their number."""
        inputs, outputs = widths
        weight = self._rng.standard_normal((outputs, inputs, taps, taps), dtype=np.float32)
        weight *= np.float32((inputs * taps * taps) ** -0.5)
        if inputs > COLOURS:
            weight *= magnitude_mask(weight, 1 - self._density) * np.float32(self._density**-0.5)
        groups = outputs if inputs == 1 else 1
        if stride > 1 and taps > 1:
            before, after = (taps // 2, taps // 2) if taps > 3 else (0, 1)
            sides = self._constant("pads", [0, before, before, 0, 0, after, after, 0], np.int64)
            x = self.op("Pad", x, sides, mode="constant")
        pads = [taps // 2] * 4 if stride == 1 else [0] * 4
        turned = self.op("Transpose", x, perm=FIRST)
        result = self.op(
            "Conv",
            turned,
            self._constant("kernel", weight),
            kernel_shape=[taps, taps],
            strides=[stride, stride],
            pads=pads,
            group=groups,
        )
        return self.op("Transpose", result, perm=LAST)

    def batch_norm(self, x: ir.Value, width: int) -> ir.Value:
        """Write a batch norm as what it computes."""
        low, high = -0.1, 0.1
        mean, shift = (self._constant("shift", self._rng.uniform(low, high, width)) for _ in range(2))
        scale = self._constant("scale", self._rng.uniform(0.8, 1.2, width))
        return self.op("Add", self.op("Mul", self.op("Sub", x, mean), scale), shift)

    def layer(
        self, x: ir.Value, widths: tuple[int, int], taps: int = 3, stride: int = 1, *, activation: str = "Relu"
    ) -> ir.Value:
        """Write a convolution, its batch norm, and an activation or none."""
        result = self.batch_norm(self.convolution(x, widths, taps, stride), widths[1])
        if activation == "Relu6":
            limits = [self._constant("limit", limit) for limit in (0.0, 6.0)]
            return self.op("Clip", result, *limits)
        return self.op(activation, result) if activation else result

    def bottleneck(self, x: ir.Value, inputs: int, inner: int, stride: int) -> ir.Value:
        """Write a block of three convolutions beside one of one tap, or beside nothing."""
        outputs = 4 * inner
        beside = x
        if stride != 1 or inputs != outputs:
            beside = self.layer(x, (inputs, outputs), 1, stride, activation="")
        inside = self.layer(x, (inputs, inner), 1, stride)
        inside = self.layer(inside, (inner, inner))
        return self.op("Relu", self.op("Add", self.layer(inside, (inner, outputs), 1, activation=""), beside))

    def separable(self, x: ir.Value, widths: tuple[int, int], stride: int) -> ir.Value:
        """Write a convolution of each channel, and one of one tap behind it."""
        spread = self.layer(x, (1, widths[0]), 3, stride, activation="Relu6")
        return self.layer(spread, widths, 1, activation="Relu6")

    def head(self, x: ir.Value, width: int, classes: int) -> ir.Value:
        """Write the mean of all pixels, a linear layer, and shares of the classes."""
        mean = self.op("ReduceMean", x, axes=[1, 2], keepdims=0)
        weight = self._rng.standard_normal((width, classes), dtype=np.float32) * np.float32(0.01 * width**-0.5)
        product = self.op("MatMul", mean, self._constant("kernel", weight))
        return self.op("Softmax", self.op("Add", product, self._constant("bias", np.zeros(classes))), axis=-1)


@dataclass(frozen=True)
class ChannelsLast:
    """Sizes of a network: pixels along a side, width of its first blocks, blocks of each stage, share of weights."""

    side: int = 32
    width: int = 16
    blocks: Sequence[int] = (1, 1)
    density: float = 0.1
    classes: int = 10

    def residual(self, rng: np.random.Generator) -> ir.Model:
        """Return a ResNet of bottlenecks: x [batch, side, side, 3] -> shares [batch, classes]."""
        layers, x = self._start(rng)
        values = layers.layer(x, (COLOURS, self.width), 7, 2)
        values = layers.op("Transpose", values, perm=FIRST)
        values = layers.op("MaxPool", values, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
        values = layers.op("Transpose", values, perm=LAST)
        inputs = self.width
        for stage, count in enumerate(self.blocks):
            inner = self.width << stage
            for block in range(count):
                values = layers.bottleneck(values, inputs, inner, 2 if block == 0 and stage else 1)
                inputs = 4 * inner
        return self._model(layers, values, inputs, "residual")

    def separable(self, rng: np.random.Generator) -> ir.Model:
        """Return a MobileNet: x [batch, side, side, 3] -> shares [batch, classes]."""
        layers, x = self._start(rng)
        values, inputs = layers.layer(x, (COLOURS, self.width), 3, 2, activation="Relu6"), self.width
        for stage, count in enumerate(self.blocks):
            for block in range(count):
                outputs = self.width << (stage + 1)
                values = layers.separable(values, (inputs, outputs), 2 if block == 0 and stage else 1)
                inputs = outputs
        return self._model(layers, values, inputs, "separable")

    def _start(self, rng: np.random.Generator) -> tuple[LayerWriter, ir.Value]:
        layers = LayerWriter(rng, self.density)
        return layers, layers.builder.input("x", ("batch", self.side, self.side, COLOURS))

    def _model(self, layers: LayerWriter, values: ir.Value, width: int, name: str) -> ir.Model:
        shares = layers.head(values, width, self.classes)
        return layers.builder.model(name, {"shares": Output(shares, ("batch", self.classes))})

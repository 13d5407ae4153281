"""The networks and images of the Sparse DNN Graph Challenge, regenerated.

A layer is Z = Y W; where Z is not 0, Z += bias; Y = min(max(Z, 0), 32). The model adds the bias everywhere, which is
the same: the bias is negative, so where Z is 0 the sum is negative and the clamp returns 0.

Every weight is 1/16 and every neuron has 32 connections each way. With C = neurons / 16 classes, neuron a * C + c
(a below 16) of a base layer of stride s feeds every neuron (a', c) and (a', (c + s) mod C): the C x C core
I + shift(s), tiled 16 by 16. There are K = log2(C) base layers, of stride 1, 2, 4, ...; each later layer is one of
these with its inputs permuted at random.

On disk a base layer is the 2 C column numbers of its core, a later layer its permutation, and a weight-only subgraph
makes the matrices when the model is loaded:

    ScatterElements(zeros[C, C], columns[C, 2], 1/16)  ->  Tile 16 x 16  ->  Gather(permutation), later layers only

With `compact` a layer holds the values and gaps of its connections, 6 bytes each, as `redpebble optimize` writes them.
Our frontend makes sparse weights of both forms without a dense one in between, at any width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..sparse.csr import CsrPattern
from .graph_builder import GraphBuilder, Output
from .recipe import require, require_at_least

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..export.writing.compact_weights import CompactWeight

COPIES: Final = 16
"""Neurons of a class; also 1 / weight."""

BIASES: Final = MappingProxyType({1024: -0.30, 4096: -0.35, 16384: -0.40, 65536: -0.45})
"""Neurons of a layer -> bias of the challenge."""

CLAMP: Final = 32.0

_DRAWN_SIDE: Final = 32


@dataclass(frozen=True)
class RadixNet:
    """Sparse DNN Graph Challenge: `layers` layers of 1024, 4096, 16384 or 65536 `neurons`, 32 connections each.

    Small on disk, but a dense layer is 4 bytes * neurons^2 once a runtime folds it: 4 MB, 64 MB, 1 GB, 17 GB. With
    `compact` every connection is on disk, in a data file: 24 MB, 94 MB, 377 MB and 1.5 GB for 120 layers.
    """

    neurons: int = 1024
    layers: int = 120
    compact: bool = False

    def __post_init__(self) -> None:
        """Check the parameters."""
        require(self.neurons in BIASES, "neurons", self.neurons, ", ".join(map(str, BIASES)))
        require_at_least(1, layers=self.layers)

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: y0 [batch, neurons] -> y [batch, neurons]; the permutations are drawn layer by layer."""
        from ..export.save_model import remember_external_weights

        builder = GraphBuilder()
        dims = ("batch", self.neurons)
        value = builder.input("y0", dims)
        bias = builder.constant("bias", np.full(self.neurons, BIASES[self.neurons], dtype=np.float32))
        limits = {"min": 0.0, "max": CLAMP}
        bounds = [builder.constant(name, np.array(limit, dtype=np.float32)) for name, limit in limits.items()]
        for layer, weight in enumerate(self._weights(builder, rng)):
            if self.compact:
                value = builder.op("Gemm", [value, weight, bias], f"/layers.{layer}/Gemm", {"transB": 1})
            else:
                value = builder.op("MatMul", [value, weight], f"/layers.{layer}/MatMul")
                value = builder.op("Add", [value, bias], f"/layers.{layer}/Add")
            value = builder.op("Clip", [value, *bounds], f"/layers.{layer}/Clip")
        model = builder.model("radixnet", {"y": Output(value, dims)})
        if self.compact:
            remember_external_weights(model)
        return model

    def _weights(self, builder: GraphBuilder, rng: np.random.Generator) -> Iterator[ir.Value]:
        """The matrices: [outputs, inputs] of compact layers, [inputs, outputs] of the others."""
        if self.compact:
            from ..export.writing.compact_weights import compact_entries

            decoder = _Decoder.start(builder, self.neurons)
            for layer, pattern in enumerate(layer_patterns(self, rng)):
                flat_indices = pattern.rows * self.neurons + pattern.indices
                values = np.full(len(flat_indices), 1 / COPIES, dtype=np.float32)
                yield decoder.add(
                    compact_entries((self.neurons, self.neurons), flat_indices, values), f"layers.{layer}"
                )
            return
        base_count = base_layer_count(self.neurons)
        cores = _BaseLayers.start(builder, self.neurons)
        bases = [cores.add(k) for k in range(min(base_count, self.layers))]
        for layer in range(self.layers):
            weight = bases[layer % base_count]
            permutation = rng.permutation(self.neurons) if layer >= base_count else None
            yield weight if permutation is None else _permuted(builder, weight, permutation, f"layers.{layer}")


def radixnet_images(neurons: int, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Binary images of one to three thick strokes, like handwritten digits: shape [count, neurons], about 10 % ones.

    Neuron row * sqrt(neurons) + column is the pixel. Images are drawn with 32 x 32 pixels and enlarged by repetition.
    """
    drawn = np.zeros((count, _DRAWN_SIDE, _DRAWN_SIDE), dtype=np.bool_)
    for image in drawn:
        for _ in range(int(rng.integers(1, 4))):
            image |= _stroke(rng)
    enlargement = round(neurons**0.5) // _DRAWN_SIDE
    enlarged = drawn.repeat(enlargement, axis=1).repeat(enlargement, axis=2)
    return enlarged.reshape(count, neurons).astype(np.float32)


def _stroke(rng: np.random.Generator) -> NDArray[np.bool_]:
    """The pixels within the pen's radius of a random quadratic Bezier curve."""
    start, bend, end = rng.uniform(0.2, 0.8, (3, 2)) * _DRAWN_SIDE
    t = np.linspace(0.0, 1.0, _DRAWN_SIDE)[:, None]
    curve = (1 - t) ** 2 * start + 2 * t * (1 - t) * bend + t**2 * end
    pixels = np.arange(_DRAWN_SIDE)
    row_offsets = np.square(curve[:, :1] - pixels)
    column_offsets = np.square(curve[:, 1:] - pixels)
    nearest = (row_offsets[:, :, None] + column_offsets[:, None, :]).min(axis=0)
    radius = rng.uniform(0.03, 0.07) * _DRAWN_SIDE
    return nearest <= radius**2


@dataclass(frozen=True)
class _BaseLayers:
    """Writes the matrices of the base layers, which share their zeros, values and repeats."""

    builder: GraphBuilder
    class_count: int
    zeros: ir.Value
    values: ir.Value
    repeats: ir.Value

    @staticmethod
    def start(builder: GraphBuilder, neurons: int) -> _BaseLayers:
        class_count = neurons // COPIES
        shape = builder.constant("core.shape", np.array([class_count, class_count], dtype=np.int64))
        pair = builder.constant("core.pair", np.array([class_count, 2], dtype=np.int64))
        weight = builder.constant("weight", np.array(1 / COPIES, dtype=np.float32))
        return _BaseLayers(
            builder=builder,
            class_count=class_count,
            zeros=builder.op("ConstantOfShape", [shape], "/core/ConstantOfShape"),
            values=builder.op("Expand", [weight, pair], "/core/Expand"),
            repeats=builder.constant("core.repeats", np.array([COPIES, COPIES], dtype=np.int64)),
        )

    def add(self, k: int) -> ir.Value:
        """The matrix [inputs, outputs] of stride 2^k."""
        classes = np.arange(self.class_count)
        columns = np.stack([classes, (classes + (1 << k)) % self.class_count], axis=1)
        indices = _index(self.builder, columns, f"base.{k}")
        operands = [self.zeros, indices, self.values]
        core = self.builder.op("ScatterElements", operands, f"/base.{k}/ScatterElements", {"axis": 1})
        return self.builder.op("Tile", [core, self.repeats], f"/base.{k}/Tile")


@dataclass(frozen=True)
class _Decoder:
    """Writes matrices as values and gaps, and the nodes that put them together, which share their zeros."""

    builder: GraphBuilder
    zeros: ir.Value
    shape: ir.Value
    axis: ir.Value

    @staticmethod
    def start(builder: GraphBuilder, neurons: int) -> _Decoder:
        size = builder.constant("weight.size", np.array([neurons * neurons], dtype=np.int64))
        return _Decoder(
            builder=builder,
            zeros=builder.op("ConstantOfShape", [size], "/weight/ConstantOfShape"),
            shape=builder.constant("weight.shape", np.array([neurons, neurons], dtype=np.int64)),
            axis=builder.constant("weight.axis", np.array(0, dtype=np.int64)),
        )

    def add(self, weight: CompactWeight, name: str) -> ir.Value:
        import onnx_ir as ir

        gaps, values = (
            self.builder.constant(f"{name}.gaps", weight.gaps),
            self.builder.constant(f"{name}.values", weight.values),
        )
        wide = self.builder.op("Cast", [gaps], f"/{name}/Cast", {"to": ir.DataType.INT64})
        flat_indices = self.builder.op("CumSum", [wide, self.axis], f"/{name}/CumSum")
        operands = [self.zeros, flat_indices, values]
        filled = self.builder.op("ScatterElements", operands, f"/{name}/ScatterElements", {"axis": 0})
        return self.builder.op("Reshape", [filled, self.shape], f"/{name}/Reshape")


def _permuted(builder: GraphBuilder, weight: ir.Value, permutation: NDArray[np.int64], name: str) -> ir.Value:
    """The matrix whose input i is input permutation[i] of `weight`."""
    return builder.op("Gather", [weight, _index(builder, permutation, name)], f"/{name}/Gather", {"axis": 0})


def _index(builder: GraphBuilder, indices: NDArray[np.int64], name: str) -> ir.Value:
    """Indices below 65536, two bytes each on disk."""
    import onnx_ir as ir

    stored = builder.constant(f"{name}.indices", indices.astype(np.uint16))
    return builder.op("Cast", [stored], f"/{name}/Cast", {"to": ir.DataType.INT64})


def base_layer_count(neurons: int) -> int:
    """K: the number of layers before strides repeat."""
    return (neurons // COPIES).bit_length() - 1


def radixnet_patterns(recipe: RadixNet, rng: np.random.Generator) -> tuple[CsrPattern[np.int32], ...]:
    """The layers of the model that the recipe builds with the same `rng`."""
    return tuple(layer_patterns(recipe, rng))


def layer_patterns(recipe: RadixNet, rng: np.random.Generator) -> Iterator[CsrPattern[np.int32]]:
    """The same, one layer after the other."""
    neurons, base_count = recipe.neurons, base_layer_count(recipe.neurons)
    class_count = neurons // COPIES
    pointers = np.arange(0, neurons * 2 * COPIES + 1, 2 * COPIES, dtype=np.int64)
    for layer in range(recipe.layers):
        classes = np.arange(neurons) % class_count
        sources = np.stack([classes, (classes - (1 << layer % base_count)) % class_count], axis=1)
        inputs = sources[:, :, None] + class_count * np.arange(COPIES)
        if layer >= base_count:
            # input i of the layer is input permutation[i] of the base layer
            inputs = np.argsort(rng.permutation(neurons))[inputs]
        ascending = np.sort(inputs.reshape(neurons, 2 * COPIES), axis=1)
        yield CsrPattern(pointers, ascending.astype(np.int32).reshape(-1), neurons)

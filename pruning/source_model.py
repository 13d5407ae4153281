"""The model to prune: read, with weights where layers can find them, and written back with others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir
from numpy.typing import NDArray

from redpebble.export.save_model import model_bytes
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.fold_model import fold_model
from redpebble.frontend.reading.faults import reading
from redpebble.frontend.reading.model_source import Source, inline_layers, read_runnable_model
from redpebble.pruning.layers import PrunableLayer, prunable_layers, weights_of

Array = NDArray[np.float32]


@dataclass(frozen=True)
class SourceModel:
    """A model whose constants are folded, as a graph of nodes, and its layers with their dense weights."""

    original: onnx_ir.Model
    model: onnx_ir.Model
    proto: onnx.ModelProto
    layers: tuple[PrunableLayer, ...]
    dense: Mapping[str, Array]

    @staticmethod
    def read(source: Source, keep: Sequence[str]) -> "SourceModel":
        """Return the model of a source, and its layers without those to keep.

        Raises:
            ModelError: the model is unreadable, larger than 2 GB, or has no layer to prune.
            ValueError: a layer to keep is none.
        """
        original = read_runnable_model(source)
        with reading():
            model = original.clone()
            inline_layers(model)
            fold_model(model, keep_foreign=True)
            # what a tensor holds is looked at when it is written
            content = model_bytes(model)
        if content is None:
            raise UnsupportedModelError("the model is larger than 2 GB, accepted is less")
        proto = onnx.ModelProto.FromString(content)
        layers = prunable_layers(proto.graph, keep)
        if not layers:
            raise UnsupportedModelError("no layer to prune, accepted are MatMul, Gemm and Conv with a float32 weight")
        return SourceModel(original, model, proto, layers, weights_of(proto.graph, layers))

    def with_weights(self, weights: Mapping[str, Array]) -> onnx_ir.Model:
        """Return the model with other weights [inputs, outputs] by layer."""
        return self.with_initializers(self.stored(weights))

    def stored(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Return initializers by name from weights [inputs, outputs] by layer."""
        return {layer.weight: layer.stored(weights[layer.name]) for layer in self.layers if layer.name in weights}

    def with_initializers(self, stored: Mapping[str, Array]) -> onnx_ir.Model:
        """Return the model with other initializers."""
        model = self.model.clone()
        for name, array in stored.items():
            model.graph.initializers[name].const_value = onnx_ir.tensor(array, name=name)
        return model

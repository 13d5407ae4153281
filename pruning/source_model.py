"""The model to prune: read, with weights where layers can find them, and written back with others."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
from numpy.typing import NDArray
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from ..export.save_model import save_model
from ..frontend.errors import UnsupportedModelError
from ..frontend.fold_model import fold_model
from ..frontend.reading.faults import reading
from ..frontend.reading.model_source import Source, inline_layers, read_runnable_model
from .layers import RECURRENCES, PrunableLayer, prunable_layers, weights_of

Array = NDArray[np.float32]


@dataclass(frozen=True)
class SourceModel:
    """A model whose constants are folded, as a graph of nodes, and its layers with their dense weights.

    The weights are held once: most of the memory that pruning takes would be copies of them.
    """

    original: str | os.PathLike[str] | onnx_ir.Model
    """The model as it was given: its path where it has one."""
    proto: onnx.ModelProto
    """The graph, in which the weights of layers hold nothing."""
    layers: tuple[PrunableLayer, ...]
    dense: Mapping[str, Array]
    _graph: onnx_ir.Model
    """The same graph, in which the weights of layers are of no values."""

    @staticmethod
    def read(source: Source, keep: Sequence[str]) -> "SourceModel":
        """Return the model of a source, and its layers without those to keep.

        Raises:
            ModelError: the model is unreadable, or has no layer to prune.
            ValueError: a layer to keep is none.
        """
        original = read_runnable_model(source)
        with reading():
            model = original.clone()
            inline_layers(model)
            fold_model(model, keep_foreign=True)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            with reading():
                # what a tensor holds is looked at when it is written; each lies in the file beside, and is read once
                save_model(model, path, external_data=True)
            proto = onnx.ModelProto.FromString(path.read_bytes())
            layers = prunable_layers(proto.graph, keep)
            if not layers:
                known = ", ".join(("MatMul", "Gemm", "Conv", *RECURRENCES))
                raise UnsupportedModelError(f"expected {known} with a float32 weight, got no layer to prune")
            dense = weights_of(proto.graph, layers, folder)
            _load_others(proto.graph, layers, folder)
        for layer in layers:
            model.graph.initializers[layer.weight].const_value = None
        given = source if isinstance(source, str | os.PathLike) else original
        return SourceModel(given, proto, layers, dense, model)

    def with_weights(self, weights: Mapping[str, Array]) -> onnx_ir.Model:
        """Return the model with weights [inputs, outputs] by layer, dense ones where none are given."""
        model = self._graph.clone()
        for layer in self.layers:
            array = layer.stored(weights.get(layer.name, self.dense[layer.name]))
            model.graph.initializers[layer.weight].const_value = onnx_ir.tensor(array, name=layer.weight)
        return model


def _load_others(graph: onnx.GraphProto, layers: Sequence[PrunableLayer], folder: str) -> None:
    """Read what initializers hold that are no weights of layers."""
    pruned = {layer.weight for layer in layers}
    for one in graph.initializer:
        if one.name not in pruned and uses_external_data(one):
            load_external_data_for_tensor(one, folder)
            one.ClearField("external_data")
            one.data_location = onnx.TensorProto.DEFAULT

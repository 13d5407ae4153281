"""Measured times of layers, one by one: each alone in onnxruntime, dense and as it was pruned, in turn."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple

import numpy as np
import onnx
import onnx_ir
from numpy.typing import NDArray

from ...driver.model_rows import state_rows
from ..layers import PrunableLayer
from ..options import PruneOptions
from .call_sizes import CallSizes, ImageSizes
from .timing import BUDGET, MeasuredTimes, ModelClock

Array = NDArray[np.float32]

LAYER_BUDGET: Final = replace(BUDGET, seconds=0.1)


class _Kind(NamedTuple):
    """The properties of a layer that its time depends on."""

    inputs: int
    outputs: int
    connections: int
    rows: int
    images: ImageSizes | None


class LayerClock:
    """Times of layers for a call; layers of one size with as many connections and rows are measured once."""

    def __init__(self, options: PruneOptions, call: CallSizes) -> None:
        self._options, self._call = options, call
        self._known: dict[_Kind, MeasuredTimes] = {}

    def times(self, layer: PrunableLayer, weight: Array) -> MeasuredTimes:
        """Return the times of a layer with random weights and with `weight`, which is sparse.

        Raises:
            OracleError: onnxruntime refuses the layer.
        """
        rows, images = self._call.rows_by_layer.get(layer.name, 0), self._call.images.get(layer.name)
        kind = _Kind(layer.inputs, layer.outputs, int(np.count_nonzero(weight)), rows, images)
        if kind not in self._known:
            rng = np.random.default_rng(self._options.seed)
            dense = rng.standard_normal(weight.shape).astype(np.float32)
            feeds = {"x": rng.standard_normal(_shape(layer, rows, images)).astype(np.float32)}
            before, after = self._model(layer, dense, feeds), self._model(layer, weight, feeds)
            self._known[kind] = ModelClock(before, feeds, self._options.threads, LAYER_BUDGET).times(after)
        return self._known[kind]

    def _model(self, layer: PrunableLayer, weight: Array, feeds: Mapping[str, Array]) -> onnx_ir.Model:
        x = feeds["x"]
        matrix = layer.stored(weight) if layer.window is not None else weight
        node = onnx.helper.make_node("MatMul" if layer.window is None else "Conv", ["x", "w"], ["y"], name="layer")
        if layer.window is not None:
            node.attribute.extend(layer.window.attributes)
        make = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            [node],
            "layer",
            [make("x", onnx.TensorProto.FLOAT, ["n", *x.shape[1:]])],
            [make("y", onnx.TensorProto.FLOAT, [None] * x.ndim)],
            [onnx.numpy_helper.from_array(np.ascontiguousarray(matrix), "w")],
        )
        opset = [onnx.helper.make_opsetid("", 17)]
        model = onnx_ir.from_proto(onnx.helper.make_model(graph, ir_version=8, opset_imports=opset))
        state_rows(model, len(x))
        return model


def _shape(layer: PrunableLayer, rows: int, images: ImageSizes | None) -> tuple[int, ...]:
    if layer.window is None or images is None:
        return (rows, layer.inputs)
    return (images.number, layer.inputs // prod(layer.window.kernel), *images.sizes)

"""A model cut where layers are pruned, so that no part of it has to run again for each of them.

The depth of a value is the number of prunable layers on the longest way to it. Segment k computes the values of depth
k: it starts with the layers whose inputs have depth k - 1, and ends with the inputs of the next ones. Weights of layers
are inputs of their segments, so that any can be tried without a new session.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from ...frontend.errors import UnsupportedModelError
from ...verification.oracle import Oracle, session_options
from ..layers import PrunableLayer, names_read

Value = NDArray[Any]
Values = dict[str, Value]

SERIALIZED: Final = 2**31 - 2**20
"""Bytes that a message of protobuf may have."""


@dataclass(frozen=True)
class Segment:
    """The nodes that compute the values of one depth."""

    nodes: tuple[int, ...]
    layers: tuple[PrunableLayer, ...]
    """Layers that are computed here; their inputs come from segments before."""
    reads: tuple[str, ...]
    """Values of other segments, and inputs of the model."""
    yields: tuple[str, ...]
    """Values that later segments read, and outputs of the model."""


@dataclass(frozen=True)
class SegmentedModel:
    """A model in segments; sessions are made when a segment first runs, as the types of its inputs are known then."""

    model: onnx.ModelProto
    layers: tuple[PrunableLayer, ...]
    segments: tuple[Segment, ...]
    threads: int = 1
    _sessions: dict[int, Oracle] = field(default_factory=dict[int, Oracle], repr=False)

    @staticmethod
    def of(model: onnx.ModelProto, layers: Sequence[PrunableLayer], threads: int) -> "SegmentedModel":
        """Return a model in segments."""
        return SegmentedModel(model, tuple(layers), _segments(model.graph, layers), threads)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.model.graph.output)

    def last_reader(self, name: str) -> int:
        """Return the last segment that reads a value, the number of segments for an output of the model."""
        if name in self.outputs:
            return len(self.segments)
        return max((index for index, one in enumerate(self.segments) if name in one.reads), default=-1)

    def run(self, index: int, values: Mapping[str, Value], weights: Mapping[str, NDArray[np.float32]]) -> Values:
        """Return the outputs of a segment for values, with weights [inputs, outputs] by layer.

        Raises:
            OracleError: onnxruntime refuses the model or the inputs.
            UnsupportedModelError: a value between segments is no tensor.
        """
        segment = self.segments[index]
        if not segment.yields:
            return {}
        feeds = {name: values[name] for name in segment.reads}
        feeds |= {layer.weight: layer.stored(weights[layer.name]) for layer in segment.layers}
        if index not in self._sessions:
            self._sessions[index] = self._session(segment, feeds)
        found = dict(zip(segment.yields, self._sessions[index].run(feeds), strict=True))
        for name, value in found.items():
            if not isinstance(value, np.ndarray):
                raise UnsupportedModelError(f"value {name!r} between layers: expected a tensor, got none")
        return found

    def _session(self, segment: Segment, feeds: Mapping[str, Value]) -> Oracle:
        graph = self.model.graph
        nodes = [graph.node[index] for index in segment.nodes]
        read = {name for node in nodes for name in names_read(node)} | set(segment.yields)
        part = onnx.ModelProto(ir_version=self.model.ir_version, opset_import=self.model.opset_import)
        part.functions.extend(self.model.functions)
        part.graph.name = graph.name
        part.graph.node.extend(nodes)
        part.graph.initializer.extend(one for one in graph.initializer if one.name in read and one.name not in feeds)
        part.graph.input.extend(_described(name, value) for name, value in feeds.items())
        part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in segment.yields)
        if part.ByteSize() > SERIALIZED:
            raise UnsupportedModelError("expected less than 2 GB of weights beside layers, got more")
        options = session_options(self.threads)
        # memory that a run has used is given back, as the next one is of another segment
        options.enable_cpu_mem_arena = False
        return Oracle.of(lambda: onnxruntime.InferenceSession(part.SerializeToString(), options))


def _described(name: str, value: Value) -> onnx.ValueInfoProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    return onnx.helper.make_tensor_value_info(name, kind, [None] * value.ndim)


def _segments(graph: onnx.GraphProto, layers: Sequence[PrunableLayer]) -> tuple[Segment, ...]:
    by_node: dict[int, list[PrunableLayer]] = {}
    for layer in layers:
        by_node.setdefault(layer.node, []).append(layer)
    constants = {one.name for one in graph.initializer}
    depths = {value.name: 0 for value in graph.input if value.name not in constants}
    members: dict[int, list[int]] = {0: []}
    for index, node in enumerate(graph.node):
        depth = max((depths.get(name, 0) for name in names_read(node)), default=0) + (index in by_node)
        depths |= dict.fromkeys(node.output, depth)
        members.setdefault(depth, []).append(index)
    # a depth without a node of its own has no segment: each layer makes one
    return tuple(_segment(graph, members[depth], by_node, depths) for depth in sorted(members))


def _segment(
    graph: onnx.GraphProto,
    nodes: Sequence[int],
    by_node: Mapping[int, Sequence[PrunableLayer]],
    depths: Mapping[str, int],
) -> Segment:
    inside, own = {name for index in nodes for name in graph.node[index].output}, set(nodes)
    reads = dict.fromkeys(
        name for index in nodes for name in names_read(graph.node[index]) if name in depths and name not in inside
    )
    outside = {
        name for index, node in enumerate(graph.node) if index not in own for name in names_read(node) if name in inside
    }
    outputs = {output.name for output in graph.output}
    yields = dict.fromkeys(name for index in nodes for name in graph.node[index].output if name in outside | outputs)
    return Segment(
        tuple(nodes), tuple(layer for index in nodes for layer in by_node.get(index, ())), tuple(reads), tuple(yields)
    )

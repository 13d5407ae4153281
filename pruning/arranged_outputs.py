"""Outputs that are to share inputs, as in V:N:M, brought beside each other in the file, where no result changes.

```
y = MatMul(x, w)                     y' = MatMul(x, w[:, order])
h = Relu(Add(y, bias))        ->     h' = Relu(Add(y', bias[order]))
z = MatMul(h, v)                     z  = MatMul(h', v[order, :])
```

A value whose last axis only products read, and operators that compute each feature by itself, is permuted, with all
weights and constants around it; an output of the model gets a Gather behind it. Any other value stays in its order: the
heads of an attention, a stream of residuals that is normalised, the channels of images.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ..foundation.threads import usable_threads
from .runs.segments import SegmentedModel
from .runs.traces import Trace
from .sensitivities import few_batches
from .solving.structures import similar_outputs
from .source_model import SourceModel

FEATURE_BY_FEATURE: Final = frozenset(
    (
        *("Abs", "Add", "BiasGelu", "Cast", "Clip", "Div", "Elu", "Erf", "Exp", "FastGelu", "Gelu", "HardSigmoid"),
        *("HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "QuickGelu"),
        *("Relu", "Selu", "Sigmoid", "Softplus", "Sqrt", "Sub", "Tanh", "ThresholdedRelu"),
    )
)
"""Operators each of whose results is computed from the features at its own place."""

PRODUCTS: Final = ("MatMul", "Gemm")


def arranged(
    model: SourceModel, batches: Sequence[Mapping[str, NDArray[Any]]], height: int, keep: Sequence[str] = ()
) -> SourceModel:
    """Return a model of the same results whose outputs that are alike stand beside each other, `height` at a time.

    Outputs are alike that give their inputs the same weight, by w^2 E[x^2] in the dense model on a few batches. `keep`
    are the layers that stay dense, as for `SourceModel.read`.
    """
    whole = model.with_weights({})
    groups = [group for group in _groups(whole, set(model.dense)) if group.width > height]
    if not groups:
        return model
    names = {name for group in groups for name in group.layers}
    squares = _mean_squares(model, batches[: few_batches(batches)], names)
    for group in groups:
        scores = [np.square(model.dense[name]) * squares[name][:, np.newaxis] for name in group.layers]
        group.permute(whole.graph, np.concatenate(similar_outputs(np.concatenate(scores), height)))
    return replace(SourceModel.read(whole, keep), original=model.original)


def _mean_squares(
    model: SourceModel, batches: Sequence[Mapping[str, NDArray[Any]]], names: set[str]
) -> dict[str, NDArray[np.float32]]:
    """Return the mean squares [inputs] of what these layers read."""
    trace = Trace.start(SegmentedModel.of(model.proto, model.layers, usable_threads()), batches)
    found = dict[str, NDArray[np.float32]]()
    while len(found) < len(names):
        for layer in [one for one in trace.model.segments[trace.done].layers if one.name in names]:
            means = [np.square(rows).mean(axis=0) for rows in trace.rows(layer) if len(rows)]
            found[layer.name] = np.mean(means, axis=0) if means else np.ones(layer.inputs, np.float32)
        trace.advance(model.dense)
    return found


@dataclass
class _Group:
    """Values that have one order of features, and what has to follow it."""

    width: int
    layers: list[str] = field(default_factory=list[str])
    """Layers to prune that compute them."""
    arrays: dict[onnx_ir.Value, int] = field(default_factory=dict[onnx_ir.Value, int])
    """Constants, and the axis of each that is permuted; -2 and -1 where a product reads and yields such values."""
    both: set[onnx_ir.Value] = field(default_factory=set[onnx_ir.Value])
    """Weights of which both axes are."""
    outputs: list[onnx_ir.Value] = field(default_factory=list[onnx_ir.Value])
    """Outputs of the model."""

    def add(self, array: onnx_ir.Value, axis: int) -> None:
        if self.arrays.setdefault(array, axis) != axis:
            self.both.add(array)

    def permute(self, graph: onnx_ir.Graph, order: NDArray[np.int64]) -> None:
        """Give all of them an order."""
        for value, axis in self.arrays.items():
            assert value.const_value is not None
            array = value.const_value.numpy()
            for one in (-1, -2) if value in self.both else (axis,):
                array = array.take(order, axis=one)
            value.const_value = onnx_ir.tensor(array, name=value.name)
        for value in self.outputs:
            _put_back(graph, value, np.argsort(order))


def _put_back(graph: onnx_ir.Graph, value: onnx_ir.Value, places: NDArray[np.int64]) -> None:
    """Let an output of the model have its order, by a Gather behind it."""
    name = f"{value.name}_in_groups"
    index = onnx_ir.Value(name=f"{name}_places", const_value=onnx_ir.tensor(places, name=f"{name}_places"))
    graph.register_initializer(index)
    node = onnx_ir.node("Gather", [value, index], {"axis": -1}, name=f"{name}_put_back")
    result = node.outputs[0]
    result.name, value.name = value.name, name
    result.shape, result.type = value.shape, value.type
    graph.append(node)
    graph.outputs[graph.outputs.index(value)] = result


def _groups(model: onnx_ir.Model, pruned: set[str]) -> Iterator[_Group]:
    """Yield groups of values whose features may have any order; `pruned` are the names of the layers to prune."""
    seen = set[onnx_ir.Value]()
    for node in list(model.graph):
        if _name(node) in pruned and node.op_type in PRODUCTS and node.outputs[0] not in seen:
            group = _group_of(node, model.graph, pruned, seen)
            if group is not None:
                yield group


def _group_of(start: onnx_ir.Node, graph: onnx_ir.Graph, pruned: set[str], seen: set[onnx_ir.Value]) -> _Group | None:
    """Return the group of what a product yields; None where its features have to stay where they are."""
    group, known, waiting = _Group(_width(start)), set[onnx_ir.Value](), [start.outputs[0]]
    while waiting:
        value = waiting.pop()
        if value in known:
            continue
        known.add(value)
        seen.add(value)
        if value.is_graph_output():
            group.outputs.append(value)
        for node in dict.fromkeys((value.producer(), *(use.node for use in value.uses()))):
            if node is None or node.graph is not graph or node.domain not in ("", "ai.onnx", "com.microsoft"):
                return None
            is_free = node.op_type in FEATURE_BY_FEATURE
            if node.op_type in PRODUCTS:
                is_free = _follows_product(group, node, value, pruned)
            elif is_free:
                constants = [one for one in node.inputs if _is_constant(one)]
                waiting += [one for one in (*node.inputs, *node.outputs) if one is not None and one not in constants]
                is_free = all(_follows_constant(group, one) for one in constants)
            if not is_free:
                return None
    return group


def _follows_product(group: _Group, node: onnx_ir.Node, value: onnx_ir.Value, pruned: set[str]) -> bool:
    """Add what a product has to permute, one that yields a value of the group, or reads it; False if it cannot."""
    weight, is_turned = node.inputs[1], bool(node.attributes.get_int("transB", 0))
    if weight is None or not _is_constant(weight) or len(weight.uses()) != 1:
        return False
    if value in node.inputs:
        if value in node.inputs[1:] or node.attributes.get_int("transA", 0):
            return False
        group.add(weight, -1 if is_turned else -2)
    if node.outputs[0] is value:
        if _width(node) != group.width or not all(_follows_constant(group, bias) for bias in node.inputs[2:]):
            return False
        group.add(weight, -2 if is_turned else -1)
        if _name(node) in pruned:
            group.layers.append(_name(node))
    return True


def _follows_constant(group: _Group, constant: onnx_ir.Value | None) -> bool:
    """Add a constant of a number for each feature, and leave one number for all of them; False if it is neither."""
    if constant is None:
        return True
    shape = constant.shape
    if not _is_constant(constant) or shape is None:
        return False
    if len(shape) == 0 or shape[-1] == 1:
        return True
    if shape[-1] != group.width or len(constant.uses()) != 1:
        return False
    group.add(constant, -1)
    return True


def _is_constant(value: onnx_ir.Value | None) -> bool:
    return value is not None and value.is_initializer() and value.const_value is not None and not value.is_graph_input()


def _width(node: onnx_ir.Node) -> int:
    """Return the outputs of a product with a constant matrix, 0 of any other one."""
    weight = node.inputs[1]
    if not _is_constant(weight) or weight is None or weight.const_value is None or len(weight.const_value.shape) != 2:
        return 0
    size = weight.const_value.shape[0 if node.attributes.get_int("transB", 0) else 1]
    return size if isinstance(size, int) else 0


def _name(node: onnx_ir.Node) -> str:
    """Return the name of a layer, as `redpebble.pruning.layers` has it."""
    return node.name or node.outputs[0].name or ""

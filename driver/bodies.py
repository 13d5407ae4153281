"""Graphs inside of If, Loop and Scan: each with linear layers is optimized as a model of its own.

What such a body reads of the graphs around it is an input of that model, or an initializer where it is a weight. Both
are gone again when the body is put back: its nodes read the same names as before.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import onnx
import onnx_ir
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, TypeProto
from onnx.shape_inference import InferenceError, infer_shapes

from ..export.save_model import model_bytes
from ..export.sparse_networks.node_and_function import allow_functions
from ..frontend.reading.raised_opset import raise_opset, raising_obstacle

LAYERS: Final = frozenset({"GRU", "Gemm", "LSTM", "MatMul", "RNN"})

Found = TypeVar("Found")


def with_optimized_bodies(
    model: onnx_ir.Model, optimize: Callable[[ModelProto], tuple[onnx_ir.Model, Found] | None]
) -> tuple[onnx_ir.Model, tuple[Found, ...]]:
    """Return a model with the bodies that `optimize` gives, and what it says of each; None for one that stays.

    A model larger than a message of protobuf may be stays as it is.
    """
    if not any(node.op_type in LAYERS and node.graph is not model.graph for node in model.graph.all_nodes()):
        return model, ()
    raised = model.clone()
    if raising_obstacle(raised):
        return model, ()
    raise_opset(raised)
    allow_functions(raised)
    content = model_bytes(raised)
    if content is None:
        return model, ()
    bodies = _Bodies(ModelProto.FromString(content), optimize)
    bodies.optimize_all()
    return (onnx_ir.from_proto(bodies.model), tuple(bodies.found)) if bodies.found else (model, ())


@dataclass
class _Bodies(Generic[Found]):
    """The bodies of a model, which is changed in place."""

    model: ModelProto
    optimize: Callable[[ModelProto], tuple[onnx_ir.Model, Found] | None]
    found: list[Found] = field(default_factory=list[Found])

    def optimize_all(self) -> None:
        """Put optimized bodies in their places, and drop weights that nothing reads any more."""
        graph = self.model.graph
        overridable = {value.name for value in graph.input}
        weights = {one.name: one for one in graph.initializer if one.name not in overridable}
        types = {value.name: value.type for value in _typed_values(self.model)}
        for node in graph.node:
            for body in _bodies_of(node):
                self._optimize_body(body, weights, types)
        read = {*_names_read(graph), *overridable}
        kept = [tensor for tensor in graph.initializer if tensor.name in read]
        if self.found and len(kept) < len(graph.initializer):
            del graph.initializer[:]
            graph.initializer.extend(kept)

    def _optimize_body(
        self, body: GraphProto, weights: Mapping[str, TensorProto], types: Mapping[str, TypeProto]
    ) -> None:
        captured = dict.fromkeys(name for name in _names_read(body) if name not in _names_defined(body))
        given = [name for name in captured if name not in weights]
        has_layers = any(node.op_type in LAYERS for node in _nodes_inside(body))
        # without a type it is no input; what only goes through a body has no other name there
        if not has_layers or not types.keys() >= set(given) or any(output.name in captured for output in body.output):
            return
        own = [weights[name] for name in captured if name in weights]
        result = self.optimize(self._as_model(body, own, given, types))
        content = None if result is None else model_bytes(result[0])
        if result is None or content is None:
            return
        written = ModelProto.FromString(content)
        outer = set(_all_names(self.model.graph)) - set(_all_names(body))
        body.CopyFrom(_put_back(written.graph, captured, {one.name: one for one in own}, outer))
        self._adopt(written)
        self.found.append(result[1])

    def _as_model(
        self, body: GraphProto, weights: list[TensorProto], given: list[str], types: Mapping[str, TypeProto]
    ) -> ModelProto:
        model = ModelProto(ir_version=self.model.ir_version, opset_import=self.model.opset_import)
        model.functions.extend(self.model.functions)
        model.graph.CopyFrom(body)
        model.graph.initializer.extend(weights)
        model.graph.input.extend(onnx.ValueInfoProto(name=name, type=types[name]) for name in given)
        known = {value.name: value.type for value in _typed_values(model)}
        for output in model.graph.output:
            if not output.HasField("type") and output.name in known:
                output.type.CopyFrom(known[output.name])
        return model

    def _adopt(self, written: ModelProto) -> None:
        """Take over the functions and operator sets that an optimized body needs."""
        functions = {(function.domain, function.name) for function in self.model.functions}
        self.model.functions.extend(one for one in written.functions if (one.domain, one.name) not in functions)
        domains = {opset.domain for opset in self.model.opset_import}
        self.model.opset_import.extend(one for one in written.opset_import if one.domain not in domains)


def _typed_values(model: ModelProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield the values of the main graph that have a type, as far as ONNX infers them."""
    try:
        graph = infer_shapes(model).graph
    except (InferenceError, ValueError):
        graph = model.graph
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.HasField("type"):
            yield value


def _bodies_of(node: onnx.NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _nodes_inside(graph: GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for body in _bodies_of(node):
            yield from _nodes_inside(body)


def _names_defined(graph: GraphProto) -> set[str]:
    outputs = (name for node in graph.node for name in node.output)
    sparse = (tensor.values.name for tensor in graph.sparse_initializer)
    return {"", *outputs, *sparse, *(one.name for one in (*graph.input, *graph.initializer))}


def _names_read(graph: GraphProto) -> Iterator[str]:
    """Yield the names that nodes and outputs read, and that bodies inside read of what is around them."""
    for node in graph.node:
        yield from filter(None, node.input)
        for body in _bodies_of(node):
            defined = _names_defined(body)
            yield from (name for name in _names_read(body) if name not in defined)
    yield from (output.name for output in graph.output)


def _all_names(graph: GraphProto) -> Iterator[str]:
    yield from _names_defined(graph)
    for node in graph.node:
        for body in _bodies_of(node):
            yield from _all_names(body)


def _put_back(
    graph: GraphProto, captured: Container[str], given: Mapping[str, TensorProto], outer: set[str]
) -> GraphProto:
    """Return a body without what it was given of the graphs around it; new names are none of `outer`.

    A weight that has become another, a bias that was repeated for example, is the body's own, under another name.
    """
    inputs = [value for value in graph.input if value.name not in captured]
    weights = [one for one in graph.initializer if one.name not in given or not _is_same(one, given[one.name])]
    del graph.input[:], graph.initializer[:]
    graph.input.extend(inputs)
    graph.initializer.extend(weights)
    taken, renamed = outer | set(_all_names(graph)), dict[str, str]()
    for name in sorted((_names_defined(graph) & outer) - {""}):
        number = next(number for number in range(len(taken) + 1) if f"{name}.{number}" not in taken)
        renamed[name] = f"{name}.{number}"
        taken.add(renamed[name])
    if renamed:
        _rename(graph, renamed)
    return graph


def _is_same(one: TensorProto, other: TensorProto) -> bool:
    if (one.data_type, one.dims) != (other.data_type, other.dims):
        return False
    return onnx.numpy_helper.to_array(one).tobytes() == onnx.numpy_helper.to_array(other).tobytes()


def _rename(graph: GraphProto, names: Mapping[str, str]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for place in (node.input, node.output):
            place[:] = [names.get(name, name) for name in place]
        for body in _bodies_of(node):
            inner = _names_defined(body)
            _rename(body, {old: new for old, new in names.items() if old not in inner})

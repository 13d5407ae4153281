"""A graph as onnxruntime shows it to an execution provider, and the models that are made of it or of a part of it."""

import ctypes
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ...runtime.memory import address_of, aligned_bytes
from ..custom_ops.node import DTYPES, OrtError, OrtFunctions
from ..native.api import Slot
from ..native.ep_api import AttributeKind, GraphSlot

TENSOR: Final = 1
"""`ONNX_TYPE_TENSOR`."""

UNREAD: Final = {"ep_cache_context"}
"""Attributes that hold code, or what else only a provider can read: megabytes that make no model."""

OPAQUE: Final = "redpebble.opaque"
"""Domain of nodes that stand for those we cannot read: loops, or with attributes of other kinds."""

IF: Final = ("", "If")
"""The operator whose bodies are read: conditions on ranks and known sizes, as exporters write them, are decided."""

Boundary = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of the inputs and outputs of nodes that become one."""


BEHIND: Final = "redpebble.behind:"


def behind(name: str) -> str:
    """Return the name of a value where nodes behind a cut read it."""
    return BEHIND + name


class Body(NamedTuple):
    """A branch of an If: its attribute, its nodes, and the names of its outputs."""

    name: str
    nodes: "tuple[GraphNode, ...]"
    outputs: tuple[str, ...]

    def renamed(self, names: Mapping[str, str]) -> "Body":
        """Return the branch reading other values."""
        return self._replace(nodes=tuple(node.renamed(names) for node in self.nodes))


@dataclass(frozen=True)
class GraphNode:
    """A node by the names of its values, empty for one that is left out; those that bodies read come last."""

    handle: int
    number: int
    """onnxruntime's own, in another order than that of the graph."""
    name: str
    operator: tuple[str, str]
    """Domain and type."""
    attributes: tuple[onnx_ir.Attr, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bodies: tuple[Body, ...] = ()

    @property
    def boundary(self) -> Boundary:
        """Names of its inputs and outputs."""
        return self.inputs, self.outputs

    @property
    def made(self) -> Iterator[str]:
        """Names of its outputs, and of all that its bodies make."""
        yield from self.outputs
        for body in self.bodies:
            for node in body.nodes:
                yield from node.made

    def renamed(self, names: Mapping[str, str]) -> "GraphNode":
        """Return the node reading other values, its bodies, too."""
        inputs = tuple(names.get(name, name) for name in self.inputs)
        return replace(self, inputs=inputs, bodies=tuple(body.renamed(names) for body in self.bodies))


@dataclass(frozen=True)
class OrtGraph:
    """A graph as onnxruntime shows it; constants lie in onnxruntime's memory, valid during the call that shows them."""

    nodes: tuple[GraphNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ir_version: int
    opsets: Mapping[str, int]
    constants: Mapping[str, NDArray[Any]]
    types: Mapping[str, tuple[int, tuple[int | str | None, ...]]]
    """Element type and shape of the tensors."""

    def model(self, cuts: Collection[str] = ()) -> onnx_ir.Model:
        """Return the whole graph as a model; it ends at `cuts`, and goes on from inputs called `behind` them."""
        if not cuts:
            return self.part(self.nodes, self.inputs, self.outputs)
        names = {name: behind(name) for name in cuts}
        types = {**self.types, **{names[name]: self.types[name] for name in cuts}}
        nodes = [node.renamed(names) for node in self.nodes]
        outputs = dict.fromkeys([*self.outputs, *sorted(cuts)])
        return replace(self, types=types).part(nodes, self.inputs, tuple(outputs))

    def part(self, nodes: Sequence[GraphNode], inputs: Sequence[str], outputs: Sequence[str]) -> onnx_ir.Model:
        """Return some nodes as a model of their own; constants among `inputs` are left out."""
        values: dict[str, onnx_ir.Value] = {}
        made = [self._node(node, values) for node in nodes]
        results = [self._value(name, values) for name in outputs]
        constants = [values[name] for name in self.constants if name in values]
        produced = {name for node in nodes for name in node.made}
        free = [name for name in values if name not in produced and name not in self.constants]
        names = dict.fromkeys([*(name for name in inputs if name not in self.constants), *free])
        graph = onnx_ir.Graph(
            [self._value(name, values) for name in names],
            results,
            nodes=made,
            initializers=constants,
            opset_imports={**self.opsets, OPAQUE: 1},
            name="graph",
        )
        return onnx_ir.Model(graph, ir_version=self.ir_version)

    def _node(self, node: GraphNode, values: dict[str, onnx_ir.Value]) -> onnx_ir.Node:
        domain, operator = node.operator
        bodies = [onnx_ir.AttrGraph(body.name, self._body(body, values)) for body in node.bodies]
        inputs = node.inputs[:1] if bodies else node.inputs  # the others are read by the bodies
        return onnx_ir.Node(
            domain,
            operator,
            [self._value(name, values) if name else None for name in inputs],
            [*node.attributes, *bodies],
            outputs=[self._value(name, values) if name else onnx_ir.Value(name="") for name in node.outputs],
            name=node.name,
        )

    def _body(self, body: Body, values: dict[str, onnx_ir.Value]) -> onnx_ir.Graph:
        nodes = [self._node(node, values) for node in body.nodes]
        return onnx_ir.Graph([], [self._value(name, values) for name in body.outputs], nodes=nodes, name=body.name)

    def _value(self, name: str, values: dict[str, onnx_ir.Value]) -> onnx_ir.Value:
        if name not in values:
            value = values[name] = onnx_ir.Value(name=name)
            if name in self.types:
                element, dims = self.types[name]
                value.type = onnx_ir.TensorType(onnx_ir.DataType(element))
                # onnxruntime says no sizes for a tensor of unknown rank, too: what nodes make is inferred anew
                if dims or name in self.constants or name in self.inputs:
                    value.shape = onnx_ir.Shape(dims)
            if name in self.constants:
                value.const_value = onnx_ir.Tensor(self.constants[name], name=name)
        return values[name]


@dataclass(frozen=True)
class GraphReader:
    """Reads graphs through the functions of onnxruntime."""

    functions: OrtFunctions
    constants: dict[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])
    types: dict[str, tuple[int, tuple[int | str | None, ...]]] = field(
        default_factory=dict[str, tuple[int, tuple[int | str | None, ...]]]
    )

    def graph(self, graph: int) -> OrtGraph:
        """Return an `OrtGraph`."""
        handles = self._list(GraphSlot.Graph_GetNumNodes, GraphSlot.Graph_GetNodes, graph)
        nodes = tuple(map(self._node, handles))
        inputs = self._names(GraphSlot.Graph_GetNumInputs, GraphSlot.Graph_GetInputs, graph)
        # a body reads values of the graphs around it as if they were inputs
        known = {*inputs, *self.constants, *(name for node in nodes for name in node.outputs), ""}
        inputs += tuple(dict.fromkeys(name for node in nodes for name in node.inputs if name not in known))
        outputs = self._names(GraphSlot.Graph_GetNumOutputs, GraphSlot.Graph_GetOutputs, graph)
        version = self.functions.word(GraphSlot.Graph_GetOnnxIRVersion, graph)
        return OrtGraph(nodes, inputs, outputs, version, self._opsets(graph), self.constants, self.types)

    def is_nested(self, graph: int) -> bool:
        """Return whether a graph is the body of a node."""
        return self.functions.word(GraphSlot.Graph_GetParentNode, graph) != 0

    def name(self, node: int) -> str:
        """Return the name of an `OrtNode`."""
        return self._text(GraphSlot.Node_GetName, node)

    def outputs(self, node: int) -> tuple[str, ...]:
        """Return the outputs of an `OrtNode`."""
        return self._names(GraphSlot.Node_GetNumOutputs, GraphSlot.Node_GetOutputs, node)

    def payload(self, node: int, name: str) -> NDArray[np.uint8] | None:
        """Return a text attribute of an `OrtNode` as [bytes] at a cache line, None where it has none."""
        for found, attribute in self._attributes(node):
            if found == name:
                kind = self.functions.word(GraphSlot.OpAttr_GetType, attribute) & 0xFFFFFFFF
                return self._content(attribute, kind) if kind == AttributeKind.Text else None
        return None

    def inputs(self, node: int) -> tuple[str, ...]:
        """Return the inputs of an `OrtNode`."""
        return self._names(GraphSlot.Node_GetNumInputs, GraphSlot.Node_GetInputs, node)

    def _list(self, count: GraphSlot, get: GraphSlot, owner: int) -> list[int]:
        found = (ctypes.c_uint64 * self.functions.word(count, owner))()
        if len(found):
            self.functions.call(get, owner, ctypes.addressof(found), len(found))
        return list(found)

    def _names(self, count: GraphSlot, get: GraphSlot, owner: int) -> tuple[str, ...]:
        return tuple(map(self._value, self._list(count, get, owner)))

    def _text(self, slot: GraphSlot, owner: int) -> str:
        return ctypes.string_at(self.functions.word(slot, owner)).decode()

    def _opsets(self, graph: int) -> dict[str, int]:
        count = self.functions.word(GraphSlot.Graph_GetNumOperatorSets, graph)
        domains, versions = (ctypes.c_char_p * count)(), (ctypes.c_int64 * count)()
        addresses = (ctypes.addressof(domains), ctypes.addressof(versions))
        self.functions.call(GraphSlot.Graph_GetOperatorSets, graph, *addresses, count)
        return {(domain or b"").decode(): version for domain, version in zip(domains, versions, strict=True)}

    def _node(self, node: int) -> GraphNode:
        implicit = self._names(GraphSlot.Node_GetNumImplicitInputs, GraphSlot.Node_GetImplicitInputs, node)
        operator = (self._text(GraphSlot.Node_GetDomain, node), self._text(GraphSlot.Node_GetOperatorType, node))
        bodies = self._branches(node) if operator == IF else ()
        attributes = [self._attribute(name, handle) for name, handle in self._attributes(node) if name not in UNREAD]
        known = [attribute for attribute in attributes if attribute is not None]
        if (implicit and not bodies) or len(known) + len(bodies) != len(attributes):
            known, bodies, operator = [], (), (OPAQUE, operator[1])
        inputs = (*self.inputs(node), *implicit)
        number = self.functions.word(GraphSlot.Node_GetId, node)
        return GraphNode(node, number, self.name(node), operator, tuple(known), inputs, self.outputs(node), bodies)

    def _branches(self, node: int) -> tuple[Body, ...]:
        count = self.functions.word(GraphSlot.Node_GetNumSubgraphs, node)
        graphs, names = (ctypes.c_uint64 * count)(), (ctypes.c_char_p * count)()
        addresses = (ctypes.addressof(graphs), count, ctypes.addressof(names))
        self.functions.call(GraphSlot.Node_GetSubgraphs, node, *addresses)
        read = [self.graph(graph) for graph in graphs]
        return tuple(
            Body((name or b"").decode(), one.nodes, one.outputs) for name, one in zip(names, read, strict=True)
        )

    def _attributes(self, node: int) -> list[tuple[str, int]]:
        handles = self._list(GraphSlot.Node_GetNumAttributes, GraphSlot.Node_GetAttributes, node)
        return [(self._text(GraphSlot.OpAttr_GetName, handle), handle) for handle in handles]

    def _attribute(self, name: str, attribute: int) -> onnx_ir.Attr | None:
        kind = self.functions.word(GraphSlot.OpAttr_GetType, attribute) & 0xFFFFFFFF
        if kind not in set(AttributeKind):
            return None
        if kind == AttributeKind.Tensor:
            return self._tensor_attribute(name, attribute)
        content = self._content(attribute, kind)
        match AttributeKind(kind):
            case AttributeKind.Integer:
                return onnx_ir.AttrInt64(name, int(content.view(np.int64)[0]))
            case AttributeKind.Integers:
                return onnx_ir.AttrInt64s(name, content.view(np.int64).tolist())
            case AttributeKind.Float:
                return onnx_ir.AttrFloat32(name, float(content.view(np.float32)[0]))
            case AttributeKind.Floats:
                return onnx_ir.AttrFloat32s(name, content.view(np.float32).tolist())
            case AttributeKind.Text:
                return onnx_ir.AttrString(name, content.tobytes().rstrip(b"\0").decode(errors="replace"))
            case _:
                texts = content.tobytes().split(b"\0")[:-1]
                return onnx_ir.AttrStrings(name, [text.decode(errors="replace") for text in texts])

    def _content(self, attribute: int, kind: int) -> NDArray[np.uint8]:
        size = ctypes.c_size_t(0)
        try:
            self.functions.call(Slot.ReadOpAttr, attribute, kind, None, 0, ctypes.addressof(size))
        except OrtError:
            if not size.value:
                raise  # otherwise it only says how much room there must be
        content = aligned_bytes(size.value)
        if size.value:
            content_address = address_of(content)
            self.functions.call(Slot.ReadOpAttr, attribute, kind, content_address, size.value, ctypes.addressof(size))
        return content[: size.value]

    def _tensor_attribute(self, name: str, attribute: int) -> onnx_ir.Attr | None:
        value = self.functions.word(GraphSlot.OpAttr_GetTensorAttributeAsOrtValue, attribute)
        array = self._array(value)
        return None if array is None else onnx_ir.AttrTensor(name, onnx_ir.Tensor(array.copy()))

    def _value(self, value: int) -> str:
        """Return the name of an `OrtValueInfo`; remember its type, and its content where it is constant."""
        if not value:
            return ""
        name = self._text(GraphSlot.GetValueInfoName, value)
        if not name or name in self.types or name in self.constants:
            return name
        self._remember_type(name, value)
        if self.functions.word(GraphSlot.ValueInfo_IsConstantInitializer, value) & 1:
            tensor = self.functions.word(GraphSlot.ValueInfo_GetInitializerValue, value)
            array = self._array(tensor) if tensor else None
            if array is not None:
                self.constants[name] = array
        return name

    def _remember_type(self, name: str, value: int) -> None:
        kind = self.functions.word(GraphSlot.GetValueInfoTypeInfo, value)
        if not kind or self.functions.word(GraphSlot.GetOnnxTypeFromTypeInfo, kind) & 0xFFFFFFFF != TENSOR:
            return
        tensor = self.functions.word(GraphSlot.CastTypeInfoToTensorInfo, kind)
        element = self.functions.word(Slot.GetTensorElementType, tensor) & 0xFFFFFFFF
        self.types[name] = (element, self._dims(tensor))

    def _dims(self, info: int) -> tuple[int | str | None, ...]:
        rank = self.functions.word(Slot.GetDimensionsCount, info)
        dims, names = (ctypes.c_int64 * max(rank, 1))(), (ctypes.c_char_p * max(rank, 1))()
        self.functions.call(Slot.GetDimensions, info, ctypes.addressof(dims), rank)
        self.functions.call(Slot.GetSymbolicDimensions, info, ctypes.addressof(names), rank)
        words = [(name or b"").decode() or None for name in names]
        return tuple(size if size >= 0 else word for size, word in zip(dims[:rank], words[:rank], strict=True))

    def _array(self, value: int) -> NDArray[Any] | None:
        """Return the content of an `OrtValue` where it lies, None for a type that numpy does not have."""
        info = self.functions.word(Slot.GetTensorTypeAndShape, value)
        try:
            dtype = DTYPES.get(self.functions.word(Slot.GetTensorElementType, info) & 0xFFFFFFFF)
            shape = [int(size or 0) for size in self._dims(info)]
        finally:
            self.functions.release(Slot.ReleaseTensorTypeAndShapeInfo, info)
        if dtype is None:
            return None
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not size:
            return np.zeros(shape, dtype)
        address = self.functions.word(Slot.GetTensorMutableData, value)
        content = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        content.flags.writeable = False
        return content.view(dtype).reshape(shape)

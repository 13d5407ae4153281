"""Sparse networks as ONNX: a node of our own domain, and a model-local function of its name in standard operators.

A runtime that has our library runs the node natively; any other one inlines the function. Both read the same constants.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import onnx
import onnx_ir as ir
from xdsl.ir import Attribute, SSAValue

from ...dialect.attributes.codes import codes_in
from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.foreign import INT32, INT64
from ...dialect.ops.sparse_network import SparseNetworkOp
from ...dialect.provenance import node_key
from ...dialect.tensors import DYNAMIC, shape_of
from ...dialect.wanted_kernels import METADATA, wanted_kernels
from ...frontend.operators.attributes import MICROSOFT
from ...frontend.reading.model_file import OVERRIDABLE_SINCE
from ...frontend.reading.raised_opset import raising_obstacle
from ...sparse.csr import CscMatrix
from ..operators.table import emit
from ..original import Array, Original
from ..writing.compact_weights import SINCE, compact, emit_decoding
from ..writing.initializers import Initializers
from ..writing.node_builder import NodeBuilder
from .node_format import CODES_OP_TYPE, DOMAIN, DOMAIN_VERSION, FORMAT, OP_TYPE

# The body of a sparse network in standard operators: what runs where no library of ours is registered.
#
# Its inputs are the network's operands, then its constants, sparse weights as values and gaps. Names inside follow from
# the position alone, so networks that compute the same with other weights have equal bodies.

ELEMENT_TYPES: Final = {"u8": onnx.TensorProto.UINT8, "s8": onnx.TensorProto.INT8}


@dataclass
class BodyConstants:
    """The constants of a body: each an input, and an initializer of the graph around it."""

    initializers: Initializers
    opset: int
    inputs: dict[ir.Value, ir.Value] = field(default_factory=dict[ir.Value, ir.Value])
    """Initializer outside -> its value inside the function."""
    decoded: dict[tuple[SSAValue, bool], ir.Value] = field(default_factory=dict[tuple[SSAValue, bool], ir.Value])
    shared: dict[tuple[SSAValue, bool], tuple[ir.Value, ir.Value]] = field(
        default_factory=dict[tuple[SSAValue, bool], tuple[ir.Value, ir.Value]]
    )
    """Compact weights that exist already, from this body or another."""
    nodes: list[ir.Node] = field(default_factory=list[ir.Node])

    def plain(self, value: SSAValue) -> ir.Value:
        stored = self._stored(value)
        if stored is not None:
            inside, transposed = stored
            return self._builder().node("Transpose", inside, perm=[1, 0]) if transposed else inside
        if isinstance(value.owner, SparseConstantOp):
            return self._decoded(value.owner, transposed=False)
        return self._inside(self.initializers.plain(value))

    def matrix(self, value: SSAValue) -> tuple[ir.Value, bool]:
        stored = self._stored(value)
        if stored is not None:
            return stored
        if isinstance(value.owner, SparseConstantOp):
            transposed = self.initializers.lies_transposed(value)
            return self._decoded(value.owner, transposed=transposed), transposed
        outside, transposed = self.initializers.matrix(value)
        return self._inside(outside), transposed

    def edges(self, value: SSAValue) -> tuple[ir.Value, ir.Value]:
        weights, gaps = self.initializers.edges(value)
        return self._inside(weights), self._inside(gaps)

    def row(self, value: SSAValue) -> ir.Value:
        return self._inside(self.initializers.row(value))

    def literal(self, array: Array) -> ir.Value:
        node = ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.Tensor(array))], num_outputs=1)
        self.nodes.append(node)
        return node.outputs[0]

    def add_part(self, value: SSAValue, part: str, array: Array) -> ir.Value:
        return self._inside(self.initializers.add_part(value, part, array))

    def add_sparse(self, value: SSAValue, part: str, matrix: CscMatrix) -> ir.Value:
        packed = compact(matrix, transposed=False)
        values = self.initializers.add_part(value, f"{part}_values", packed.values)
        gaps = self.initializers.add_part(value, f"{part}_gaps", packed.gaps)
        return emit_decoding(packed.shape, self._inside(values), self._inside(gaps), self._builder())

    def _stored(self, value: SSAValue) -> tuple[ir.Value, bool] | None:
        """Return a weight that nodes outside read as well, such as an embedding that is the last layer, too."""
        stored = self.initializers.stored_matrix(value)
        return None if stored is None else (self._inside(stored[0]), stored[1])

    def _inside(self, outside: ir.Value) -> ir.Value:
        return self.inputs.setdefault(outside, ir.Value(name=f"c{len(self.inputs)}", type=outside.type))

    def _decoded(self, op: SparseConstantOp, *, transposed: bool) -> ir.Value:
        key = (op.result, transposed)
        if key not in self.decoded:
            if key not in self.shared:
                weight = compact(op.weight, transposed=transposed)
                values = self.initializers.add_part(op.result, "values", weight.values)
                gaps = self.initializers.add_part(op.result, "gaps", weight.gaps)
                self.shared[key] = (values, gaps)
            inputs, outputs = op.weight.shape
            values, gaps = (self._inside(part) for part in self.shared[key])
            shape = (outputs, inputs) if transposed else (inputs, outputs)
            self.decoded[key] = emit_decoding(shape, values, gaps, self._builder())
        return self.decoded[key]

    def _builder(self) -> NodeBuilder:
        return NodeBuilder(self.opset, self, self._refuse, self.nodes)

    def _refuse(self, value: SSAValue) -> ir.Value:
        raise ValueError(f"{value} is no constant")


@dataclass(frozen=True)
class NetworkBody:
    """Nodes in standard operators, the initializers that they read after the operands, and the types at the edge."""

    graph: ir.Graph
    constants: tuple[ir.Value, ...]
    operands: tuple[onnx.ValueInfoProto, ...]
    results: tuple[onnx.ValueInfoProto, ...]
    kernels: Mapping[str, str]
    """Kernels that a person wants, by the names of the nodes that a layer is written as."""


def network_body(op: SparseNetworkOp, constants: BodyConstants) -> NetworkBody:
    """Return the body of a sparse network.

    Raises:
        ValueError: an op inside has no form in the model's opset.
    """
    operands = [ir.Value(name=f"x{index}") for index in range(len(op.inputs))]
    known: dict[SSAValue, ir.Value] = dict(zip(op.body.block.args, operands, strict=True))

    def lookup(value: SSAValue) -> ir.Value:
        return constants.plain(value) if isinstance(value.owner, ConstantOp | SparseConstantOp) else known[value]

    builder = NodeBuilder(constants.opset, constants, lookup, constants.nodes)
    wanted, wishes = wanted_kernels(op), dict[str, str]()
    for inner in op.body.block.ops:
        first = len(builder.nodes)
        if inner.results:
            known.update(zip(inner.results, emit(inner, builder), strict=True))
        if kernel := wanted.get(node_key(inner), ""):
            for index in range(first, len(builder.nodes)):
                # which of them the layer will be named after is found out when the network is read
                builder.nodes[index].name = f"n{index}"
                wishes[f"n{index}"] = kernel
    for index, node in enumerate(builder.nodes):
        for position, value in enumerate(node.outputs):
            value.name = f"n{index}" + (f"_{position}" if position else "")
    results = [known[value] for value in op.yielded]
    graph = ir.Graph(
        [*operands, *constants.inputs.values()],
        results,
        nodes=builder.nodes,
        opset_imports={"": constants.opset, **_microsoft(builder.nodes)},
        name="sparse_network",
    )
    return NetworkBody(
        graph,
        tuple(constants.inputs),
        tuple(
            _described(value.name, [word.data for word in words], outer)
            for value, words, outer in zip(operands, op.dims, op.inputs, strict=True)
        ),
        tuple(_described(value.name, _sizes(outer), outer) for value, outer in zip(results, op.outputs, strict=True)),
        wishes,
    )


def _microsoft(nodes: Iterable[ir.Node]) -> dict[str, int]:
    """Return the operator set of onnxruntime's operators with its version where nodes are some of these."""
    return {MICROSOFT: 1} if any(node.domain == MICROSOFT for node in nodes) else {}


def _described(name: str | None, words: list[str], value: SSAValue) -> onnx.ValueInfoProto:
    sizes = [int(word) if word.isdecimal() else word or None for word in words]
    codes = codes_in(value.type)
    kinds: dict[Attribute, int] = {INT64: onnx.TensorProto.INT64, INT32: onnx.TensorProto.INT32}
    kind = kinds.get(value.type, onnx.TensorProto.FLOAT)
    if codes is not None:
        kind = ELEMENT_TYPES[codes.kind]
    return onnx.helper.make_tensor_value_info(name or "", kind, sizes)


def _sizes(value: SSAValue) -> list[str]:
    return ["" if size == DYNAMIC else str(size) for size in shape_of(value)]


FUNCTIONS_SINCE: Final = 8
"""The IR version from which a model may hold functions."""


def allow_functions(model: ir.Model) -> None:
    """Raise the IR version of a model to the first that has functions, in place: the model means the same.

    Up to version 3 every initializer has to be a graph input as well, and no caller can replace it. From version 4 on
    callers could, so initializers are inputs no more; of a model of version 4 to 7 those that are stay inputs.
    """
    if model.ir_version < OVERRIDABLE_SINCE:
        for value in [value for value in model.graph.inputs if value.is_initializer()]:
            model.graph.inputs.remove(value)
    model.ir_version = max(model.ir_version, FUNCTIONS_SINCE)


def network_obstacle(model: ir.Model) -> str:
    """Return why a model cannot hold sparse networks with its opset, raised if possible; empty where it can."""
    opset = model.opset_imports.get("")
    if opset is None:
        return f"the model states no opset, a sparse network needs {SINCE}"
    if opset < SINCE:
        return f"the model's opset is {opset}, a sparse network needs {SINCE}: {raising_obstacle(model)}"
    return ""


class SparseNetworks:
    """Makes nodes and functions for the sparse networks of one model."""

    def __init__(self, original: Original, initializers: Initializers) -> None:
        self._original = original
        self._initializers = initializers
        self._op_types: dict[bytes, str] = {}
        self._compact: BodyConstants | None = None

    def node(self, op: SparseNetworkOp, operands: list[ir.Value]) -> ir.Node:
        """Return the node for a sparse network that reads `operands`; its function is in the model then."""
        constants = BodyConstants(self._initializers, self._original.opset)
        if self._compact is not None:
            constants.shared = self._compact.shared
        self._compact = constants
        body = network_body(op, constants)
        network = self._network(body)
        text = base64.b64encode(zlib.compress(network, 9)).decode()
        attributes = {
            "network": text,
            "digest": _digest(text, body),
            "activations": len(operands),
            "format": FORMAT,
        }
        yields_codes = any(codes_in(value.type) is not None for value in op.outputs)
        first = CODES_OP_TYPE if yields_codes else OP_TYPE
        op_type = self._op_types.get(network) or self._add_function(network, body, list(attributes), first)
        return ir.Node(
            DOMAIN,
            op_type,
            [*operands, *body.constants],
            ir.convenience.convert_attributes(attributes),
            num_outputs=len(op.outputs),
        )

    def _network(self, body: NetworkBody) -> bytes:
        """Return the body as a model, whose last inputs are the constants, without type or shape."""
        model = self._original.model
        inputs = [*body.operands]
        inputs += [onnx.ValueInfoProto(name=value.name or "") for value in body.graph.inputs[len(inputs) :]]
        nodes = [ir.serde.serialize_node(node) for node in body.graph]
        graph = onnx.GraphProto(name="sparse_network", node=nodes, input=inputs, output=body.results)
        versions = {"": self._original.opset, **_microsoft(body.graph)}
        opsets = [onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in versions.items()]
        proto = onnx.ModelProto(ir_version=model.ir_version, graph=graph, opset_import=opsets)
        if body.kernels:
            onnx.helper.set_model_props(proto, {METADATA: json.dumps(dict(body.kernels))})
        return proto.SerializeToString(deterministic=True)

    def _add_function(self, network: bytes, body: NetworkBody, attributes: list[str], first: str) -> str:
        model = self._original.model
        taken = {name for domain, name, _ in model.functions if domain == DOMAIN}
        number = sum(one.startswith(first) for one in self._op_types.values())
        while f"{first}_{number}" in taken:
            number += 1
        op_type = self._op_types[network] = f"{first}_{number}"
        declared = [ir.Attr(name, ir.AttributeType.UNDEFINED, None) for name in attributes]
        function = ir.Function(DOMAIN, op_type, graph=body.graph, attributes=declared)
        model.functions[function.identifier()] = function
        model.graph.opset_imports[DOMAIN] = DOMAIN_VERSION
        return op_type


def _digest(network: str, body: NetworkBody) -> str:
    """Return the sha256 of what is computed and of all constants, in hexadecimal digits."""
    digest = hashlib.sha256(network.encode())
    for value in body.constants:
        if value.const_value is not None:
            digest.update(value.const_value.tobytes())
    return digest.hexdigest()

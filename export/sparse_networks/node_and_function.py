"""Sparse networks as ONNX: a node of our own domain, and a model-local function of its name in standard operators.

A runtime that has our library runs the node natively; any other one inlines the function. Both read the same constants.
"""

import base64
import hashlib
import zlib
from typing import Final

import onnx
import onnx_ir as ir

from ...dialect.ops.sparse_network import SparseNetworkOp
from ...dialect.tensors import byte_kind
from ...frontend.reading.model_file import OVERRIDABLE_SINCE
from ...frontend.reading.raised_opset import raising_obstacle
from ..original import Original
from ..writing.compact_weights import SINCE
from ..writing.initializers import Initializers
from .node_format import CODES_OP_TYPE, DOMAIN, DOMAIN_VERSION, FORMAT, OP_TYPE
from .standard_body import BodyConstants, NetworkBody, network_body

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
        yields_codes = any(byte_kind(value.type) for value in op.outputs)
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
        nodes = [ir.to_proto(node) for node in body.graph]
        graph = onnx.GraphProto(name="sparse_network", node=nodes, input=inputs, output=body.results)
        opset = onnx.OperatorSetIdProto(domain="", version=self._original.opset)
        proto = onnx.ModelProto(ir_version=model.ir_version, graph=graph, opset_import=[opset])
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

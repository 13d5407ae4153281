"""Models whose sparse layers are in sparse networks, however small they are."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.ops.constants import SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.driver.compiler import native_code
from redpebble.export.export_model import export_model
from redpebble.export.sparse_networks.node_and_function import network_obstacle
from redpebble.export.sparse_networks.node_content import network_model
from redpebble.export.sparse_networks.node_format import DOMAIN
from redpebble.frontend.import_model import Source, import_model
from redpebble.options import Options
from redpebble.ort.network_code import checked_identity
from redpebble.pipeline import run_stages
from redpebble.runtime.network import Network


def prefer_sparse_kernels(module: ModuleOp) -> None:
    """Choose a sparse kernel for every sparse layer: small ones would not gain."""
    for op in module.walk():
        if isinstance(op, LinearOp) and isinstance(op.weight.owner, SparseConstantOp):
            op.kernel = KernelAttr({1: "count_blocks"}, "chosen by a test")


def with_networks(source: Source) -> ir.Model:
    """Return the model as `optimize` would leave it for onnxruntime if every sparse layer gained."""
    imported = import_model(source, foreign="keep", whole=frozenset())
    run_stages(imported.module, Options("optimize"), until="choose")
    prefer_sparse_kernels(imported.module)
    if not network_obstacle(imported.model):
        run_stages(imported.module, Options("optimize"), after="choose", until="extract")
    return export_model(imported.module, imported.model)


def network_nodes(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the nodes of our own domain."""
    return [node for node in proto.graph.node if node.domain == DOMAIN]


def attributes_of(node: onnx.NodeProto) -> dict[str, str | int]:
    """Return the attributes as our library hands them over."""
    return {
        entry.name: entry.s.decode() if entry.type == onnx.AttributeProto.STRING else entry.i
        for entry in node.attribute
    }


def constants_of(proto: onnx.ModelProto, node: onnx.NodeProto) -> list[NDArray[Any]]:
    """Return the constant inputs of a node of ours."""
    arrays = {entry.name: onnx.numpy_helper.to_array(entry) for entry in proto.graph.initializer}
    return [arrays[name] for name in node.input[int(attributes_of(node)["activations"]) :]]


def run_natively(proto: onnx.ModelProto, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return what a model computes of which all nodes are ours, each compiled by itself."""
    known = dict(feeds)
    for node in proto.graph.node:
        handed_over = (node.op_type, attributes_of(node), constants_of(proto, node))
        checked_identity(*handed_over)
        artefact = native_code(network_model(*handed_over), cache=False)
        network = Network(artefact.program, artefact.image)
        count = int(attributes_of(node)["activations"])
        names = [argument.name for argument in network.get_inputs()]
        outputs = network.run(
            None, {name: known[source] for name, source in zip(names, node.input[:count], strict=True)}
        )
        known.update(zip(node.output, outputs, strict=True))
    return [np.asarray(known[output.name]) for output in proto.graph.output]

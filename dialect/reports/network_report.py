"""Members of each sparse network, read from the IR: the lines of a report."""

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from redpebble.dialect.ops.constants import SparseConstantOp, constant_array
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.sparse_network import SparseNetworkOp
from redpebble.dialect.provenance import node_name
from redpebble.dialect.tensors import shape_of


@dataclass(frozen=True)
class NetworkReport:
    """One sparse network: the name of its first linear layer, its operators and linear layers, their connections."""

    name: str
    operators: int
    layers: int
    connections: int
    density: float
    reason: str


def network_reports(module: ModuleOp) -> tuple[NetworkReport, ...]:
    """Return a line for each sparse network of `module`, in the order of execution."""
    networks = [op for op in module.walk() if isinstance(op, SparseNetworkOp)]
    return tuple(_report(op, index) for index, op in enumerate(networks))


def _report(op: SparseNetworkOp, index: int) -> NetworkReport:
    layers = [inner for inner in op.body.block.ops if isinstance(inner, LinearOp)]
    connections = sum(map(_connections, layers))
    possible = sum(inputs * outputs for inputs, outputs in (shape_of(layer.weight) for layer in layers))
    return NetworkReport(
        name=node_name(op) or f"network_{index}",
        operators=sum(1 for inner in op.body.block.ops if inner.results),
        layers=len(layers),
        connections=connections,
        density=connections / possible if possible else 0.0,
        reason=op.reason.data,
    )


def _connections(layer: LinearOp) -> int:
    if isinstance(layer.weight.owner, SparseConstantOp):
        return len(layer.weight.owner.values)
    array = constant_array(layer.weight)
    return 0 if array is None else int((array != 0).sum())

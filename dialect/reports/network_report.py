"""Members of each sparse network, read from the IR: the lines of a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from ..attributes.activations import OF_FEW_INSTRUCTIONS
from ..ops.attention import Attention
from ..ops.elementwise import ActivateOp, AddOp, ConvertOp, MulOp
from ..ops.images import Conv2dOp, Depthwise2dOp, image_shape
from ..ops.layers import LinearOp
from ..ops.movement import ConcatOp, ReshapeOp, SplitOp
from ..ops.recurrences import RecurrenceOp
from ..ops.sparse_network import SparseNetworkOp
from ..provenance import node_name
from ..tensors import shape_of
from .layer_numbers import connections_of

Layer = LinearOp | Conv2dOp


class AttentionReport(NamedTuple):
    """An attention: the name of its node, heads, features of a key and of a value of one head, lengths (0: any)."""

    name: str
    heads: int
    key_size: int
    value_size: int
    queries: int
    keys: int
    has_mask: bool
    has_past: bool


@dataclass(frozen=True)
class NetworkReport:
    """One sparse network: the name of its first layer, its operators and layers with weights, their connections."""

    name: str
    operators: int
    layers: int
    connections: int
    density: float
    reason: str
    predicted_us: Mapping[str, float] = field(default_factory=dict[str, float])
    """Times of a tile of all its linear layers, by its width in rows as a decimal number, ascending."""
    values: int = 0
    """Values that all other operators yield for a row."""
    quick_values: int = 0
    """Values among these that take a few instructions: of sums, products, copies and simple activations."""
    image_us: float = 0.0
    """Predicted time of an image, its way in and out included, and that of dense convolutions; 0 without images."""
    dense_image_us: float = 0.0
    image_products: int = 0
    """Multiply-adds of the convolutions of an image, zeros included."""
    attentions: tuple[AttentionReport, ...] = ()
    integer_layers: tuple[tuple[int, int], ...] = ()
    """Inputs and outputs of each quantized linear layer."""
    float_layers: tuple[tuple[int, int], ...] = ()
    """The same of each linear layer of floats."""


def network_reports(module: ModuleOp) -> tuple[NetworkReport, ...]:
    """Return a line for each sparse network of `module`, in the order of execution."""
    networks = [op for op in module.walk() if isinstance(op, SparseNetworkOp)]
    return tuple(_report(op, index) for index, op in enumerate(networks))


def _report(op: SparseNetworkOp, index: int) -> NetworkReport:
    layers = [inner for inner in op.body.block.ops if isinstance(inner, Layer)]
    weights = [layer.weight for layer in layers]
    linears = [layer for layer in layers if isinstance(layer, LinearOp)]
    connections = sum(connections_of(weight) or 0 for weight in weights)
    possible = sum(inputs * outputs for inputs, outputs in map(shape_of, weights))
    recurrent = [
        array for inner in op.body.block.ops if isinstance(inner, RecurrenceOp) for array in inner.weight_arrays
    ]
    connections += sum(int(np.count_nonzero(array)) for array in recurrent)
    possible += sum(array.size for array in recurrent)
    return NetworkReport(
        name=node_name(op) or f"network_{index}",
        operators=sum(1 for inner in op.body.block.ops if inner.results and not isinstance(inner, ConvertOp)),
        layers=len(weights) + len(recurrent),
        connections=connections,
        density=connections / possible if possible else 0.0,
        reason=op.reason.data,
        predicted_us=_predicted_us(layers),
        values=sum(map(_features, op.body.block.ops)),
        quick_values=sum(_features(inner) for inner in op.body.block.ops if _is_quick(inner)),
        image_us=op.image_us.value.data if op.image_us is not None else 0.0,
        dense_image_us=op.dense_image_us.value.data if op.dense_image_us is not None else 0.0,
        image_products=sum(map(_products, op.body.block.ops)),
        integer_layers=tuple(_sizes(layer) for layer in linears if layer.codes is not None),
        float_layers=tuple(_sizes(layer) for layer in linears if layer.codes is None),
        attentions=tuple(_attention(inner) for inner in op.body.block.ops if isinstance(inner, Attention)),
    )


def _products(op: Operation) -> int:
    """Return the multiply-adds of a convolution for an image, zeros included; 0 for all else."""
    if not isinstance(op, Conv2dOp | Depthwise2dOp):
        return 0
    (inputs, outputs), (_, _, height, width) = shape_of(op.weight), image_shape(op.result)
    return inputs * outputs * height * width


def _attention(op: Attention) -> AttentionReport:
    queries, keys = (max(0, shape_of(value)[1]) for value in (op.q, op.k))
    sizes = op.head_counts.queries, op.key_size, op.value_size, queries, 0 if op.past else keys
    return AttentionReport(node_name(op), *sizes, op.mask is not None, bool(op.past))


def _sizes(layer: LinearOp) -> tuple[int, int]:
    inputs, outputs = shape_of(layer.weight)
    return inputs, outputs


def _features(op: Operation) -> int:
    """Return the values of a row that an operator yields; none for a layer, and for what only moves."""
    if isinstance(op, LinearOp | ConvertOp | ReshapeOp | SplitOp):
        return 0
    return sum(max(0, shape_of(result)[-1]) for result in op.results if shape_of(result))


def _is_quick(op: Operation) -> bool:
    """Return whether a value that an operator yields takes a few instructions."""
    return isinstance(op, AddOp | MulOp | ConcatOp) or (
        isinstance(op, ActivateOp) and op.activation.kind in OF_FEW_INSTRUCTIONS
    )


def _predicted_us(layers: Sequence[Layer]) -> dict[str, float]:
    """Return the sums of times at the widths for which there are times of all layers; none for layers of pixels."""
    if any(isinstance(layer, Conv2dOp) for layer in layers):
        return {}
    times = [layer.kernel.predicted if layer.kernel is not None else dict[int, float]() for layer in layers]
    widths = set[int].intersection(*({*one} for one in times)) if times else set[int]()
    return {str(width): sum(one[width] for one in times) for width in sorted(widths)}

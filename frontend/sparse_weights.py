"""A look at the weights of a model, before anything is made of it: whether one of them has enough zeros.

Models are looked at as they come: weights may lie in Constant nodes, behind a Transpose, a Cast or a mask, or be codes.
Where nothing tells how many zeros a weight has, it counts as one that has enough.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ..sparse.densities import MOSTLY_ZEROS, STORED_CODES, STORED_SPARSE
from .reading.weight_graph import FLOATS, Constant, GraphNode, Values, WeightGraph, array_blocks

if TYPE_CHECKING:
    # of a file that is not read the weights are seen without it
    import onnx_ir


class Places(NamedTuple):
    """The inputs of an operator that may be weights, and the input that is the zero of their codes, -1 for floats."""

    weights: tuple[int, ...]
    zero: int = -1


CONVOLUTIONS: Final[Mapping[tuple[str, str], Places]] = {
    ("", "Conv"): Places((1,)),
    ("", "ConvInteger"): Places((1,), 3),
    ("", "ConvTranspose"): Places((1,)),
    ("", "QLinearConv"): Places((3,), 5),
}
"""Layers on images."""

LAYERS: Final[Mapping[tuple[str, str], Places]] = {
    **CONVOLUTIONS,
    ("", "GRU"): Places((1, 2)),
    ("", "Gemm"): Places((0, 1)),
    ("", "LSTM"): Places((1, 2)),
    ("", "MatMul"): Places((0, 1)),
    ("", "MatMulInteger"): Places((1,), 3),
    ("", "QLinearMatMul"): Places((3,), 5),
    ("", "RNN"): Places((1, 2)),
    ("com.microsoft", "Attention"): Places((1,)),
    ("com.microsoft", "DynamicQuantizeMatMul"): Places((1,), 3),
    ("com.microsoft", "MatMulIntegerToFloat"): Places((1,), 5),
    ("com.microsoft", "MatMulNBits"): Places((1,), 3),
    ("com.microsoft", "QGemm"): Places((3,), 5),
}
"""Operators that gain by zeros in their weights."""

PACKED: Final = frozenset({"MatMulNBits"})
"""Operators whose codes are packed: of four bits two a byte, and the zeros of their groups likewise."""

WEIGHTS_OF_CODES: Final = {operator: places.weights[0] for (_, operator), places in LAYERS.items() if places.zero >= 0}
"""Operator on codes -> the input that is its weight."""

GRAPHS: Final = frozenset({("", "ScatterElements"), ("", "ScatterND"), ("com.microsoft", "SparseToDenseMatMul")})
"""Operators that may gain whatever the weights are: sums over the edges of a graph."""

SAME: Final = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators whose results have the zeros of their first input."""

LEAST_ZEROS: Final = 1 - STORED_SPARSE
"""Share of zeros below which a weight counts as dense: no kernel of ours is faster than the runtime's then."""

FEWEST: Final = 64
"""Values of a weight below which no kernel saves time."""


def graph_of(model: "onnx_ir.Model") -> WeightGraph:
    """Return the graph of a model that was read."""
    import onnx_ir

    from .folding.known_constants import is_constant
    from .reading.lazy_sparse_tensor import SparseTensor

    held: list[tuple[onnx_ir.Value, onnx_ir.TensorProtocol]] = []
    nodes: list[GraphNode] = []
    for graph in model.graphs():
        values = (value for value in graph.initializers.values() if is_constant(value, model.ir_version))
        held += ((value, value.const_value) for value in values if value.const_value is not None)
    for node in model.graph.all_nodes():
        attributes = {name: one for name, one in node.attributes.items() if not one.is_ref()}
        if (node.domain, node.op_type) == ("", "Constant") and "value" in attributes:
            held.append((node.outputs[0], attributes["value"].as_tensor()))
        cast = attributes["to"].as_int() if node.op_type == "Cast" and "to" in attributes else 0
        nodes.append(GraphNode(node.domain, node.op_type, node.inputs, node.outputs, cast))
    constants: dict[Hashable, Constant] = {
        value: Constant(tuple(tensor.shape.numpy()), lambda tensor=tensor: array_blocks(tensor.numpy()))
        for value, tensor in held
        if tensor.dtype != onnx_ir.DataType.STRING
    }
    is_sparse = any(isinstance(tensor, SparseTensor) for _, tensor in held)
    return WeightGraph(nodes, constants, not is_sparse and not model.functions)


def reason_of_density(graph: WeightGraph, takes_dense_codes: Callable[[], bool]) -> str:
    """Return why nothing in a model can be faster as a sparse network; empty where something may be.

    Where one asks whether weights of four bits may gain that have few zeros, there is one.
    """
    if not graph.is_complete or any((node.domain, node.operator) in GRAPHS for node in graph.nodes):
        return ""
    look, most = _Look(graph), None
    for node in graph.nodes:
        share = look.zeros(node, LAYERS)
        least = 1 - STORED_CODES if node.operator in PACKED else LEAST_ZEROS
        if share is not None and (share >= least or (node.operator in PACKED and takes_dense_codes())):
            return ""
        most = max(share or 0.0, most or 0.0) if share is not None else most
    return "no layer is covered" if most is None else all_dense(most)


def all_dense(zeros: float) -> str:
    """Return the reason why nothing is gained in a model whose weights have at most this share of zeros."""
    return f"all layers are dense, with {100 * zeros:.0f} % zeros at most; redpebble prune makes more"


def has_sparse_convolution(graph: WeightGraph) -> bool:
    """Return whether a convolution has a constant weight that is mostly zeros, of floats or of codes."""
    look = _Look(graph)
    return any((look.zeros(node, CONVOLUTIONS) or 0.0) >= 1 - MOSTLY_ZEROS for node in graph.nodes)


def is_dense_convolution(node: "onnx_ir.Node", version: int) -> bool:
    """Return whether a node is a convolution of floats that no pass can store sparse: one of all channels."""
    groups = node.attributes.get("group")
    if (node.domain, node.op_type) != ("", "Conv") or (groups is not None and groups.as_int() != 1):
        return False
    zeros = weight_zeros(node, version)
    return zeros is not None and zeros < LEAST_ZEROS


def weight_zeros(node: "onnx_ir.Node", version: int) -> float | None:
    """Return the share of zeros in the weight of a layer; None where it is no constant of this graph."""
    from .folding.dequantized_constants import is_dequantized, zero_share
    from .folding.known_constants import is_constant

    inputs = [*node.inputs, *[None] * 6]
    places = LAYERS.get((node.domain, node.op_type), Places((0, 1)))
    if node.op_type in PACKED:
        value = inputs[places.weights[0]]
        if value is None or inputs[places.zero] is not None or not is_constant(value, version):
            return None
        assert value.const_value is not None
        return packed_zeros(array_blocks(value.const_value.numpy()))
    if places.zero >= 0:
        axis = 0 if (node.domain, node.op_type) in CONVOLUTIONS else -1
        return zero_share(inputs[places.weights[0]], inputs[places.zero], version, axis)
    first, last = min(places.weights), max(places.weights)
    for value in filter(None, inputs[first : last + 1]):
        if is_constant(value, version):
            return zero_share(value, None, version)
        source = value.producer() if is_dequantized(value) else None
        codes = None if source is None else source.inputs[0]
        if source is not None and codes is not None and is_constant(codes, version):
            return zero_share(codes, [*source.inputs, None][2], version)
    return None


class _Look:
    """The zeros of a graph, counted when they are asked for."""

    def __init__(self, graph: WeightGraph) -> None:
        self._graph = graph
        self._known: dict[tuple[Hashable, Hashable | None], float] = {}

    def zeros(self, node: GraphNode, layers: Mapping[tuple[str, str], Places]) -> float | None:
        """Return the share of zeros in the weights of a layer, of the one that has most; None of a node without any."""
        places = layers.get((node.domain, node.operator))
        if places is None:
            return None
        zero = node.inputs[places.zero] if 0 <= places.zero < len(node.inputs) else None
        if node.operator in PACKED:
            constant = self._graph.constants.get(node.inputs[places.weights[0]])
            return 1.0 if constant is None or zero else packed_zeros(constant.blocks())
        weights = [node.inputs[index] for index in places.weights if index < len(node.inputs)]
        return max((self._share(value, zero) for value in weights if self._is_weight(value)), default=None)

    def _is_weight(self, value: Hashable | None) -> bool:
        constant = self._graph.constants.get(value)
        if constant is None:
            return value in self._computed
        return len(constant.shape) > 1 and prod(constant.shape) >= FEWEST

    @cached_property
    def _computed(self) -> Mapping[Hashable, GraphNode]:
        """The values that nodes compute of constants alone, or hold in a form that is not read, and those nodes."""
        found: dict[Hashable, GraphNode] = {}
        for node in self._graph.nodes:
            read = [value for value in node.inputs if value]
            is_told = bool(read) or node.operator == "Constant"
            if is_told and all(value in found or value in self._graph.constants for value in read):
                found.update((value, node) for value in node.outputs)
        return found

    def _share(self, value: Hashable | None, zero: Hashable | None) -> float:
        """Return a share of zeros that a constant does not exceed, or one of codes that are `zero`."""
        key = value, zero or None
        if key not in self._known:
            self._known[key] = 1.0  # whatever reads itself is not told
            self._known[key] = min(1.0, self._found(value, zero or None))
        return self._known[key]

    def _found(self, value: Hashable | None, zero: Hashable | None) -> float:
        constant, node = self._graph.constants.get(value), self._computed.get(value)
        if constant is not None:
            return self._zeros(constant, zero)
        if node is None or node.domain not in ("", "com.microsoft"):
            return 1.0
        first = node.inputs[0] if node.inputs else None
        match node.operator:
            case "Cast" if node.cast in FLOATS:
                return self._share(first, zero)
            case "DequantizeLinear" if zero is None:
                return self._share(first, node.inputs[2] if len(node.inputs) > 2 else None)
            case "Mul" | "Div" if zero is None:
                return sum(self._share(factor, None) for factor in node.inputs)
            case "Concat" if zero is None:
                return max(self._share(part, None) for part in node.inputs)
            case operator if operator in SAME:
                return self._share(first, zero)
            case _:
                return 1.0

    def _zeros(self, constant: Constant, zero: Hashable | None) -> float:
        """Return the share of values that are zeros; 1 where nothing tells which are."""
        held = None if zero is None else self._graph.constants.get(zero)
        size = prod(constant.shape)
        if zero is None or not size:
            return 1.0 - _nonzero(constant, np.zeros(1)) / size if size else 0.0
        if held is None or prod(held.shape) > max(constant.shape, default=1):
            return 1.0
        zeros = np.concatenate([*held.blocks(), np.zeros(0, np.int8)])
        if zeros.size and np.all(zeros == zeros[0]):
            return 1.0 - _nonzero(constant, zeros[:1]) / size
        codes = np.concatenate([*constant.blocks()]).reshape(constant.shape)
        axes = [axis for axis, extent in enumerate(constant.shape) if extent == zeros.size]
        found = (np.count_nonzero(codes != zeros.reshape(-1, *[1] * (codes.ndim - 1 - axis))) for axis in axes)
        return 1.0 - min(map(int, found), default=0) / size


def packed_zeros(blocks: Iterable[Values]) -> float:
    """Return a share of zeros that packed codes, whose zero is the middle one, do not exceed: of four or eight bits."""
    found, size = np.zeros(3, np.int64), 0
    for block in blocks:
        size += block.size
        found += [
            np.count_nonzero(part) for part in (block == EIGHT_BITS, block & 15 == FOUR_BITS, block >> 4 == FOUR_BITS)
        ]
    return max(int(found[0]), int(found[1:].sum()) / 2) / max(1, size)


FOUR_BITS: Final = 8
EIGHT_BITS: Final = 128
"""The middle codes."""


def _nonzero(constant: Constant, zero: Values) -> int:
    """Return how many values of a constant are not its zero."""
    found = 0
    for block in constant.blocks():
        if block.dtype == np.uint16:
            block = block << 1  # floats of 16 bits, without their signs
        found += int(np.count_nonzero(block != zero.astype(block.dtype)))
    return found

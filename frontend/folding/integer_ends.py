"""Codes that come from elsewhere, or go there, pass by floats: layers are made of floats, and take codes later.

before: `y = QLinearMatMul(x, xs, xz, w, ...)` of a graph input x of bytes, and y is a graph output
after:  `f = DequantizeLinear(x, xs, xz)  q = QuantizeLinear(f, xs, xz)  v = QLinearMatMul(q, xs, xz, w, ...)
g = DequantizeLinear(v, ys, yz)  y = QuantizeLinear(g, ys, yz)`

Both ways round are exact: codes stay what they are. The inner node of each pair is part of a layer, and so becomes the
outer one (`passes/simplify/take_bytes.py`) where nothing else reads the floats. Only layers that gain get such ends.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ...kernels.byte_times import gains
from ...kernels.machine import Machine
from ...sparse.csr import CscMatrix
from .dequantized_constants import is_dequantized, is_sparse, mostly_zeros
from .integer_weights import integer_weight_nodes
from .known_constants import constant_array, initializer_of, is_constant, sparse_matrix


class _Places(NamedTuple):
    """Inputs of an operator that hold scale and zero of its codes, its weight, and the zero of that; -1 for none."""

    scale: int
    zero: int
    weight: int
    weight_zero: int


READERS: Final = {
    "QLinearMatMul": _Places(1, 2, 3, 5),
    "QGemm": _Places(1, 2, 3, 5),
    "MatMulInteger": _Places(-1, 2, 1, 3),
    "MatMulIntegerToFloat": _Places(2, 4, 1, 5),
}
"""Layers whose first input are codes."""

ACTIVATIONS: Final = {"QLinearLeakyRelu": (3, 4), "QLinearSigmoid": (3, 4)}
"""Activations from codes to codes."""

MAKERS: Final = {"QLinearMatMul": (6, 7), "QGemm": (7, 8), "QuantizeLinear": (1, 2), **ACTIVATIONS}
"""Operators that yield codes, and which of their inputs are scale and zero of these."""

DYNAMIC: Final = "DynamicQuantizeLinear"

BYTES: Final = (onnx_ir.DataType.UINT8, onnx_ir.DataType.INT8)

BEFORE_ROUNDING: Final = frozenset({"Add", "Cast", "Clip", "Gelu", "LeakyRelu", "Mul", "Relu", "Sigmoid", "Tanh"})
"""Operators between a layer, whose sums may be integers, and the node that rounds its results."""

MOST_BEFORE_ROUNDING: Final = 6


def give_float_ends(model: onnx_ir.Model, machine: Machine | None) -> bool:
    """Let layers of bytes, those that gain on a machine or all, have ends of floats where no other layer is, in place.

    Returns whether one did.
    """
    layers, found = _Layers(model, machine), False
    for node in list(model.graph):
        codes = _codes_read(layers, node)
        if codes is not None:
            _insert_before(model.graph, node, codes)
            found = True
    for node in list(model.graph):
        places = MAKERS.get(node.op_type)
        others = [] if places is None else list(_other_readers(node.outputs[0]))
        is_output = node.outputs[0] in model.graph.outputs
        if places is not None and (others or is_output) and layers.yields(node):
            _insert_behind(model.graph, node, others, is_output=is_output)
            found = True
    return found


def is_dense_behind(machine: Machine, model: onnx_ir.Model, node: onnx_ir.Node) -> bool:
    """Return whether a product of two DequantizeLinear has a dense weight, and reads codes of a layer that gains."""
    operands = [None if value is None else value.producer() for value in node.inputs[:2]]
    if node.op_type not in ("Gemm", "MatMul") or node.domain or len(operands) < 2:
        return False
    x, weight = operands
    if x is None or weight is None or {x.op_type, weight.op_type} != {"DequantizeLinear"}:
        return False
    values, zero = _input(weight, 0), _input(weight, 2)
    if values is None or not is_constant(values, model.ir_version) or mostly_zeros(values, zero, model.ir_version):
        return False
    codes = _input(x, 0)
    rounding = None if codes is None else codes.producer()
    return rounding is not None and rounding.op_type == "QuantizeLinear" and _Layers(model, machine).yields(rounding)


class _CodesRead(NamedTuple):
    """Codes that a node reads: the value, its scale, None for 1, and its zero, None for 0."""

    value: onnx_ir.Value
    scale: onnx_ir.Value | None
    zero: onnx_ir.Value | None


def _codes_read(layers: "_Layers", node: onnx_ir.Node) -> _CodesRead | None:
    """Return the codes from elsewhere that a layer reads, else None."""
    value = node.inputs[0] if node.inputs else None
    if value is None or value.is_initializer() or _is_made_here(value):
        return None
    if node.op_type == "DequantizeLinear":
        # in the network of a node the weight is no constant, but computed from its entries, and dequantized as well
        products = [use.node for use in node.outputs[0].uses() if use.idx == 0]
        if not any(map(layers.has_product, products)):
            return None
        return _read(value, node.inputs[1], _input(node, 2))
    places = READERS.get(node.op_type)
    if places is None or not layers.has_node(node) or not _has_floats_behind(node):
        return None
    return _read(value, None if places.scale < 0 else node.inputs[places.scale], _input(node, places.zero))


def _read(value: onnx_ir.Value, scale: onnx_ir.Value | None, zero: onnx_ir.Value | None) -> _CodesRead | None:
    return _CodesRead(value, scale, zero) if _dtype(value, zero) in BYTES else None


def _dtype(value: onnx_ir.Value, zero: onnx_ir.Value | None) -> onnx_ir.DataType | None:
    """Return the type of codes, which is that of their zero where no type is stated."""
    return value.dtype or (None if zero is None else zero.dtype)


def _is_made_here(value: onnx_ir.Value) -> bool:
    node = value.producer()
    return node is not None and node.op_type in (*MAKERS, DYNAMIC)


def _has_floats_behind(node: onnx_ir.Node) -> bool:
    """Return whether the sums of a MatMulInteger become floats; those of others do."""
    if node.op_type != "MatMulInteger":
        return True
    return all(use.node.op_type in ("Add", "Cast") for use in node.outputs[0].uses())


def _other_readers(value: onnx_ir.Value) -> Iterator[tuple[onnx_ir.Node, int]]:
    """Yield what reads codes and is no layer, and at which of its inputs."""
    for use in value.uses():
        if use.node.op_type not in (*READERS, *ACTIVATIONS, "DequantizeLinear"):
            yield use.node, use.idx


class _Layers(NamedTuple):
    """Layers of bytes of a model: those that gain on a machine, or all."""

    model: onnx_ir.Model
    machine: Machine | None

    def has_product(self, node: onnx_ir.Node) -> bool:
        """Return whether a node is a layer as a product of two DequantizeLinear, one of them of a constant weight."""
        x, weight = (_input(node, index) for index in (0, 1)) if node.op_type in ("Gemm", "MatMul") else (None, None)
        source = None if weight is None else weight.producer()
        reads = None if x is None else x.producer()
        if source is None or reads is None or {source.op_type, reads.op_type} != {"DequantizeLinear"}:
            return False
        return self._has_sparse(source) or self._has_weight(
            _input(source, 0), _input(source, 2), transposed=_transposed(node)
        )

    def has_node(self, node: onnx_ir.Node) -> bool:
        """Return whether a node of `READERS` is a layer."""
        places = READERS[node.op_type]
        weight, zero = _input(node, places.weight), _input(node, places.weight_zero)
        return self._has_sparse(node) or self._has_weight(weight, zero, transposed=_transposed(node))

    def _has_sparse(self, reader: onnx_ir.Node) -> bool:
        """Return whether the weight that a node reads was put together from few entries."""
        made = integer_weight_nodes(reader, self.model.ir_version)
        sparse = None if made is None else sparse_matrix(made.source, self.model.ir_version)
        return sparse is not None and self._may_be(lambda: sparse.weight(transposed=False))

    def yields(self, node: onnx_ir.Node) -> bool:
        """Return whether the codes that a node of `MAKERS` yields are those of a layer."""
        if node.op_type in READERS:
            return _input(node, MAKERS[node.op_type][0]) is not None and self.has_node(node)
        if node.op_type in ACTIVATIONS:
            x = _input(node, 0)
            before = None if x is None else x.producer()
            return before is not None and before.op_type in MAKERS and self.yields(before)
        inner: onnx_ir.Node | None = node
        for _ in range(MOST_BEFORE_ROUNDING):
            value = None if inner is None else _input(inner, 0)
            inner = None if value is None else value.producer()
            if inner is not None and inner.op_type not in BEFORE_ROUNDING:
                break
        if inner is None:
            return False
        is_sum = inner.op_type == "MatMulInteger" and self.has_node(inner)
        return is_sum or self.has_product(inner) or self._is_convolution(inner)

    def _is_convolution(self, node: onnx_ir.Node) -> bool:
        """Return whether a node is a convolution on codes that may be sparse."""
        x, weight = _input(node, 0), _input(node, 1)
        on_codes = all(one is not None and is_dequantized(one) for one in (x, weight))
        return node.op_type == "Conv" and on_codes and (self.machine is None or is_sparse(node, self.model.ir_version))

    def _has_weight(self, weight: onnx_ir.Value | None, zero: onnx_ir.Value | None, *, transposed: bool) -> bool:
        codes, zeros = (None if one is None else constant_array(one, self.model.ir_version) for one in (weight, zero))
        if codes is None or codes.ndim != 2 or codes.dtype.name not in ("uint8", "int8"):
            return False
        along = (codes.T if transposed else codes).astype(np.int64)
        subtracted = np.zeros(1, np.int64) if zeros is None else zeros.astype(np.int64).reshape(-1)
        if subtracted.size not in (1, along.shape[1]):
            return False
        return self._may_be(lambda: CscMatrix.from_dense((along - subtracted).astype(np.float32)))

    def _may_be(self, weight: Callable[[], CscMatrix]) -> bool:
        """Return whether a weight is that of a layer."""
        return self.machine is None or gains(weight(), self.machine)


def _transposed(node: onnx_ir.Node) -> bool:
    attribute = node.attributes.get("transB")
    return attribute is not None and attribute.as_int() != 0


def _input(node: onnx_ir.Node, index: int) -> onnx_ir.Value | None:
    return node.inputs[index] if 0 <= index < len(node.inputs) else None


def _insert_before(graph: onnx_ir.Graph, node: onnx_ir.Node, codes: _CodesRead) -> None:
    scale = codes.scale or _constant(graph, f"{codes.value.name}_step", np.float32(1))
    pair = _pair(graph, codes.value, scale, codes.zero)
    graph.insert_before(node, pair)
    node.replace_input_with(0, pair[1].outputs[0])


def _insert_behind(
    graph: onnx_ir.Graph, node: onnx_ir.Node, readers: list[tuple[onnx_ir.Node, int]], *, is_output: bool
) -> None:
    value, (scale_place, zero_place) = node.outputs[0], MAKERS[node.op_type]
    scale, zero = node.inputs[scale_place], _input(node, zero_place)
    assert scale is not None
    if is_output:
        # the outer node of the pair takes its name
        name = value.name
        value.name = f"{name}_codes"
    else:
        name = None
    pair = _pair(graph, value, scale, zero)
    graph.insert_after(node, pair)
    result = pair[1].outputs[0]
    if is_output:
        result.name = name
        for index, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[index] = result
    for reader, index in readers:
        reader.replace_input_with(index, result)


def _pair(
    graph: onnx_ir.Graph, value: onnx_ir.Value, scale: onnx_ir.Value, zero: onnx_ir.Value | None
) -> tuple[onnx_ir.Node, onnx_ir.Node]:
    """Return the nodes that make floats of codes, and codes of these."""
    dtype = _dtype(value, zero) or onnx_ir.DataType.UINT8
    if zero is None:
        zero = _constant(graph, f"{value.name}_zero", np.zeros((), dtype.numpy()))
    dequantize = onnx_ir.node("DequantizeLinear", [value, scale, zero], name=f"{value.name}_to_floats")
    floats = dequantize.outputs[0]
    floats.name, floats.type, floats.shape = (
        f"{value.name}_floats",
        onnx_ir.TensorType(onnx_ir.DataType.FLOAT),
        value.shape,
    )
    quantize = onnx_ir.node("QuantizeLinear", [floats, scale, zero], name=f"{value.name}_to_codes")
    codes = quantize.outputs[0]
    codes.name, codes.type, codes.shape = f"{value.name}_as_codes", onnx_ir.TensorType(dtype), value.shape
    return dequantize, quantize


def _constant(graph: onnx_ir.Graph, name: str, array: np.generic | NDArray[np.generic]) -> onnx_ir.Value:
    if name not in graph.initializers:
        graph.register_initializer(initializer_of(name, onnx_ir.tensor(np.asarray(array), name=name)))
    return graph.initializers[name]

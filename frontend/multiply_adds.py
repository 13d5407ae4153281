"""The work of every node of a model, in multiply-adds, for given sizes of its inputs' free axes."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Final, NamedTuple

import onnx_ir

from .fold_model import fold_model, inferred_shapes
from .folding.known_constants import is_constant
from .sparse_weights import PACKED, WEIGHTS_OF_CODES

LONG: Final = 128
"""Size of a free axis that is not the first one: a length."""


class NodeWork(NamedTuple):
    """Work of a node."""

    multiply_adds: int
    is_linear: bool
    """Whether one side is a constant: such a layer may have a pruned weight."""
    weights: int = 0
    """Entries of the constant side; 0 where there is none."""


Shape = Sequence[int]
Count = Callable[[Sequence[Shape], Shape], int]


def work_of_nodes(model: onnx_ir.Model, batch: int = 1) -> dict[str, NodeWork]:
    """Return the work of the nodes that multiply matrices, by the name of their first output.

    The first axis of an input, where it is free, has the size of the batch, any other free one `LONG`. What has sizes
    that depend on values, and what lies in subgraphs and functions, is left out.
    """
    model, shapes = _sized(model, batch)
    found: dict[str, NodeWork] = {}
    for node in model.graph:
        count = COUNTS.get(node.op_type)
        output = _numbers(shapes.get(node.outputs[0].name or "")) if node.outputs else None
        codes = WEIGHTS_OF_CODES.get(node.op_type)
        if codes is not None and count is None and node.outputs:
            found |= _work_of_codes(node, _numbers(shapes.get(_name(node, codes))), output)
        if count is None or output is None:
            continue
        inputs = [_numbers(shapes.get(value.name or "")) if value is not None else () for value in node.inputs]
        known = [shape for shape in inputs if shape is not None]
        if len(known) == len(inputs):
            constant = [value is not None and _is_weight(value, model.ir_version) for value in node.inputs[:2]]
            sizes = [prod(shape) for shape, is_weight in zip(known, constant, strict=False) if is_weight]
            found[node.outputs[0].name or ""] = NodeWork(count(known, output), any(constant), max(sizes, default=0))
    return found


def _is_weight(value: onnx_ir.Value, version: int) -> bool:
    """Return whether a value is a constant, or the floats of one."""
    node = value.producer()
    codes = node.inputs[0] if node is not None and node.op_type == "DequantizeLinear" else None
    return is_constant(value, version) or (codes is not None and is_constant(codes, version))


def _name(node: onnx_ir.Node, index: int) -> str:
    value = node.inputs[index] if index < len(node.inputs) else None
    return "" if value is None else value.name or ""


def _work_of_codes(node: onnx_ir.Node, weight: Shape | None, output: Shape | None) -> dict[str, NodeWork]:
    """Return the work of an operator on codes; ONNX knows no shapes of most, which get one row then."""
    if node.op_type in PACKED:
        size = node.attributes["K"].as_int() * node.attributes["N"].as_int()
        rows = 1 if output is None else prod(output[:-1])
        return {node.outputs[0].name or "": NodeWork(rows * size, is_linear=True, weights=size)}
    if weight is None or len(weight) < 2 or (len(weight) > 2 and output is None):
        return {}
    size, is_matrix = prod(weight), len(weight) == 2
    by_outputs = node.op_type == "QLinearConv" or (node.op_type == "QGemm" and "transB" in node.attributes)
    outputs = weight[0 if by_outputs or not is_matrix else 1]
    rows = 1 if output is None else prod(output) // max(1, outputs)
    return {node.outputs[0].name or "": NodeWork(rows * size, is_linear=True, weights=size)}


def value_shapes(model: onnx_ir.Model, batch: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of values by name, for a batch and `LONG`; those that depend on values are left out."""
    _, shapes = _sized(model, batch)
    numbers = {name: _numbers(shape) for name, shape in shapes.items()}
    return {name: tuple(sizes) for name, sizes in numbers.items() if sizes is not None}


def _sized(model: onnx_ir.Model, batch: int) -> tuple[onnx_ir.Model, Mapping[str, onnx_ir.Shape]]:
    """Return a copy of a model in which free axes have sizes and what follows from them is folded, and its shapes."""
    copy = _with_numbers(model, batch)
    fold_model(copy, keep_foreign=True)
    return copy, _shapes(copy)


def _with_numbers(model: onnx_ir.Model, batch: int) -> onnx_ir.Model:
    copy = model.clone()
    for value in copy.graph.inputs:
        if value.shape is not None and not value.is_initializer():
            free = (batch if axis == 0 else LONG for axis in range(len(value.shape)))
            sizes = [size if isinstance(size, int) else chosen for size, chosen in zip(value.shape, free, strict=True)]
            value.shape = onnx_ir.Shape(sizes)
    return copy


def _shapes(model: onnx_ir.Model) -> dict[str, onnx_ir.Shape]:
    held = {name: value.const_value for name, value in model.graph.initializers.items()}
    stated = {name: onnx_ir.Shape(tensor.shape.numpy()) for name, tensor in held.items() if tensor is not None}
    return {**inferred_shapes(model), **stated}


def _numbers(shape: onnx_ir.Shape | None) -> Shape | None:
    sizes = [] if shape is None else [size for size in shape if isinstance(size, int)]
    return sizes if shape is not None and len(sizes) == len(shape) else None


def _matmul(inputs: Sequence[Shape], output: Shape) -> int:
    return prod(output) * inputs[0][-1]


def _gemm(inputs: Sequence[Shape], output: Shape) -> int:
    # one side holds rows times inner, whichever way it lies
    return prod(output) * (prod(inputs[0]) // max(1, output[0]))


def _conv(inputs: Sequence[Shape], output: Shape) -> int:
    return prod(output) * prod(inputs[1][1:])


def _transposed_conv(inputs: Sequence[Shape], output: Shape) -> int:
    del output
    return prod(inputs[0]) * prod(inputs[1][1:])


def _recurrent(inputs: Sequence[Shape], output: Shape) -> int:
    del output
    return prod(inputs[0][:2]) * (prod(inputs[1]) + prod(inputs[2]))


COUNTS: Final[Mapping[str, Count]] = MappingProxyType(
    {
        "Conv": _conv,
        "ConvInteger": _conv,
        "ConvTranspose": _transposed_conv,
        "GRU": _recurrent,
        "Gemm": _gemm,
        "LSTM": _recurrent,
        "MatMul": _matmul,
        "MatMulInteger": _matmul,
        "RNN": _recurrent,
    }
)
"""Operator -> its multiply-adds, from the shapes of its inputs and of its first output."""

MULTIPLYING: Final = frozenset(
    {
        *COUNTS,
        *WEIGHTS_OF_CODES,
        "Attention",
        "Einsum",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "GroupQueryAttention",
        "MatMulNBits",
        "MoE",
        "MultiHeadAttention",
        "QAttention",
        "QMoE",
    }
)
"""Operators that multiply matrices, also where their work cannot be counted."""

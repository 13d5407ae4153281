"""Reference semantics: what every op of `pebble` computes, on numpy arrays in xDSL's interpreter.

Everything is computed in the dtype of the feeds, so float64 feeds give a reference for code that computes in float32.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.interpreter import (
    Interpreter,
    InterpreterFunctions,
    ReturnedValues,
    impl,
    impl_terminator,
    register_impls,
)
from xdsl.interpreters.func import FuncFunctions
from xdsl.utils.exceptions import InterpretationError
from xdsl.utils.hints import isa

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, PreluOp, SubOp
from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.dialect.ops.grouped_layers import GroupedLayersOp
from redpebble.dialect.ops.layers import (
    BatchNormOp,
    LayerNormOp,
    LinearOp,
    LogSoftmaxOp,
    ReduceMeanOp,
    RmsNormOp,
    SoftmaxOp,
)
from redpebble.dialect.ops.movement import ConcatOp, ReshapeOp, SplitOp, TransposeOp
from redpebble.dialect.ops.network import NetworkOp
from redpebble.dialect.ops.regions import YieldOp
from redpebble.dialect.ops.sparse_network import SparseNetworkOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.provenance import node_name
from redpebble.dialect.semantics.activations import Floats, activate
from redpebble.dialect.semantics.network import run_network
from redpebble.dialect.tensors import Shape, compatible, shape_of, shape_text

Arguments = tuple[Any, ...]
"""What the interpreter hands over: an array for each operand (its framework knows no narrower type)."""


def interpret(module: ModuleOp, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Run the module's `main` and return its results.

    `feeds` holds an array for each argument, under its `pebble.name`; an argument without a name takes the entry that
    stands at its position.

    Raises:
        ValueError: the feeds do not fit the arguments.
        InterpretationError: there is no `main`, or it holds a foreign op.
    """
    function = next((op for op in module.walk() if isinstance(op, FuncOp) and op.sym_name.data == "main"), None)
    if function is None:
        raise InterpretationError("the module has no function main")
    for op in function.walk():
        if isinstance(op, ForeignOp):
            raise InterpretationError(
                f"node {node_name(op)!r}: operator {op.operator.data} is foreign, accepted are the other ops of pebble"
            )
    arrays = _in_order(function, feeds)
    floats = [array.dtype for array in arrays if np.issubdtype(array.dtype, np.floating)]
    interpreter = Interpreter(module)
    interpreter.register_implementations(FuncFunctions())
    interpreter.register_implementations(PebbleFunctions(np.result_type(*floats) if floats else np.float32))
    with np.errstate(all="ignore"):
        return [np.asarray(result) for result in interpreter.call_op(function, tuple(arrays))]


def _in_order(function: FuncOp, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the feeds in the order of the function's arguments."""
    names = _argument_names(function, list(feeds))
    if sorted(names) != sorted(feeds):
        raise ValueError(f"values for {', '.join(feeds) or 'nothing'}, expected {', '.join(names) or 'nothing'}")
    tensors = [pair for pair in zip(names, function.args, strict=True) if isinstance(pair[1].type, TensorType)]
    for name, argument in tensors:
        expected = shape_of(argument)
        if not compatible(feeds[name].shape, expected):
            raise ValueError(f"{name} has shape {shape_text(feeds[name].shape)}, expected {shape_text(expected)}")
    return [feeds[name] for name in names]


def _argument_names(function: FuncOp, fed: Sequence[str]) -> list[str]:
    attributes = function.arg_attrs
    named = list(attributes) if isa(attributes, ArrayAttr[DictionaryAttr]) else []
    names: list[str] = []
    for index in range(len(function.args)):
        name = named[index].data.get("pebble.name") if index < len(named) else None
        position = fed[index] if index < len(fed) else f"argument {index}"
        names.append(name.data if isinstance(name, StringAttr) else position)
    return names


@register_impls
@dataclass
class PebbleFunctions(InterpreterFunctions):
    """The ops of `pebble` for constants of `dtype`."""

    dtype: DTypeLike

    @impl(ConstantOp)
    def constant(self, _: Interpreter, op: ConstantOp, __: Arguments) -> tuple[Floats]:
        return (op.array.astype(self.dtype),)

    @impl(SparseConstantOp)
    def sparse_constant(self, _: Interpreter, op: SparseConstantOp, __: Arguments) -> tuple[Floats]:
        return (op.weight.to_dense().astype(self.dtype),)

    @impl(LinearOp)
    def linear(self, _: Interpreter, op: LinearOp, arguments: Arguments) -> Arguments:
        x, weight, *bias = arguments
        product = x @ weight
        result = product + bias[0] if bias else product
        return (result if op.activation is None else activate(op.activation, result),)

    @impl(ActivateOp)
    def activate(self, _: Interpreter, op: ActivateOp, arguments: Arguments) -> tuple[Floats]:
        return (activate(op.activation, arguments[0]),)

    @impl(AddOp)
    def add(self, _: Interpreter, __: AddOp, arguments: Arguments) -> tuple[Floats]:
        return (np.add(*arguments),)

    @impl(SubOp)
    def sub(self, _: Interpreter, __: SubOp, arguments: Arguments) -> tuple[Floats]:
        return (np.subtract(*arguments),)

    @impl(MulOp)
    def mul(self, _: Interpreter, __: MulOp, arguments: Arguments) -> tuple[Floats]:
        return (np.multiply(*arguments),)

    @impl(DivOp)
    def div(self, _: Interpreter, __: DivOp, arguments: Arguments) -> tuple[Floats]:
        return (np.divide(*arguments),)

    @impl(PreluOp)
    def prelu(self, _: Interpreter, __: PreluOp, arguments: tuple[Floats, Floats]) -> tuple[Floats]:
        x, slope = arguments
        return (np.where(x >= 0, x, x * slope),)

    @impl(SoftmaxOp)
    def softmax(self, _: Interpreter, __: SoftmaxOp, arguments: Arguments) -> tuple[Floats]:
        powers = np.exp(arguments[0] - _largest(arguments[0]))
        return (powers / powers.sum(axis=-1, keepdims=True),)

    @impl(LogSoftmaxOp)
    def log_softmax(self, _: Interpreter, __: LogSoftmaxOp, arguments: Arguments) -> tuple[Floats]:
        shifted = arguments[0] - _largest(arguments[0])
        return (shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)),)

    @impl(LayerNormOp)
    def layer_norm(self, _: Interpreter, op: LayerNormOp, arguments: Arguments) -> tuple[Floats]:
        x, scale, *bias = arguments
        centred = x - x.mean(axis=-1, keepdims=True)
        result = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + op.epsilon.value.data) * scale
        return (result + bias[0] if bias else result,)

    @impl(RmsNormOp)
    def rms_norm(self, _: Interpreter, op: RmsNormOp, arguments: Arguments) -> tuple[Floats]:
        x, scale = arguments
        return (x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + op.epsilon.value.data) * scale,)

    @impl(BatchNormOp)
    def batch_norm(self, _: Interpreter, op: BatchNormOp, arguments: Arguments) -> tuple[Floats]:
        x, *parameters = arguments
        along_axis_1 = (-1,) + (1,) * (x.ndim - 2)
        scale, bias, mean, variance = (parameter.reshape(along_axis_1) for parameter in parameters)
        return ((x - mean) / np.sqrt(variance + op.epsilon.value.data) * scale + bias,)

    @impl(ReduceMeanOp)
    def reduce_mean(self, _: Interpreter, __: ReduceMeanOp, arguments: Arguments) -> tuple[Floats]:
        return (arguments[0].mean(axis=-1, keepdims=True),)

    @impl(ReshapeOp)
    def reshape(self, _: Interpreter, op: ReshapeOp, arguments: Arguments) -> tuple[Floats]:
        return (arguments[0].reshape(op.target.result_shape(arguments[0].shape)),)

    @impl(TransposeOp)
    def transpose(self, _: Interpreter, op: TransposeOp, arguments: Arguments) -> tuple[Floats]:
        return (arguments[0].transpose(op.order),)

    @impl(ConcatOp)
    def concat(self, _: Interpreter, op: ConcatOp, arguments: Arguments) -> tuple[Floats]:
        return (np.concatenate(arguments, axis=op.axis.value.data),)

    @impl(SplitOp)
    def split(self, _: Interpreter, op: SplitOp, arguments: Arguments) -> Arguments:
        axis = op.axis.value.data
        ends = np.cumsum([shape_of(part)[axis] for part in op.parts])
        return tuple(np.split(arguments[0], ends[:-1], axis))

    @impl(NetworkOp)
    def network(self, _: Interpreter, op: NetworkOp, arguments: Arguments) -> Arguments:
        ends = np.cumsum([shape_of(output)[-1] for output in op.outputs])
        return tuple(np.split(run_network(op.arrays, arguments), ends[:-1], -1))

    @impl(TileOp)
    def tile(self, interpreter: Interpreter, op: TileOp, arguments: Arguments) -> Arguments:
        arrays: list[Floats] = list(arguments)
        rows = tuple(array.reshape(_flattened(array.shape)) for array in arrays)
        results = interpreter.run_ssacfg_region(op.body, rows, op.name)
        leading = [arrays[int(source)].shape[:-1] for source in op.rows_of.get_values()]
        return tuple(
            array.reshape((*axes, array.shape[-1]) if shape_of(outer) else ())
            for array, axes, outer in zip(results, leading, op.outputs, strict=True)
        )

    @impl(SparseNetworkOp)
    def sparse_network(self, interpreter: Interpreter, op: SparseNetworkOp, arguments: Arguments) -> Arguments:
        return tuple(interpreter.run_ssacfg_region(op.body, arguments, op.name))

    @impl(GroupedLayersOp)
    def grouped_layers(self, _: Interpreter, op: GroupedLayersOp, arguments: Arguments) -> tuple[Floats]:
        x, *parameters = arguments
        values = x.reshape(-1, x.shape[-1]).T
        for layer, weight, bias in zip(op.layers, parameters[::2], parameters[1::2], strict=True):
            values = values if layer.order is None else values[layer.order]
            groups = len(values) // layer.group_inputs
            grouped = weight.reshape(groups, -1, layer.group_inputs) @ values.reshape(groups, layer.group_inputs, -1)
            values = grouped.reshape(layer.outputs, -1) + bias[:, None]
            values = values if layer.activation is None else activate(layer.activation, values)
        values = values if op.last_order is None else values[op.last_order]
        return (values.T.reshape(*x.shape[:-1], len(values)),)

    @impl_terminator(YieldOp)
    def yield_(self, _: Interpreter, __: YieldOp, arguments: Arguments) -> tuple[ReturnedValues, tuple[()]]:
        return ReturnedValues(arguments), ()


def _largest(x: Floats) -> Floats:
    return x.max(axis=-1, keepdims=True, initial=-np.inf)


def _flattened(shape: Shape) -> Shape:
    """Return the shape inside of a tile: rows and features (a scalar is one row of one feature)."""
    return (prod(shape[:-1]), shape[-1] if shape else 1)

"""Reference semantics of modules: ops are run one after the other, each as `REFERENCES` says.

Everything is computed in the dtype of the feeds, so float64 feeds give a reference for code that computes in float32.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import InterpretationError
from xdsl.utils.hints import isa

from ..ops.constants import ConstantOp, SparseConstantOp
from ..ops.foreign import ForeignOp
from ..ops.image_network import ImageNetworkOp
from ..ops.recurrences import ScanOp
from ..ops.regions import YieldOp
from ..ops.sparse_network import SparseNetworkOp
from ..ops.tile import TileOp
from ..provenance import node_name
from ..tensors import Shape, compatible, shape_of, shape_text
from .recurrences import run_scan
from .references import REFERENCES, Reference

Array = NDArray[Any]
"""Floats of any precision, or whatever a value of another type is fed with."""


def interpret(module: ModuleOp, feeds: Mapping[str, Array]) -> list[Array]:
    """Run the module's `main` and return its results.

    `feeds` holds an array for each argument, under its `pebble.name`; an argument without a name takes the entry that
    stands at its position.

    Raises:
        ValueError: the feeds do not fit the arguments.
        InterpretationError: there is no `main`, or it holds an op of unknown meaning.
    """
    return list(observe(module, feeds).results)


class Observed(NamedTuple):
    """The results of a module for some feeds, and the values of all its ops."""

    results: Sequence[Array]
    values: dict[SSAValue, Array]


Foreign = Callable[[ForeignOp, Sequence[Array]], Sequence[Array]]
"""Runs a node that was left as it is."""


def observe(module: ModuleOp, feeds: Mapping[str, Array], foreign: Foreign | None = None) -> Observed:
    """Run the module's `main` as `interpret` does, and return its values, too; `foreign` runs what was left as it is.

    Raises:
        ValueError: the feeds do not fit the arguments.
        InterpretationError: there is no `main`, or it holds an op of unknown meaning.
    """
    function = main_of(module)
    arrays = _in_order(function, feeds)
    floats = [array.dtype for array in arrays if np.issubdtype(array.dtype, np.floating)]
    evaluation = _Evaluation(np.result_type(*floats) if floats else np.float32, foreign)
    with np.errstate(all="ignore"):
        results = [np.asarray(result) for result in evaluation.run(function.body.block, arrays)]
    return Observed(results, evaluation.values)


def main_of(module: ModuleOp) -> FuncOp:
    """Return the function `main` of a module.

    Raises:
        InterpretationError: there is none.
    """
    function = next((op for op in module.walk() if isinstance(op, FuncOp) and op.sym_name.data == "main"), None)
    if function is None:
        raise InterpretationError("the module has no function main")
    return function


def evaluate(op: Operation, operands: Sequence[Array], dtype: DTypeLike) -> list[Array]:
    """Return the results of an op without a body for arrays of `dtype` as operands.

    Raises:
        InterpretationError: nobody knows what the op computes.
    """
    with np.errstate(all="ignore"):
        return [np.asarray(result) for result in _Evaluation(dtype).results(op, operands)]


def _in_order(function: FuncOp, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the feeds in the order of the function's arguments."""
    names = argument_names(function, list(feeds))
    if sorted(names) != sorted(feeds):
        raise ValueError(f"expected values for {', '.join(names) or 'nothing'}, got {', '.join(feeds) or 'nothing'}")
    tensors = [pair for pair in zip(names, function.args, strict=True) if isinstance(pair[1].type, TensorType)]
    for name, argument in tensors:
        expected = shape_of(argument)
        if not compatible(feeds[name].shape, expected):
            raise ValueError(f"{name}: expected shape {shape_text(expected)}, got {shape_text(feeds[name].shape)}")
    return [feeds[name] for name in names]


def argument_names(function: FuncOp, fed: Sequence[str]) -> list[str]:
    """Return the names of the arguments of a function; one without has that which is fed at its position."""
    attributes = function.arg_attrs
    named = list(attributes) if isa(attributes, ArrayAttr[DictionaryAttr]) else []
    names: list[str] = []
    for index in range(len(function.args)):
        name = named[index].data.get("pebble.name") if index < len(named) else None
        position = fed[index] if index < len(fed) else f"argument {index}"
        names.append(name.data if isinstance(name, StringAttr) else position)
    return names


@dataclass(frozen=True)
class _Evaluation:
    """Ops on their way, for constants of `dtype`."""

    dtype: DTypeLike
    foreign: Foreign | None = None
    values: dict[SSAValue, Array] = field(default_factory=dict[SSAValue, Array])

    def run(self, block: Block, arguments: Sequence[Array]) -> list[Array]:
        """Return what the last op of a block passes on."""
        self.values.update(zip(block.args, arguments, strict=True))
        for op in block.ops:
            operands = [self.values[operand] for operand in op.operands]
            if isinstance(op, ReturnOp | YieldOp):
                return operands
            self.values.update(zip(op.results, self.results(op, operands), strict=True))
        return []

    def results(self, op: Operation, operands: Sequence[Array]) -> Sequence[Array]:
        """Return the results of an op."""
        match op:
            case ConstantOp():
                return [op.array.astype(self.dtype)]
            case SparseConstantOp():
                return [op.weight.to_dense().astype(self.dtype)]
            case TileOp():
                return self._tile(op, operands)
            case ScanOp():
                return run_scan(op, lambda values: self.run(op.body.block, values), operands)
            case ForeignOp() if self.foreign is not None:
                return self.foreign(op, operands)
            case SparseNetworkOp() | ImageNetworkOp():
                return self.run(op.body.block, operands)
            case _:
                results = _reference_of(op)(op, *operands)
                return list(results) if isinstance(results, list | tuple) else [np.asarray(results)]

    def _tile(self, op: TileOp, operands: Sequence[Array]) -> list[Array]:
        rows = [array.reshape(_flattened(array.shape)) for array in operands]
        leading = [operands[int(source)].shape[:-1] for source in op.rows_of.get_values()]
        return [
            array.reshape((*axes, array.shape[-1]) if shape_of(outer) else ())
            for array, axes, outer in zip(self.run(op.body.block, rows), leading, op.outputs, strict=True)
        ]


def _reference_of(op: Operation) -> Reference:
    if isinstance(op, ForeignOp):
        raise InterpretationError(
            f"node {node_name(op)!r}: expected an op of pebble, got operator {op.operator.data}, which is foreign"
        )
    if type(op) not in REFERENCES:
        raise InterpretationError(f"{op.name} has no reference semantics")
    return REFERENCES[type(op)]


def _flattened(shape: Shape) -> Shape:
    """Return the shape inside of a tile: rows and features (a scalar is one row of one feature)."""
    return (prod(shape[:-1]), shape[-1] if shape else 1)

"""A function of a part as native code for a batch: its results, and the gradients of what it reads and holds.

Both work with the same values, which are written to their places in the packed weights of either.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.utils.hints import isa

from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.training.gradients import SampledProductOp
from ...dialect.symbolic_sizes import DIMS, NAME
from ...dialect.tensors import DYNAMIC, f32_tensor
from ...lowering.driver import lower
from ...passes.rewriting.erase_unused import erase_unused
from ...passes.training.differentiate import Constant, pull_back
from ...runtime.bound_call import BoundCall
from ...runtime.jit import emit_object, host_target
from ...runtime.network import Network
from ...sparse.csr import CscMatrix
from ...training.native_step import StepOptions, make_native
from ...training.packed_values import PackedValues, packed_places
from ..parts.module_text import CONSTANT, TRAINED
from .pieces import CallPieces, Piece

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class TrainedConstant:
    """A constant that is trained: the number of its array in the part, its kind, and its values as they come."""

    array: int
    replica: int
    """`OWN`, or the constant's number, the same on all ranks."""
    values: Floats

    def stored(self, array: NDArray[np.generic], values: Floats) -> NDArray[np.float32]:
        """Return the array of the part with other values; zeros of a matrix stay zeros."""
        found = np.array(array.view(np.float32).T, order="C")
        if found.size == len(values):
            found.reshape(-1)[:] = values
        else:
            found[found != 0] = values
        return np.ascontiguousarray(found.T)


Place = TypeVar("Place", bound=Hashable)
"""A place of values in the buffers of a part, as large as an argument."""


@dataclass(frozen=True)
class FlatCall(Generic[Place]):
    """A call of `func`, which has no tiles: the places of its arguments and of its results."""

    func: FuncOp
    reads: Sequence[Place]
    writes: Sequence[Place]


class TrainedFunction(Generic[Place]):
    """Native code of a call; `wanted` are the places whose gradients it finds, in the order of its arguments."""

    def __init__(self, call: FlatCall[Place], is_wanted: Callable[[Place], bool], options: StepOptions) -> None:
        """Make the code.

        Raises:
            ValueError: something has no derivative, or no code.
        """
        self.reads, self.writes, func = call.reads, call.writes, call.func
        numbers = [number for number, place in enumerate(self.reads) if is_wanted(place)]
        self.wanted = [self.reads[number] for number in numbers]
        self._places = _trained_places(func, numbers)
        self.constants = [_described(op) for op in _chosen(func, self._places)]
        self._count = sum(len(constant.values) for constant in self.constants)
        self._options = options
        self.forward, self._forward_values = self._code(func, None)
        self.backward: Network | None = None
        if self.constants or self.wanted:
            self.backward, self._backward_values = self._code(func, numbers)

    def put(self, values: Floats) -> None:
        """Replace the values [values] of all constants, constant by constant."""
        self._forward_values.put(values)
        if self.backward is not None:
            self._backward_values.put(values)

    def _code(self, func: FuncOp, wanted: Sequence[int] | None) -> tuple[Network, PackedValues]:
        modules: list[ModuleOp] = []
        for turn in (0, 1):
            copy = func.clone()
            numbers = ((np.arange(self._count) + turn) % max(2, self._count) + 1).astype(np.float32)
            ends = np.cumsum([len(constant.values) for constant in self.constants])
            parts = np.split(numbers, ends[:-1]) if len(ends) else []
            chosen = {_with_values(op, part) for op, part in zip(_chosen(copy, self._places), parts, strict=True)}
            if wanted is not None:
                pull_back(copy, wanted, chosen.__contains__)
            name_values(copy)
            modules.append(ModuleOp([copy]))
            erase_unused(modules[-1].body)
        there = packed_places(_arrays(modules[0]), _arrays(modules[1]), max(2, self._count))
        expected = {number for one in there for number in one.numbers.tolist()}
        target = host_target()
        for module in modules:
            make_native(module, self._options)
        one, two = (lower(module, target) for module in modules)
        program = replace(one, constants=tuple(array.copy() for array in one.constants))
        network = Network(program, emit_object(one.llvm_ir, target), self._options.threads)
        places = list(packed_places(one.constants, two.constants, max(2, self._count)))
        found = {number for one in places for number in one.numbers.tolist()}
        assert found == expected, "a trained value is not found in the packed weights"
        return network, PackedValues(network.program.constants, places, np.arange(self._count))


def bound(network: Network, read: Sequence[Floats], written: Sequence[Floats]) -> BoundCall:
    """Return the call of a function on arrays, in the order of its arguments and results."""
    inputs = [tensor.name for tensor in network.program.inputs]
    outputs = [tensor.name for tensor in network.program.outputs]
    return network.bind(dict(zip(inputs, read, strict=True)), dict(zip(outputs, written, strict=True)))


def flat_call(call: CallPieces) -> FlatCall[Piece]:
    """Return the call of a function of pieces: its ops without a tile, weights with zeros stored by connections."""
    widths = [piece.features for pieces in call.reads for piece in pieces]
    block = Block(arg_types=[f32_tensor((DYNAMIC, width)) for width in widths])
    mapped: dict[SSAValue, SSAValue] = {}
    for op in call.func.body.block.ops:
        if isinstance(op, ConstantOp | SparseConstantOp):
            copy = sparse_where_zeros(op)
            block.add_op(copy)
            mapped[op.results[0]] = copy.results[0]
    arguments = iter(block.args)
    for argument, pieces in zip(call.func.args, call.reads, strict=True):
        parts = [next(arguments) for _ in pieces]
        joined = ConcatOp(parts, 1) if len(parts) > 1 else None
        block.add_ops([] if joined is None else [joined])
        mapped[argument] = parts[0] if joined is None else joined.result
    for inner, outer in zip(call.tile.body.block.args, call.tile.inputs, strict=True):
        mapped[inner] = mapped[outer]
    for op in call.tile.body.block.ops:
        if not isinstance(op, YieldOp):
            block.add_op(op.clone(mapped))
    results: list[SSAValue] = []
    for value, pieces in zip(call.tile.yielded, call.writes, strict=True):
        if len(pieces) == 1:
            results.append(mapped[value])
            continue
        split = SplitOp(mapped[value], 1, [piece.features for piece in pieces])
        block.add_op(split)
        results += split.results
    block.add_op(ReturnOp(*results))
    func = FuncOp("main", ([value.type for value in block.args], [value.type for value in results]), Region(block))
    reads, writes = ([piece for pieces in some for piece in pieces] for some in (call.reads, call.writes))
    return FlatCall(func, reads, writes)


def sparse_where_zeros(op: Constant) -> Constant:
    """Return a copy of a constant; what is trained of a matrix is what it stores."""
    if TRAINED not in op.attributes or isinstance(op, SparseConstantOp) or op.array.ndim != 2 or op.array.all():
        return op.clone()
    copy = SparseConstantOp(CscMatrix.from_dense(op.array))
    copy.attributes |= op.attributes
    return copy


def _constants(func: FuncOp) -> list[Constant]:
    return [op for op in func.body.block.ops if isinstance(op, ConstantOp | SparseConstantOp)]


def _chosen(func: FuncOp, places: Sequence[int]) -> list[Constant]:
    constants = _constants(func)
    return [constants[place] for place in places]


def _trained_places(func: FuncOp, wanted: Sequence[int]) -> list[int]:
    """Return which constants of a function have gradients and are to be trained, by their place among all."""
    copy = func.clone()
    before = _constants(copy)
    trained = pull_back(copy, wanted, lambda op: TRAINED in op.attributes and len(_values(op)) > 0)
    return [before.index(op) for op in trained]


def _described(op: Constant) -> TrainedConstant:
    number, replica = op.attributes[CONSTANT], op.attributes[TRAINED]
    assert isa(number, IntAttr)
    assert isa(replica, IntAttr)
    return TrainedConstant(number.data, replica.data, _values(op).copy())


def _values(op: Constant) -> Floats:
    """Return the values of a constant in the order of its gradient: connections output by output."""
    return op.weight.values if isinstance(op, SparseConstantOp) else op.array.T.ravel()


def _with_values(op: Constant, values: Floats) -> Constant:
    """Put a constant with other values in the place of one."""
    if isinstance(op, SparseConstantOp):
        other: Constant = SparseConstantOp(op.weight._replace(values=values))
    else:
        other = ConstantOp(np.ascontiguousarray(values.reshape(op.array.T.shape).T))
    block = op.parent
    assert block is not None
    block.insert_op_before(other, op)
    op.results[0].replace_all_uses_with(other.results[0])
    block.erase_op(op)
    return other


def _arrays(module: ModuleOp) -> list[Floats]:
    """Return the values that something multiplies or adds; a sampled product reads where they are, not what."""
    return [
        op.weight.values if isinstance(op, SparseConstantOp) else op.array
        for op in module.walk()
        if isinstance(op, ConstantOp | SparseConstantOp)
        and any(not isinstance(use.operation, SampledProductOp) for use in op.results[0].uses)
    ]


def name_values(func: FuncOp) -> None:
    """Name arguments and results; those of no fixed number of rows all have the same."""
    end = func.body.block.last_op
    assert isinstance(end, Operation)
    dims = ArrayAttr([StringAttr("rows"), StringAttr("")])
    func.update_function_type()
    func.arg_attrs = ArrayAttr(
        [DictionaryAttr({NAME: StringAttr(f"in{number}"), DIMS: dims}) for number in range(len(func.args))]
    )
    func.res_attrs = ArrayAttr(
        [DictionaryAttr({NAME: StringAttr(f"out{number}")}) for number in range(len(end.operands))]
    )

"""A module as text without its numbers, and the numbers beside it: constants become arguments of their functions."""

from collections.abc import Sequence
from io import StringIO
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntAttr, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.tensors import Shape, SparsityAttr, shape_of
from ...sparse.csr import CscMatrix
from ..errors import PartError

Array = NDArray[np.generic]

CONSTANT: Final = "pebble.constant"
"""The attribute of an argument that stands for a constant: the number of its (first) array; of the constant itself:
the number of the array of its values."""

TRAINED: Final = "pebble.trained"
"""The attribute of a trained constant: `OWN`, or its number, which is the same on every rank that holds it."""

OWN: Final = -1
"""Values that no other rank holds."""


def take_constants(module: ModuleOp) -> list[Array]:
    """Replace every constant by an argument, and return the arrays; the module is for printing only afterwards."""
    arrays: list[Array] = []
    for func in (op for op in module.body.block.ops if isinstance(op, FuncOp)):
        block = func.body.block
        attributes = _attributes(func)
        for op in [op for op in block.ops if isinstance(op, ConstantOp | SparseConstantOp)]:
            trained = {TRAINED: op.attributes[TRAINED]} if TRAINED in op.attributes else {}
            attributes.append(DictionaryAttr({CONSTANT: IntAttr(len(arrays)), **trained}))
            if isinstance(op, SparseConstantOp):
                weight = op.weight
                arrays += [weight.pointers, weight.rows, weight.values]
            else:
                arrays.append(op.array)
            argument = block.insert_arg(op.results[0].type, len(block.args))
            op.results[0].replace_all_uses_with(argument)
            block.erase_op(op)
        func.arg_attrs = ArrayAttr(attributes)
        func.update_function_type()
    return arrays


def put_constants(module: ModuleOp, arrays: Sequence[Array]) -> None:
    """Undo `take_constants`.

    Raises:
        PartError: arrays are no constant of the type that the text says.
    """
    for func in (op for op in module.body.block.ops if isinstance(op, FuncOp)):
        block, attributes = func.body.block, _attributes(func)
        first = block.first_op
        for argument, entry in reversed(list(zip(block.args, attributes, strict=True))):
            number = entry.data.get(CONSTANT)
            if not isa(number, IntAttr):
                continue
            op = _constant(arrays, number.data, shape_of(argument), sparse=_is_sparse(argument))
            try:
                op.verify()  # passes look at what they change alone
            except VerifyException as error:
                raise PartError(f"the part is damaged: {error}") from error
            op.attributes |= entry.data | {CONSTANT: IntAttr(number.data + 2 * isinstance(op, SparseConstantOp))}
            assert first is not None
            block.insert_op_before(op, first)
            first = op
            argument.replace_all_uses_with(op.results[0])
            block.erase_arg(argument)
            attributes.pop(argument.index)
        func.arg_attrs = ArrayAttr(attributes)
        func.update_function_type()


def _is_sparse(argument: SSAValue) -> bool:
    return isa(argument.type, TensorType[Attribute]) and isinstance(argument.type.encoding, SparsityAttr)


def _constant(arrays: Sequence[Array], number: int, shape: Shape, *, sparse: bool) -> ConstantOp | SparseConstantOp:
    if not sparse:
        return ConstantOp(arrays[number].view(np.float32))
    pointers, rows, values = arrays[number : number + 3]
    inputs, outputs = shape
    return SparseConstantOp(
        CscMatrix((inputs, outputs), pointers.view(np.int64), rows.view(np.int64), values.view(np.float32))
    )


def _attributes(func: FuncOp) -> list[DictionaryAttr]:
    if func.arg_attrs is None:
        return [DictionaryAttr({}) for _ in func.args]
    return list(func.arg_attrs.data)


def text_of(module: ModuleOp) -> str:
    """Return the text of a module."""
    stream = StringIO()
    Printer(stream).print_op(module)
    return stream.getvalue()


def module_of(text: str, context: Context) -> ModuleOp:
    """Return the module that a text describes; it is not verified before its constants are back."""
    return Parser(context, text).parse_module()

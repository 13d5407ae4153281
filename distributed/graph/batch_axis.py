"""Whether a network works on every sample of its batch by itself, so that a batch can be cut into slices."""

from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import BinaryOp
from redpebble.dialect.ops.movement import ConcatOp, SplitOp, TransposeOp
from redpebble.dialect.provenance import node_name
from redpebble.dialect.symbolic_sizes import Size, SymbolicShape, symbolic_shapes
from redpebble.distributed.graph.row_graph import is_constant, port_names
from redpebble.frontend.errors import UnsupportedModelError


def check_batch_axis(module: ModuleOp) -> None:
    """Check that the first axis of every input and output is the batch, and that no op mixes its samples.

    Raises:
        UnsupportedModelError: it is not, or one does.
    """
    func = next(op for op in module.body.block.ops if isinstance(op, FuncOp))
    shapes, end = symbolic_shapes(func), func.body.block.last_op
    returned = list(end.operands) if isinstance(end, ReturnOp) else []
    batch: Size | None = None
    names = [*port_names(func.arg_attrs, len(func.args)), *port_names(func.res_attrs, len(returned))]
    for name, value in zip(names, [*func.args, *returned], strict=True):
        first = shapes[value][0] if shapes[value] else Size.known(1)
        batch = first if batch is None else batch
        if first.constant is not None or first != batch:
            raise UnsupportedModelError(
                f"the first axis of {name!r} has size {first}, accepted by the plan batch is one symbolic size for all"
            )
    assert batch is not None
    (symbol, _), *_ = batch.powers
    for op in func.body.block.ops:
        if _mixes(op, shapes, symbol):
            where = f"node {node_name(op)!r}: " if node_name(op) else ""
            raise UnsupportedModelError(
                f"{where}{op.name} mixes samples, accepted by the plan batch are ops that do not"
            )


def _mixes(op: Operation, shapes: dict[SSAValue, SymbolicShape], symbol: str) -> bool:
    """Return whether an op may read other samples than the one it computes.

    The batch is the slowest axis everywhere: a reshape leaves it that, tiles work row by row.
    """
    match op:
        case ConstantOp() | SparseConstantOp() | ReturnOp():
            return False
        case TransposeOp():
            # an axis that holds the batch as a factor stays in front
            return op.order[0] != 0 or not _leads(shapes[op.x], symbol)
        case ConcatOp():
            return op.axis.value.data == 0 or any(is_constant(part) for part in op.parts)
        case SplitOp():
            return op.axis.value.data == 0
        case BinaryOp():
            return not all(_is_per_sample(value, shapes, op, symbol) for value in op.operands)
        case _:
            return not all(_leads(shapes[value], symbol) for value in op.operands if not is_constant(value))


def _leads(shape: SymbolicShape, symbol: str) -> bool:
    """Return whether the batch is a factor of the first axis and of no other one."""
    holds = [symbol in dict(size.powers) for size in shape]
    return holds[:1] == [True] and not any(holds[1:])


def _is_per_sample(value: SSAValue, shapes: dict[SSAValue, SymbolicShape], op: BinaryOp, symbol: str) -> bool:
    if not is_constant(value):
        return shapes[value][:1] == shapes[op.result][:1] and _leads(shapes[value], symbol)
    rank = len(shapes[op.result])
    return len(shapes[value]) < rank or shapes[value][0] == Size.known(1) or prod(_sizes(shapes[value])) == 1


def _sizes(shape: SymbolicShape) -> list[int]:
    return [size.constant if size.constant is not None else 0 for size in shape]

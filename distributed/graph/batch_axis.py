"""Whether a network works on every sample of its batch by itself, so that a batch can be cut into slices."""

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.axis_maps import AxisMap, axis_map_of
from ...dialect.ops.constants import ConstantOp, SparseConstantOp, is_constant
from ...dialect.ops.movement import ReshapeOp
from ...dialect.provenance import node_name
from ...dialect.shape_inference import symbolic_shapes
from ...dialect.symbolic_sizes import Size, SymbolicShape
from ...frontend.errors import UnsupportedModelError
from .row_graph import port_names


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
                f"the first axis of {name!r} has size {first}, the plan batch expects one symbolic size for all"
            )
    assert batch is not None
    (symbol, _), *_ = batch.powers
    for op in func.body.block.ops:
        if _mixes(op, shapes, symbol):
            where = f"node {node_name(op)!r}: " if node_name(op) else ""
            raise UnsupportedModelError(f"{where}{op.name} mixes samples, the plan batch expects ops that do not")


def _mixes(op: Operation, shapes: dict[SSAValue, SymbolicShape], symbol: str) -> bool:
    """Return whether an op may read other samples than the one it computes.

    The batch is the slowest axis everywhere: a reshape leaves it that, tiles work row by row.
    """
    if isinstance(op, ConstantOp | SparseConstantOp | ReturnOp):
        return False
    axis_map = None if isinstance(op, ReshapeOp) else axis_map_of(op)
    for index, value in enumerate(op.operands):
        if not is_constant(value) and not _leads(shapes[value], symbol):
            return True
        if axis_map is not None and _mixes_operand(op, index, axis_map, shapes):
            return True
    return False


def _mixes_operand(op: Operation, index: int, axis_map: AxisMap, shapes: dict[SSAValue, SymbolicShape]) -> bool:
    """Return whether the first axis of an operand is another one than that of the result."""
    operand, result = op.operands[index], op.results[0]
    first, expected = axis_map.operands[index][:1], axis_map.results[0][:1]
    if is_constant(operand):
        # it has the same entries for all samples
        return first == expected and (axis_map.join is not None or shapes[operand][:1] != (Size.known(1),))
    return first != expected or first[0] in axis_map.whole or shapes[operand][:1] != shapes[result][:1]


def _leads(shape: SymbolicShape, symbol: str) -> bool:
    """Return whether the batch is a factor of the first axis and of no other one."""
    holds = [symbol in dict(size.powers) for size in shape]
    return holds[:1] == [True] and not any(holds[1:])

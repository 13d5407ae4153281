"""A model as the graph that can be cut by neurons: row-wise ops on values that all have the same rows."""

from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialect.attributes.codes import codes_in
from ...dialect.ops.constants import ConstantOp, SparseConstantOp, is_constant
from ...dialect.ops.elementwise import ConvertOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import ReshapeOp
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.tile import TileOp
from ...dialect.provenance import node_name
from ...dialect.shape_inference import symbolic_shapes
from ...dialect.symbolic_sizes import NAME, Size, SymbolicShape, product
from ...dialect.tensors import DYNAMIC, shape_of
from ...frontend.errors import UnsupportedModelError


@dataclass(frozen=True)
class Port:
    """An input or output of a network: its name, its symbolic shape, the value behind it."""

    name: str
    shape: SymbolicShape
    value: SSAValue


@dataclass(frozen=True)
class RowGraph:
    """Inputs, row-wise ops in an order of execution, outputs.

    Operands of `ops` are results of others, block arguments that `source` traces to inputs, or constants.
    """

    inputs: tuple[Port, ...]
    ops: tuple[Operation, ...]
    outputs: tuple[Port, ...]
    aliases: dict[SSAValue, SSAValue]

    @staticmethod
    def of(module: ModuleOp) -> "RowGraph":
        """Return the graph of a module whose row-wise ops are in tiles.

        Raises:
            UnsupportedModelError: an op mixes rows, or two values have different rows.
        """
        func = next(op for op in module.body.block.ops if isinstance(op, FuncOp))
        try:
            shapes = symbolic_shapes(func)
        except VerifyException as error:
            raise UnsupportedModelError(f"the model cannot be cut by neurons: {error}") from error
        ops, aliases = _flattened(func, shapes)
        end = func.body.block.last_op
        returned = end.operands if isinstance(end, ReturnOp) else ()
        graph = RowGraph(
            _ports(func.arg_attrs, [(value, value) for value in func.args], shapes),
            ops,
            _ports(func.res_attrs, [(value, _source(aliases, value)) for value in returned], shapes),
            aliases,
        )
        _check_rows(graph)
        return graph

    def source(self, value: SSAValue) -> SSAValue:
        """Return the input, the op's result or the constant that a value is another name of."""
        return _source(self.aliases, value)

    @property
    def layers(self) -> tuple[LinearOp, ...]:
        """The linear layers in their order: layer k computes level k + 1 of a partition."""
        return tuple(op for op in self.ops if isinstance(op, LinearOp))

    @property
    def level_widths(self) -> tuple[int, ...]:
        """Neurons of each level: all inputs together, then the outputs of each linear layer."""
        inputs = sum(features_of(port.value) for port in self.inputs)
        return (inputs, *(features_of(layer.result) for layer in self.layers))


def features_of(value: SSAValue) -> int:
    """Return the size of the last axis; a scalar has one feature."""
    return (shape_of(value) or (1,))[-1]


def _flattened(
    func: FuncOp, shapes: dict[SSAValue, SymbolicShape]
) -> tuple[tuple[Operation, ...], dict[SSAValue, SSAValue]]:
    """Return the ops inside all tiles, and what block arguments, results of tiles and reshapes are names of."""
    ops: list[Operation] = []
    aliases: dict[SSAValue, SSAValue] = {}
    for op in func.body.block.ops:
        match op:
            case ConstantOp() | SparseConstantOp() | ReturnOp():
                continue
            case TileOp():
                aliases |= dict(zip(op.body.block.args, op.inputs, strict=True))
                aliases |= dict(zip(op.outputs, op.yielded, strict=True))
                ops += [inner for inner in op.body.block.ops if not isinstance(inner, YieldOp)]
            case ReshapeOp() if _keeps_rows(op, shapes):
                aliases[op.result] = op.x
            case _:
                where = f"node {node_name(op)!r}: " if node_name(op) else ""
                raise UnsupportedModelError(
                    f"{where}{op.name} mixes rows, the plans rows and layers expect row-wise layers"
                )
    return tuple(ops), aliases


def _keeps_rows(op: ReshapeOp, shapes: dict[SSAValue, SymbolicShape]) -> bool:
    before, after = shapes[op.x], shapes[op.result]
    return before[-1:] == after[-1:] and product(before[:-1]) == product(after[:-1])


def _source(aliases: dict[SSAValue, SSAValue], value: SSAValue) -> SSAValue:
    while value in aliases:
        value = aliases[value]
    return value


def _ports(
    attributes: ArrayAttr[DictionaryAttr] | None,
    values: list[tuple[SSAValue, SSAValue]],
    shapes: dict[SSAValue, SymbolicShape],
) -> tuple[Port, ...]:
    names = port_names(attributes, len(values))
    return tuple(Port(name, shapes[value], source) for name, (value, source) in zip(names, values, strict=True))


def port_names(attributes: ArrayAttr[DictionaryAttr] | None, count: int) -> list[str]:
    """Return the names of a function's arguments or results; one without a name is called by its number."""
    entries = [DictionaryAttr({})] * count if attributes is None else attributes.data
    names = [entry.data.get(NAME) for entry in entries]
    return [name.data if isinstance(name, StringAttr) else str(index) for index, name in enumerate(names)]


def _check_rows(graph: RowGraph) -> None:
    """Check that all inputs and outputs have the same rows and known features, and that no output is a constant.

    Between them layers may be on codes of fixed scales, which linear layers and conversions alone read and yield.
    """
    for op in graph.ops:
        codes = [codes_in(value.type) for value in (*op.operands, *op.results)]
        if (isinstance(op, LinearOp) and op.finds_codes) or (any(codes) and not isinstance(op, LinearOp | ConvertOp)):
            where = f"node {node_name(op)!r}: " if node_name(op) else ""
            raise UnsupportedModelError(
                f"{where}the plans rows and layers expect floats, or linear layers on codes of a fixed scale, "
                f"got {op.name} on {'codes that are found at each call' if not any(codes) else 'codes'}"
            )
    rows: Size | None = None
    for word, ports in (("input", graph.inputs), ("output", graph.outputs)):
        for port in ports:
            if not port.shape or features_of(port.value) == DYNAMIC:
                raise UnsupportedModelError(f"{word} {port.name!r}: expected a last axis of known size, got none")
            if is_constant(port.value):
                raise UnsupportedModelError(f"{word} {port.name!r}: expected a computed value, got a constant")
            if codes_in(port.value.type) is not None:
                raise UnsupportedModelError(
                    f"{word} {port.name!r}: expected floats for the plans rows and layers, got codes"
                )
            count = product(port.shape[:-1])
            rows = count if rows is None else rows
            if count != rows:
                raise UnsupportedModelError(f"{word} {port.name!r}: expected {rows} rows as in the others, got {count}")

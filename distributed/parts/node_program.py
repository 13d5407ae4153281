"""The program of one rank that owns some nodes of a graph: functions on values of nodes, and what travels in between.

A function begins with each sum over edges, for which the values of others' sources must be there: a buffer holds the
own nodes of a value, ascending, then the received nodes by their owner. All further work
needs own nodes alone and stays in the function. Calls of `TAKE` and `GIVE` name the buffers of inputs and outputs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.graphs import AttendEdgesOp, OverEdges
from ...dialect.ops.tile import TileOp
from ...dialect.symbolic_sizes import NAME
from ...dialect.tensors import f32_tensor
from ...sparse.csr import CscMatrix
from ..graph.node_graph import NodeOwners, near_values
from ..graph.row_graph import features_of
from .module_text import take_constants, text_of
from .part_file import Part
from .steps import Buffer, BufferRow, Call, Receive, Route, Send, Step
from .sub_weights import sub_weight

TAKE: Final = "inputs"
"""Name of the first call, whose operands are the buffers that the inputs of the network go to."""

GIVE: Final = "outputs"
"""Name of the last call, whose operands are the buffers of its outputs."""

NODES: Final = "nodes"
"""The kind of all buffers."""


def node_part(owners: NodeOwners, rank: int) -> Part:
    """Return part `rank` of a partition of the nodes."""
    program = _Program(owners, rank)
    module = program.module()
    module.verify()
    constants = tuple(take_constants(module))
    graph, own = owners.graph, owners.own(rank)
    return Part(
        rank,
        owners.part_count,
        whole=False,
        text=text_of(module),
        constants=constants,
        buffers=tuple(program.buffers()),
        steps=tuple(program.steps),
        inputs=(own,) * len(graph.inputs),
        outputs=(own,) * len(graph.outputs),
    )


@dataclass
class _Function:
    """A function under construction: where its arguments come from, and the ops."""

    block: Block = field(default_factory=Block)
    arguments: dict[tuple[SSAValue, int], SSAValue] = field(default_factory=dict[tuple[SSAValue, int], SSAValue])
    """Arguments by their value in the network, and their rows."""
    made: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Results that the function computes of own nodes."""
    constants: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def argument(self, value: SSAValue, rows: int) -> SSAValue:
        """Return the first rows of a value's buffer."""
        if (value, rows) not in self.arguments:
            kind = f32_tensor((rows, features_of(value)))
            self.arguments[value, rows] = self.block.insert_arg(kind, len(self.arguments))
        return self.arguments[value, rows]

    def constant(self, value: SSAValue, op: Operation) -> SSAValue:
        if value not in self.constants:
            first = self.block.first_op
            if first is None:
                self.block.add_op(op)
            else:
                self.block.insert_op_before(op, first)
            self.constants[value] = op.results[0]
        return self.constants[value]


class _Program:
    """The steps of a rank, and their functions."""

    def __init__(self, owners: NodeOwners, rank: int) -> None:
        self.owners, self.rank, self.graph = owners, rank, owners.graph
        self.own = owners.own(rank)
        self.numbers: dict[SSAValue, int] = {}
        self.needed = owners.needed(rank)
        self.near = np.concatenate([self.own, *self.needed.values()])
        self.sent: dict[SSAValue, int] = {}
        self.functions: list[_Function] = []
        self.steps: list[Step] = []

    def module(self) -> ModuleOp:
        """Return the functions of the steps, which are known then."""
        self.steps.append(self._call(TAKE, [port.value for port in self.graph.inputs]))
        if len(self.own):
            for ops in self._groups():
                self._add(ops)
        self.steps.append(self._call(GIVE, [port.value for port in self.graph.outputs]))
        return ModuleOp([self._function(number) for number in range(len(self.functions))])

    def buffers(self) -> Iterator[Buffer]:
        for value in self.numbers:
            yield Buffer(len(self.near if value in self.sent else self.own), NODES, -1)

    def _groups(self) -> Iterator[list[OverEdges | TileOp]]:
        group: list[OverEdges | TileOp] = []
        for op in self.graph.ops:
            if group and isinstance(op, OverEdges):
                yield group
                group = []
            group.append(op)
            if isinstance(op, AttendEdgesOp):
                # its result has rows behind those of own nodes
                yield group
                group = []
        if group:
            yield group

    def _add(self, ops: Sequence[OverEdges | TileOp]) -> None:
        """Add a function, and before it the exchange of what it reads of others' nodes."""
        if isinstance(ops[0], OverEdges):
            for value in near_values(ops[0]):
                self._exchange(value)
        function = _Function()
        for op in ops:
            if isinstance(op, TileOp):
                self._tile(function, op)
            else:
                self._over_edges(function, op)
        # a use outside: another function, or the result of the network
        kept = [value for value in function.made if {use.operation for use in value.uses} - set(ops)]
        function.made = {value: function.made[value] for value in kept}
        self.functions.append(function)
        arguments = [value for value, _ in function.arguments]
        self.steps.append(self._call(f"run{len(self.functions) - 1}", [*arguments, *function.made]))

    def _call(self, name: str, values: Sequence[SSAValue]) -> Call:
        return Call(name, tuple(BufferRow(self._number(value), 0) for value in values))

    def _number(self, value: SSAValue) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def _exchange(self, value: SSAValue) -> None:
        """Add what is sent and received of a value, once."""
        if value in self.sent:
            return
        tag = self.sent[value] = len(self.sent)
        buffer, first = self._number(value), len(self.own)
        sends = [
            Route(other, np.searchsorted(self.own, nodes)) for other, nodes in self.owners.wanted_of(self.rank).items()
        ]
        receives: list[Route] = []
        for other, nodes in self.needed.items():
            receives.append(Route(other, np.arange(first, first + len(nodes), dtype=np.int64)))
            first += len(nodes)
        self.steps += [Send(tag, buffer, tuple(sends))] if sends else []
        self.steps += [Receive(tag, buffer, tuple(receives))] if receives else []

    def _tile(self, function: _Function, op: TileOp) -> None:
        for inner in op.body.walk():
            for operand in inner.operands:
                if isinstance(operand.owner, ConstantOp | SparseConstantOp):
                    function.constant(operand, operand.owner.clone())
        mapped: dict[SSAValue, SSAValue] = dict(function.constants)
        for operand in op.operands:
            mapped[operand] = function.made.get(operand) or function.argument(operand, len(self.own))
        self._emit(function, op, mapped)

    def _over_edges(self, function: _Function, op: OverEdges) -> None:
        mapped = {value: function.argument(value, len(self.near)) for value in near_values(op)}
        near = self.near
        graph = sub_weight(op.edges, near, self.own)
        assert isinstance(graph, CscMatrix)
        if isinstance(op, AttendEdgesOp):
            pointers = np.pad(graph.pointers, (0, len(near) - len(self.own)), mode="edge")
            graph = CscMatrix((len(near), len(near)), pointers, graph.rows, graph.values)
        mapped[op.graph] = function.constant(op.graph, SparseConstantOp(graph))
        if op.bias is not None:
            assert isinstance(op.bias.owner, ConstantOp)
            mapped[op.bias] = function.constant(op.bias, op.bias.owner.clone())
        self._emit(function, op, mapped)

    def _emit(self, function: _Function, op: OverEdges | TileOp, mapped: dict[SSAValue, SSAValue]) -> None:
        copy = op.clone(mapped)
        rows = len(self.near if isinstance(op, AttendEdgesOp) else self.own)
        for result, copied in zip(op.results, copy.results, strict=True):
            function.made[result] = Rewriter.replace_value_with_new_type(
                copied, f32_tensor((rows, features_of(result)))
            )
        function.block.add_op(copy)

    def _function(self, number: int) -> FuncOp:
        function = self.functions[number]
        results = list(function.made.values())
        function.block.add_op(ReturnOp(*results))
        kinds = FunctionType.from_lists([value.type for value in function.block.args], [one.type for one in results])
        return FuncOp(
            f"run{number}",
            kinds,
            Region(function.block),
            arg_attrs=_names("in", len(function.block.args)),
            res_attrs=_names("out", len(results)),
        )


def _names(word: str, count: int) -> ArrayAttr[DictionaryAttr]:
    return ArrayAttr([DictionaryAttr({NAME: StringAttr(f"{word}{number}")}) for number in range(count)])

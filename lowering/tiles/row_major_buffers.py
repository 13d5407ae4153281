"""Row-major buffers: inputs, outputs, temporaries and constants, and which values share one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from ...dialect.ops.constants import is_constant
from ...dialect.ops.graphs import EDGE_BUFFERS, EdgesType, SortEdgesOp
from ...dialect.ops.movement import ReshapeOp
from ...dialect.symbolic_sizes import Size, SymbolicShape, product


class Copy(NamedTuple):
    """A value that becomes output `output` by a copy at the end."""

    value: SSAValue
    output: int


@dataclass
class RowMajorBuffers:
    """The buffer of every row-major value: inputs first, then outputs, then temporaries.

    A reshape shares the buffer of its operand. A returned value is computed in its output's buffer; what is returned
    twice, or is an input or a constant, is copied.
    """

    func: FuncOp
    numbers: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    """The buffer of each value that has one of its own, or the first of several."""
    copies: list[Copy] = field(default_factory=list[Copy])
    temporaries: list[SSAValue] = field(default_factory=list[SSAValue])
    """The values that temporary buffers are made for."""

    def __post_init__(self) -> None:
        arguments, returned = list(self.func.args), list(_return_of(self.func).operands)
        for index, argument in enumerate(arguments):
            self.numbers[argument] = index
        for output, value in enumerate(returned):
            owner = root(value)
            if isinstance(owner, BlockArgument) or is_constant(owner) or owner in self.numbers:
                self.copies.append(Copy(value, output))
            else:
                self.numbers[owner] = len(arguments) + output
        following = len(arguments) + len(returned)
        for op in self.func.body.block.ops:
            for result in op.results:
                if root(result) == result and not is_constant(result) and result not in self.numbers:
                    self.numbers[result] = following
                    self.temporaries.append(result)
                    following += buffer_count(result)

    def buffer(self, value: SSAValue) -> int:
        """Return the buffer of a value that is no constant."""
        return self.numbers[root(value)]

    def lifetime(self, value: SSAValue, steps: dict[Operation, int]) -> tuple[int, int]:
        """Return the first and last step that touch the buffer made for `value`; `steps` numbers the ops with code."""
        sharing, touched = [value], [steps[value.owner]] if isinstance(value.owner, Operation) else []
        while sharing:
            for use in sharing.pop().uses:
                if isinstance(use.operation, ReshapeOp):
                    sharing.append(use.operation.result)
                touched.append(steps.get(use.operation, -1))
        last = max(touched)
        return min(step for step in touched if step >= 0), len(steps) if self._copied(value) else last

    def _copied(self, value: SSAValue) -> bool:
        return any(root(copy.value) == value for copy in self.copies)


def buffer_count(value: SSAValue) -> int:
    """Return how many buffers hold a value."""
    return EDGE_BUFFERS if isinstance(value.type, EdgesType) else 1


def buffer_sizes(value: SSAValue, shapes: Mapping[SSAValue, SymbolicShape]) -> list[Size]:
    """Return the sizes of the buffers that hold a value, in numbers of four bytes."""
    if isinstance(value.owner, SortEdgesOp):
        nodes, edges = shapes[value][0], shapes[value.owner.sources][0]
        return [nodes, nodes, edges, edges]
    return [product(shapes[value])]


def root(value: SSAValue) -> SSAValue:
    """Return the value whose buffer `value` shares: what stands before its reshapes."""
    while isinstance(value.owner, ReshapeOp):
        value = value.owner.x
    return value


def _return_of(func: FuncOp) -> ReturnOp:
    last = func.body.block.last_op
    assert isinstance(last, ReturnOp)
    return last


def returned_values(func: FuncOp) -> list[SSAValue]:
    """Return the values that `func` returns."""
    return list(_return_of(func).operands)

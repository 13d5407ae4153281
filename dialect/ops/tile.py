"""The batch tile: a region of row-wise layers that run one after the other on a few rows, in a layout of their own."""

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..attributes.codes import CODE_TENSOR, code_tensor, codes_in
from ..attributes.schedule import ScheduleAttr
from ..tensors import DENSE_TENSOR, DYNAMIC, f32_tensor, shape_of, shape_text
from .constants import ConstantOp, SparseConstantOp
from .foreign import ForeignOp
from .layers import LinearOp
from .movement import ConcatOp, ReshapeOp, SplitOp, TransposeOp
from .regions import boundary, verify_operands, verify_yield, yielded_by
from .tile_chain import CodeChain, code_chains
from .tile_dead_rows import DeadRowsAttr, verify_dead_rows
from .tile_depth_first import DepthFirstAttr, verify_depth_first


@irdl_op_definition
class TileOp(IRDLOperation):
    """A region that runs for a tile of rows after the other.

    All leading axes of operands and results together are the rows; inside, every value is `tensor<?xKxf32>`, or codes
    in the place of f32: some rows of K features. `rows_of` says for each result which operand has the same leading
    axes. Only constants are used from outside. Layers run one after the other, groups of them `depth_first` in wide
    tiles. With `dead_rows`, rows of zeros are dropped on the way.

    ```mlir
    %y = pebble.tile %x rows_of [0] schedule <widths = [16, 64]>
        : (tensor<?x4xf32>) -> tensor<?x2xf32> {
    ^bb0(%tile : tensor<?x4xf32>):
      %h = pebble.linear %tile, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
      pebble.yield %h : tensor<?x2xf32>
    }
    ```
    """

    name = "pebble.tile"

    inputs = var_operand_def(DENSE_TENSOR | CODE_TENSOR)
    rows_of = prop_def(DenseArrayBase.constr(i64))
    schedule = prop_def(ScheduleAttr)
    depth_first = opt_prop_def(DepthFirstAttr)
    dead_rows = opt_prop_def(DeadRowsAttr)
    outputs = var_result_def(DENSE_TENSOR | CODE_TENSOR)
    body = region_def("single_block")

    traits = traits_def(Pure())
    assembly_format: ClassVar = (
        "$inputs `rows_of` $rows_of `schedule` $schedule (`depth_first` $depth_first^)? "
        "(`dead_rows` $dead_rows^)? attr-dict `:` "
        "functional-type($inputs, $outputs) $body"
    )

    def __init__(
        self, inputs: Sequence[SSAValue], results: Sequence[tuple[int, Attribute]], schedule: ScheduleAttr, body: Region
    ) -> None:
        """Make a tile; `results` gives for each result the operand whose leading axes it has, and its type."""
        super().__init__(
            operands=[inputs],
            result_types=[[result_type for _, result_type in results]],
            properties={
                "rows_of": DenseArrayBase.from_list(i64, [source for source, _ in results]),
                "schedule": schedule,
            },
            regions=[body],
        )

    @staticmethod
    def body_for(inputs: Sequence[SSAValue]) -> Region:
        """Return an empty body whose arguments fit `inputs`."""
        return Region(Block(arg_types=[tile_type(value) for value in inputs]))

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The values inside that become the results."""
        return yielded_by(self.body)

    def verify_(self) -> None:
        verify_yield(self.body)
        _verify_boundary("argument", self.inputs, self.body.block.args)
        _verify_boundary("result", self.outputs, self.yielded)
        _verify_leading_axes(self)
        for op in self.body.block.ops:
            _verify_inside(op, self.body.block)
        if self.depth_first is not None:
            verify_depth_first(self.body.block, self.depth_first)
        if self.dead_rows is not None:
            if self.depth_first is not None:
                raise VerifyException("dead rows are dropped between layers, but these run depth first")
            verify_dead_rows(self.body.block, self.dead_rows)


def _verify_inside(op: Operation, body: Block) -> None:
    """Check that an op of the body works row by row, on values of the body and constants from outside."""
    along_rows = isinstance(op, ConcatOp | SplitOp) and op.axis.value.data != 1
    if along_rows or isinstance(op, ReshapeOp | TransposeOp | ForeignOp | TileOp):
        raise VerifyException(f"{op.name} in the body does not work row by row")
    verify_operands(op, body)
    if isinstance(op, ConstantOp | SparseConstantOp):
        return
    for result in op.results:
        shape = shape_of(result)
        if len(shape) != 2 or shape[0] != DYNAMIC or shape[1] == DYNAMIC:
            raise VerifyException(f"expected rows of known size from {op.name} in the body, got {shape_text(shape)}")


def _verify_leading_axes(op: TileOp) -> None:
    """Check that every result has the leading axes of the operand that `rows_of` names."""
    sources = op.rows_of.get_values()
    if len(sources) != len(op.outputs):
        raise VerifyException(f"rows_of has {len(sources)} entries for {len(op.outputs)} results")
    for source, result in zip(sources, op.outputs, strict=True):
        if not 0 <= source < len(op.inputs):
            raise VerifyException(f"rows_of names operand {source} of {len(op.inputs)}")
        rows, expected = shape_of(result)[:-1], shape_of(op.inputs[int(source)])[:-1]
        if rows != expected:
            raise VerifyException(f"result has rows {shape_text(rows)}, operand {source} has {shape_text(expected)}")


def tile_type(value: SSAValue) -> Attribute:
    """Return the type inside a tile of a value outside: some rows of its features (a scalar has one feature)."""
    shape, codes = (DYNAMIC, (shape_of(value) or (1,))[-1]), codes_in(value.type)
    return f32_tensor(shape) if codes is None else code_tensor(codes, shape)


def _verify_boundary(word: str, outer: Sequence[SSAValue], inner: Sequence[SSAValue]) -> None:
    for index, (outside, inside) in enumerate(boundary(word, outer, inner)):
        if inside.type != tile_type(outside):
            raise VerifyException(
                f"{word} {index} is {shape_text(shape_of(inside))} inside and {shape_text(shape_of(outside))} outside"
            )


def chain_in(op: Operation) -> CodeChain | None:
    """Return the chain that a step computes: that of a tile, or a layer by itself that finds its codes; else None."""
    if isinstance(op, LinearOp):
        return CodeChain((op,)) if op.codes is not None else None
    if not isinstance(op, TileOp):
        return None
    *inner, _ = op.body.block.ops
    chains = code_chains(inner)
    return chains[0] if len(chains) == 1 and len(chains[0].ops) == len(inner) else None

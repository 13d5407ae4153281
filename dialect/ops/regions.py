"""The bodies of ops that hold layers: how they end, and what they may use from outside."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, traits_def, var_operand_def
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from ..attributes.codes import CODE_TENSOR
from ..tensors import DENSE_TENSOR, shape_of, shape_text
from .constants import ConstantOp, SparseConstantOp

YIELDING = ("pebble.tile", "pebble.scan", "pebble.image_network", "pebble.sparse_network")
"""The ops whose bodies end in a yield."""


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The results of a tile, of a step of a scan, or of a network.

    ```mlir
    pebble.yield %y : tensor<?x10xf32>
    ```
    """

    name = "pebble.yield"

    values = var_operand_def(DENSE_TENSOR | CODE_TENSOR)

    traits = traits_def(IsTerminator(), Pure())
    assembly_format: ClassVar = "$values attr-dict `:` type($values)"

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[values])

    def verify_(self) -> None:
        parent = self.parent_op()
        if parent is None or parent.name not in YIELDING:
            raise VerifyException(f"expected inside a {', '.join(YIELDING[:-1])} or {YIELDING[-1]}")


def yielded_by(body: Region) -> tuple[SSAValue, ...]:
    """Return the values inside that become the results."""
    last = body.block.last_op
    return tuple(last.operands) if isinstance(last, YieldOp) else ()


def verify_yield(body: Region) -> None:
    """Check that a body ends in a yield.

    Raises:
        VerifyException: it ends in another op.
    """
    if not isinstance(body.block.last_op, YieldOp):
        raise VerifyException("expected a pebble.yield at the end of the body")


def boundary(word: str, outer: Sequence[SSAValue], inner: Sequence[SSAValue]) -> Iterator[tuple[SSAValue, SSAValue]]:
    """Return the pairs of values outside and inside.

    Raises:
        VerifyException: there are more of one than of the other.
    """
    if len(outer) != len(inner):
        raise VerifyException(f"{len(inner)} {word}s inside, {len(outer)} outside")
    return zip(outer, inner, strict=True)


def verify_boundary(word: str, outer: Sequence[SSAValue], inner: Sequence[SSAValue]) -> None:
    """Check that values inside have the types of those outside.

    Raises:
        VerifyException: one has another, or there are more on one side.
    """
    for index, (outside, inside) in enumerate(boundary(word, outer, inner)):
        if inside.type != outside.type:
            raise VerifyException(
                f"{word} {index} is {shape_text(shape_of(inside))} inside and {shape_text(shape_of(outside))} outside"
            )


def verify_operands(op: Operation, body: Block) -> None:
    """Check that an op uses values of its body, and constants from outside.

    Raises:
        VerifyException: it uses another value from outside.
    """
    for operand in op.operands:
        owner = operand.owner
        outside = (owner if isinstance(owner, Block) else owner.parent) is not body
        if outside and not isinstance(owner, ConstantOp | SparseConstantOp):
            raise VerifyException(f"{op.name} in the body uses a value from outside that is no constant")

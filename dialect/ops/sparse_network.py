"""The sparse network: layers that leave the graph together, as one ONNX node that a runtime may run natively."""

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, StringAttr, f64
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.irdl import (
    EqAttrConstraint,
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

from ..attributes.codes import CODE_TENSOR
from ..tensors import DENSE_TENSOR, DYNAMIC, shape_of, shape_text
from .constants import ConstantOp, SparseConstantOp
from .foreign import INT32, INT64, INTEGERS, ForeignOp
from .regions import verify_boundary, verify_operands, verify_yield, yielded_by


@irdl_op_definition
class SparseNetworkOp(IRDLOperation):
    """Layers on values of the shapes that they have outside; only constants are used from outside.

    Operands are floats, codes, or integers: numbers of the nodes of a graph, lengths of sequences. Results are floats
    or codes.

    `dims` has a word for every axis of every operand: its size, or a name that equal sizes share. `reason` says why
    these layers run together. Of convolutions, `image_us` are the predicted microseconds of an image, and
    `dense_image_us` those without sparse kernels.

    ```mlir
    %y = pebble.sparse_network %x dims [["d0", "4"]] because "1 of 1 weights sparse"
        : (tensor<?x4xf32>) -> tensor<?x2xf32> {
    ^bb0(%a : tensor<?x4xf32>):
      %h = pebble.linear %a, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
      pebble.yield %h : tensor<?x2xf32>
    }
    ```
    """

    name = "pebble.sparse_network"

    inputs = var_operand_def(DENSE_TENSOR | CODE_TENSOR | EqAttrConstraint(INT64) | EqAttrConstraint(INT32))
    dims = prop_def(ArrayAttr[ArrayAttr[StringAttr]])
    reason = prop_def(StringAttr)
    image_us = opt_prop_def(FloatAttr.constr(f64))
    dense_image_us = opt_prop_def(FloatAttr.constr(f64))
    outputs = var_result_def(DENSE_TENSOR | CODE_TENSOR)
    body = region_def("single_block")

    traits = traits_def(Pure())
    assembly_format: ClassVar = (
        "$inputs `dims` $dims `because` $reason (`image_us` $image_us^)? (`dense_image_us` $dense_image_us^)? "
        "attr-dict `:` functional-type($inputs, $outputs) $body"
    )

    def __init__(
        self, inputs: Sequence[SSAValue], dims: Sequence[Sequence[str]], results: Sequence[Attribute], body: Region
    ) -> None:
        """Make a sparse network without a reason; see `reason`."""
        words = [ArrayAttr([StringAttr(word) for word in axes]) for axes in dims]
        super().__init__(
            operands=[inputs],
            result_types=[results],
            properties={"dims": ArrayAttr(words), "reason": StringAttr("")},
            regions=[body],
        )

    @staticmethod
    def body_for(inputs: Sequence[SSAValue]) -> Region:
        """Return an empty body whose arguments fit `inputs`."""
        return Region(Block(arg_types=[value.type for value in inputs]))

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The values inside that become the results."""
        return yielded_by(self.body)

    def verify_(self) -> None:
        verify_yield(self.body)
        verify_boundary("argument", self.inputs, self.body.block.args)
        verify_boundary("result", self.outputs, self.yielded)
        if len(self.dims) != len(self.inputs):
            raise VerifyException(f"expected dims of {len(self.inputs)} operands, got {len(self.dims)}")
        for value, axes in zip(self.inputs, self.dims, strict=True):
            _verify_dims(value, [word.data for word in axes])
        _verify_body(self.body.block)


def _verify_dims(value: SSAValue, words: Sequence[str]) -> None:
    """Check that there is a word for every axis, and that it is the size where that is known."""
    if value.type in INTEGERS:
        if not words or not all(words):
            raise VerifyException(f"expected a word for each axis of integers, got dims [{', '.join(words)}]")
        return
    sizes = shape_of(value)
    fit = len(words) == len(sizes) and all(
        bool(word) and not word.isdecimal() if size == DYNAMIC else word == str(size)
        for word, size in zip(words, sizes, strict=True)
    )
    if not fit:
        raise VerifyException(f"dims [{', '.join(words)}] for operand {shape_text(sizes)}")


def _verify_body(body: Block) -> None:
    """Check that the body uses values of its own and constants from outside."""
    for op in body.ops:
        if isinstance(op, ForeignOp | SparseNetworkOp | ConstantOp | SparseConstantOp):
            raise VerifyException(f"{op.name} in the body is no layer")
        verify_operands(op, body)

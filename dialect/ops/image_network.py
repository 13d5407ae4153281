"""The image network: layers on images that run one image after the other, on values that stay in scratch memory."""

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, f64, i64
from xdsl.ir import Attribute, Region, SSAValue
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

from ..tensors import DENSE_TENSOR
from .axis_maps import RowMajor
from .image_bands import BandsAttr, verify_bands
from .images import Conv2dOp, ImageAxes
from .regions import verify_boundary, verify_operands, verify_yield, yielded_by


@irdl_op_definition
class ImageNetworkOp(IRDLOperation):
    """Layers on images; only constants are used from outside.

    `threads` is how many may work on one image; `predicted_us` the microseconds of one image by one thread.
    The groups of `depth_first` run in bands of tiles, other ops one after the other.

    ```mlir
    %y = pebble.image_network %x threads 1 predicted_us 1.0e+01 : (tensor<?x4x8x8xf32>) -> tensor<?x2x8x8xf32> {
    ^bb0(%a : tensor<?x4x8x8xf32>):
      %h = pebble.conv2d %a, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]>
        : (tensor<?x4x8x8xf32>, tensor<4x2xf32>) -> tensor<?x2x8x8xf32>
      pebble.yield %h : tensor<?x2x8x8xf32>
    }
    ```
    """

    name = "pebble.image_network"

    inputs = var_operand_def(DENSE_TENSOR)
    threads = prop_def(IntegerAttr.constr(i64))
    predicted_us = prop_def(FloatAttr.constr(f64))
    depth_first = opt_prop_def(BandsAttr)
    outputs = var_result_def(DENSE_TENSOR)
    body = region_def("single_block")

    traits = traits_def(Pure(), ImageAxes(), RowMajor())
    assembly_format: ClassVar = (
        "$inputs `threads` $threads `predicted_us` $predicted_us (`depth_first` $depth_first^)? attr-dict "
        "`:` functional-type($inputs, $outputs) $body"
    )

    def __init__(
        self, inputs: Sequence[SSAValue], results: Sequence[Attribute], body: Region, threads: int, predicted_us: float
    ) -> None:
        """Make an image network of a body that ends in a yield."""
        super().__init__(
            operands=[inputs],
            result_types=[results],
            properties={"threads": IntegerAttr(threads, i64), "predicted_us": FloatAttr(predicted_us, f64)},
            regions=[body],
        )

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The values inside that become the results."""
        return yielded_by(self.body)

    @property
    def has_found_codes(self) -> bool:
        """Whether it computes with codes that are found at each call."""
        return any(isinstance(op, Conv2dOp) and op.finds_codes for op in self.body.block.ops)

    def verify_(self) -> None:
        verify_yield(self.body)
        verify_boundary("argument", self.inputs, self.body.block.args)
        verify_boundary("result", self.outputs, self.yielded)
        if self.threads.value.data < 1:
            raise VerifyException(f"expected one or more threads, got {self.threads.value.data}")
        if self.depth_first is not None:
            verify_bands([*self.body.block.ops][:-1], self.depth_first)
        for op in self.body.block.ops:
            verify_operands(op, self.body.block)
            if isinstance(op, Conv2dOp) and op.finds_codes and op.x not in self.body.block.args:
                raise VerifyException(
                    "expected codes of arguments to be found at each call, got those of a value inside"
                )

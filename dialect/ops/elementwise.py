"""Elementwise ops: one operand and an activation, or two operands with numpy's broadcasting.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).
"""

from typing import ClassVar

from xdsl.ir import Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Commutative, Pure
from xdsl.utils.exceptions import VerifyException

from ..attributes.activations import ActivationAttr
from ..attributes.codes import CODE_TENSOR, CodesAttr, code_tensor, codes_in
from ..tensors import DENSE_TENSOR, broadcast_shape, compatible, f32_tensor, shape_of, shape_text
from .axis_maps import AxisPattern, PatternOp, RowMajor, RowWise
from .pattern_traits import ElementwisePatterns

ELEMENTWISE = (Pure(), AxisPattern("... -> ..."), RowWise(), RowMajor())
BROADCAST = (Pure(), AxisPattern("..., ... -> ..."), RowWise(), RowMajor())


@irdl_op_definition
class ActivateOp(PatternOp):
    """One activation for every value.

    ```mlir
    %y = pebble.activate <leaky_relu(0.01)> %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
    ```
    """

    name = "pebble.activate"

    x = operand_def(DENSE_TENSOR)
    activation = prop_def(ActivationAttr)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(*ELEMENTWISE, ElementwisePatterns())
    assembly_format: ClassVar = "$activation $x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, activation: ActivationAttr) -> None:
        super().__init__(operands=[x], properties={"activation": activation}, result_types=[x.type])


@irdl_op_definition
class ConvertOp(PatternOp):
    """Floats to codes, or codes to floats: rounded to the nearest code, even where two are; a NaN has the least one.

    ```mlir
    %q = pebble.convert %x : (tensor<?x4xf32>) -> tensor<?x4x!pebble.codes<u8 scale 0.05 zero 128>>
    ```
    """

    name = "pebble.convert"

    x = operand_def(DENSE_TENSOR | CODE_TENSOR)
    result = result_def(DENSE_TENSOR | CODE_TENSOR)

    traits = traits_def(Pure(), AxisPattern("... -> ..."), RowWise())
    assembly_format: ClassVar = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, codes: CodesAttr | None = None) -> None:
        """Make codes of floats, or floats of codes where none are given."""
        shape = shape_of(x)
        super().__init__(operands=[x], result_types=[f32_tensor(shape) if codes is None else code_tensor(codes, shape)])

    @property
    def codes(self) -> CodesAttr:
        """The codes on either side.

        Raises:
            VerifyException: there are none.
        """
        codes = codes_in(self.x.type) or codes_in(self.result.type)
        if codes is None:
            raise VerifyException("expected codes on one side")
        return codes

    @property
    def rounds(self) -> bool:
        """Whether it makes codes of floats."""
        return codes_in(self.result.type) is not None

    def verify_(self) -> None:
        super().verify_()
        if self.codes.is_dynamic or (self.rounds and codes_in(self.x.type) is not None):
            raise VerifyException("expected codes of a scale and a zero on one side, floats on the other")


def rounds_to_codes(op: Operation) -> bool:
    """Return whether an op rounds what it reads to codes, or to floats of codes."""
    return op.rounds if isinstance(op, ConvertOp) else isinstance(op, ActivateOp) and op.activation.kind == "quantize"


class BinaryOp(IRDLOperation):
    """Two operands, broadcast against each other as numpy does; unknown sizes must agree at run time."""

    left = operand_def(DENSE_TENSOR)
    right = operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    assembly_format: ClassVar = "$left `,` $right attr-dict `:` functional-type(operands, results)"

    def __init__(self, left: SSAValue, right: SSAValue) -> None:
        shape = broadcast_shape(shape_of(left), shape_of(right))
        super().__init__(operands=[left, right], result_types=[f32_tensor(shape)])

    def verify_(self) -> None:
        expected = broadcast_shape(shape_of(self.left), shape_of(self.right))
        if not compatible(shape_of(self.result), expected):
            raise VerifyException(f"expected result {shape_text(expected)}, got {shape_text(shape_of(self.result))}")


@irdl_op_definition
class AddOp(BinaryOp):
    """left + right.

    ```mlir
    %y = pebble.add %x, %b : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    ```
    """

    name = "pebble.add"
    traits = traits_def(*BROADCAST, Commutative(), ElementwisePatterns())


@irdl_op_definition
class SubOp(BinaryOp):
    """left - right.

    ```mlir
    %y = pebble.sub %x, %b : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    ```
    """

    name = "pebble.sub"
    traits = traits_def(*BROADCAST, ElementwisePatterns())


@irdl_op_definition
class MulOp(BinaryOp):
    """left * right.

    ```mlir
    %y = pebble.mul %x, %scale : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    ```
    """

    name = "pebble.mul"
    traits = traits_def(*BROADCAST, Commutative(), ElementwisePatterns())


@irdl_op_definition
class DivOp(BinaryOp):
    """left / right.

    ```mlir
    %y = pebble.div %x, %scale : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    ```
    """

    name = "pebble.div"
    traits = traits_def(*BROADCAST, ElementwisePatterns())


@irdl_op_definition
class PreluOp(BinaryOp):
    """left where it is not negative, else left * right (the slope).

    ```mlir
    %y = pebble.prelu %x, %slope : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    ```
    """

    name = "pebble.prelu"
    traits = traits_def(*BROADCAST)

    def verify_(self) -> None:
        super().verify_()
        shape, slope = shape_of(self.left), shape_of(self.right)
        if not compatible(shape, broadcast_shape(shape, slope)):
            raise VerifyException(f"expected a slope that is broadcast to {shape_text(shape)}, got {shape_text(slope)}")

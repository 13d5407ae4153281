"""Elementwise ops: one operand and an activation, or two operands with numpy's broadcasting."""

from typing import ClassVar

from redpebble.dialect.attributes import ActivationAttr
from redpebble.dialect.canonicalization import ElementwisePatterns
from redpebble.dialect.tensors import broadcast_shape, compatible, f32_tensor, shape_of, shape_text
from xdsl.dialects.builtin import Float32Type, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, base, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Commutative, Pure
from xdsl.utils.exceptions import VerifyException

F32_TENSOR = base(TensorType[Float32Type])


@irdl_op_definition
class ActivateOp(IRDLOperation):
    """One activation for every value: `%y = pebble.activate <relu> %x : tensor<?x4xf32>`."""

    name = "pebble.activate"

    x = operand_def(F32_TENSOR)
    activation = prop_def(ActivationAttr)
    result = result_def(F32_TENSOR)

    traits = traits_def(Pure(), ElementwisePatterns())
    assembly_format: ClassVar = "$activation $x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, activation: ActivationAttr) -> None:
        super().__init__(operands=[x], properties={"activation": activation}, result_types=[x.type])

    def verify_(self) -> None:
        if shape_of(self.x) != shape_of(self.result):
            raise VerifyException(
                f"result {shape_text(shape_of(self.result))}, expected {shape_text(shape_of(self.x))}"
            )


class BinaryOp(IRDLOperation):
    """Two operands, broadcast against each other as numpy does; unknown sizes must agree at run time."""

    left = operand_def(F32_TENSOR)
    right = operand_def(F32_TENSOR)
    result = result_def(F32_TENSOR)

    assembly_format: ClassVar = "$left `,` $right attr-dict `:` functional-type(operands, results)"

    def __init__(self, left: SSAValue, right: SSAValue) -> None:
        shape = broadcast_shape(shape_of(left), shape_of(right))
        super().__init__(operands=[left, right], result_types=[f32_tensor(shape)])

    def verify_(self) -> None:
        expected = broadcast_shape(shape_of(self.left), shape_of(self.right))
        if not compatible(shape_of(self.result), expected):
            raise VerifyException(f"result {shape_text(shape_of(self.result))}, expected {shape_text(expected)}")


@irdl_op_definition
class AddOp(BinaryOp):
    """left + right."""

    name = "pebble.add"
    traits = traits_def(Pure(), Commutative(), ElementwisePatterns())


@irdl_op_definition
class SubOp(BinaryOp):
    """left - right."""

    name = "pebble.sub"
    traits = traits_def(Pure(), ElementwisePatterns())


@irdl_op_definition
class MulOp(BinaryOp):
    """left * right."""

    name = "pebble.mul"
    traits = traits_def(Pure(), Commutative(), ElementwisePatterns())


@irdl_op_definition
class DivOp(BinaryOp):
    """left / right."""

    name = "pebble.div"
    traits = traits_def(Pure(), ElementwisePatterns())


@irdl_op_definition
class PreluOp(BinaryOp):
    """left where it is not negative, else left * right (the slope)."""

    name = "pebble.prelu"
    traits = traits_def(Pure())

"""Constant tensors: dense ones, and sparse ones whose type says how they are stored."""

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DenseIntOrFPElementsAttr, Float32Type, IntegerType, TensorType, f32, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, opt_prop_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import ConstantLike, HasFolder, Pure
from xdsl.utils.exceptions import VerifyException

from ...sparse.csr import CscMatrix
from ..attributes.few_bits import FewBitsAttr
from ..attributes.row_panels import PanelsAttr
from ..attributes.structure_facts import FactAttr
from ..tensors import (
    DENSE_TENSOR,
    DYNAMIC,
    F32_TENSOR,
    F32Tensor,
    SparsityAttr,
    dense_floats,
    dense_indices,
    f32_tensor,
    floats_of,
    indices_of,
    shape_text,
    size_of,
)
from .dense_literals import Floats, parse_floats, print_floats

FEW_BITS: Final = "few_bits"
"""The word for codes in the text of a dense constant."""


class _FoldsToItsValue(HasFolder):
    @classmethod
    def fold(cls, op: Operation) -> Sequence[SSAValue | Attribute] | None:
        # another constant made of the value would have no codes
        return None if FEW_BITS in op.properties else (op.properties["value"],)


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """A dense constant; a weight of few bits may hold codes without zeros among them, too.

    ```mlir
    %b = pebble.constant dense<[0.5, 1.0]> : tensor<2xf32>
    %w = pebble.constant {few_bits = #pebble.few_bits<...>} dense<...> : tensor<64x32xf32>
    ```
    """

    name = "pebble.constant"

    value = prop_def(DenseIntOrFPElementsAttr[Float32Type])
    few_bits = opt_prop_def(FewBitsAttr)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), ConstantLike(), _FoldsToItsValue())

    def __init__(
        self,
        value: NDArray[np.float32] | DenseIntOrFPElementsAttr[Float32Type],
        few_bits: FewBitsAttr | None = None,
    ) -> None:
        attribute = dense_floats(value) if isinstance(value, np.ndarray) else value
        super().__init__(properties={"value": attribute, "few_bits": few_bits}, result_types=[attribute.type])

    @property
    def array(self) -> NDArray[np.float32]:
        """The values: a read-only view in the shape of the result."""
        return floats_of(self.value)

    def verify_(self) -> None:
        if self.value.type != self.result.type:
            raise VerifyException(f"value of type {self.value.type} for a result of type {self.result.type}")
        _verify_size(self.value)
        _verify_scales(self.few_bits, self.value.get_shape())

    @classmethod
    def parse(cls, parser: Parser) -> "ConstantOp":
        attributes = parser.parse_optional_attr_dict()
        few_bits = attributes.pop(FEW_BITS, None)
        op = cls(parse_floats(parser))
        op.attributes.update(attributes)
        if few_bits is not None:
            op.properties[FEW_BITS] = few_bits
        return op

    def print(self, printer: Printer) -> None:
        codes = {} if self.few_bits is None else {FEW_BITS: self.few_bits}
        printer.print_op_attributes(codes | self.attributes)
        printer.print_string(" ")
        print_floats(printer, self.value)


@irdl_op_definition
class SparseConstantOp(IRDLOperation):
    """A sparse weight of shape [inputs, outputs], column by column (an output neuron's connections stand together).

    ```mlir
    %w = pebble.sparse_constant pointers dense<[0, 2, 3]> : tensor<3xi64> rows dense<[0, 2, 1]> : tensor<3xi64>
      values dense<[1.0, 2.0, 3.0]> : tensor<3xf32> : tensor<4x2xf32, #pebble.sparsity<nonzeros = 3>>
    ```
    """

    name = "pebble.sparse_constant"

    pointers = prop_def(DenseIntOrFPElementsAttr[IntegerType])
    rows = prop_def(DenseIntOrFPElementsAttr[IntegerType])
    values = prop_def(DenseIntOrFPElementsAttr[Float32Type])
    panels = opt_prop_def(PanelsAttr)
    facts = opt_prop_def(ArrayAttr[FactAttr])
    few_bits = opt_prop_def(FewBitsAttr)
    result = result_def(F32_TENSOR)

    traits = traits_def(Pure())
    custom_directives = (Floats,)
    assembly_format: ClassVar = (
        "`pointers` qualified($pointers) `rows` qualified($rows) `values` custom<Floats>($values) "
        "(`panels` $panels^)? (`facts` $facts^)? (`few_bits` $few_bits^)? attr-dict `:` type($result)"
    )

    def __init__(self, weight: CscMatrix, few_bits: FewBitsAttr | None = None) -> None:
        super().__init__(
            properties={
                "pointers": dense_indices(weight.pointers),
                "rows": dense_indices(weight.rows),
                "values": dense_floats(weight.values),
                "few_bits": few_bits,
            },
            result_types=[f32_tensor(weight.shape, SparsityAttr(len(weight.values)))],
        )

    @property
    def weight(self) -> CscMatrix:
        """The weight [inputs, outputs]; the arrays are views."""
        inputs, outputs = self.result_type.get_shape()
        return CscMatrix((inputs, outputs), indices_of(self.pointers), indices_of(self.rows), floats_of(self.values))

    @property
    def result_type(self) -> F32Tensor:
        """The type of the result, with its encoding."""
        return self.result.type

    def verify_(self) -> None:
        encoding = self.result_type.encoding
        if not isinstance(encoding, SparsityAttr):
            raise VerifyException(f"result type {self.result_type} has no sparsity encoding")
        shape = self.result_type.get_shape()
        if len(shape) != 2:
            raise VerifyException(f"expected a sparse constant of rank 2, got {len(shape)}")
        if DYNAMIC in shape:
            raise VerifyException(f"expected a sparse constant of known sizes, got {shape_text(shape)}")
        _verify_arrays(shape[1], encoding.nonzeros, self)
        if self.panels is not None and np.any(self.panels.outputs >= shape[1]):
            raise VerifyException(f"expected panels of {shape[1]} outputs, got output {self.panels.outputs.max()}")
        _verify_csc(shape[0], indices_of(self.pointers), indices_of(self.rows))
        _verify_scales(self.few_bits, shape)


def _verify_scales(few_bits: FewBitsAttr | None, shape: Sequence[int]) -> None:
    """Check that a weight of few bits is a matrix with a scale for each group."""
    if few_bits is None:
        return
    if len(shape) != 2:
        raise VerifyException(f"expected a weight of few bits of rank 2, got {len(shape)}")
    if len(few_bits.scales) != shape[1] * few_bits.groups(shape[0]):
        groups = shape[1] * few_bits.groups(shape[0])
        raise VerifyException(f"expected {groups} scales, got {len(few_bits.scales)}")


def _verify_size(elements: DenseIntOrFPElementsAttr[Float32Type] | DenseIntOrFPElementsAttr[IntegerType]) -> None:
    """Check that there are as many elements as their type says; a string of bytes can hold any number."""
    if len(elements) != size_of(elements.get_shape()):
        raise VerifyException(f"{len(elements)} elements for {elements.type}")


def _verify_arrays(outputs: int, nonzeros: int, op: SparseConstantOp) -> None:
    """Check the types of the three arrays of a matrix of `outputs` columns with `nonzeros` stored values."""
    for word, array, element, count in (
        ("pointers", op.pointers, i64, outputs + 1),
        ("rows", op.rows, i64, nonzeros),
        ("values", op.values, f32, nonzeros),
    ):
        expected = TensorType[Attribute](element, [count])
        if array.type != expected:
            raise VerifyException(f"expected {word} {expected}, got {array.type}")
        _verify_size(array)


def _verify_csc(inputs: int, pointers: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    """Check that pointers and rows describe a matrix of `inputs` rows."""
    nonzeros = len(rows)
    if pointers[0] != 0 or pointers[-1] != nonzeros or np.any(np.diff(pointers) < 0):
        raise VerifyException(f"pointers must ascend from 0 to {nonzeros}")
    if nonzeros and (rows.min() < 0 or rows.max() >= inputs):
        raise VerifyException(f"row {rows.max() if rows.max() >= inputs else rows.min()} outside 0 to {inputs - 1}")
    starts = np.zeros(nonzeros + 1, dtype=bool)
    starts[pointers] = True
    if np.any((np.diff(rows) <= 0) & ~starts[1:-1]):
        raise VerifyException("rows of a column must ascend")


def is_constant(value: SSAValue) -> bool:
    """Return whether a value is a constant of the dialect."""
    return isinstance(value.owner, ConstantOp | SparseConstantOp)


def constant_matrix(value: SSAValue) -> CscMatrix | None:
    """Return the matrix [inputs, outputs] of a value without its zeros, or None when it is no constant."""
    if isinstance(value.owner, SparseConstantOp):
        return value.owner.weight
    return CscMatrix.from_dense(value.owner.array) if isinstance(value.owner, ConstantOp) else None


def constant_array(value: SSAValue) -> NDArray[np.float32] | None:
    """Return the array of a value's shape, dense or sparse (then made dense), or None when it is no constant."""
    match value.owner:
        case ConstantOp() as op:
            return op.array
        case SparseConstantOp() as op:
            return op.weight.to_dense()
        case _:
            return None


def few_bits_of(value: SSAValue) -> FewBitsAttr | None:
    """Return how the entries of a weight are codes of few bits, or None where they are not."""
    return value.owner.few_bits if isinstance(value.owner, ConstantOp | SparseConstantOp) else None

"""Foreign ops: ONNX nodes that the dialect does not know, as they are, and the types of their values."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    prop_def,
    var_operand_def,
    var_result_def,
)
from xdsl.utils.exceptions import VerifyException

from ..record import Record, Text

CODES = "pebble.codes"
"""Under this key a node that makes codes of floats, or the other way round, has the codes, if these are constants."""

MAP_TYPES = "redpebble.map_types"
"""Under this key a graph's `meta` holds the types, as protobuf bytes by name, that onnx-ir cannot hold."""


class ForeignType(Record, TypeAttribute, text="{description}"):
    """The type of a value that is no f32 tensor of known rank, in ONNX's words: `!pebble.value<"tensor(int64)">`."""

    name = "pebble.value"

    description: Text


INT64: Final = ForeignType("tensor(int64)")
"""The type of numbers of nodes, say, as models have them."""

INT32: Final = ForeignType("tensor(int32)")
"""The type of the lengths of sequences."""

INTEGERS: Final = (INT64, INT32)
"""The types of integers that code reads."""


@irdl_op_definition
class ForeignOp(IRDLOperation):
    """An ONNX node that is kept as it is; its operands are what it reads of the values that the IR holds.

    Attributes, constants and subgraphs stay in the model that the IR was imported from, where the node stands at
    `position`; `names` are what the operands were called there. It may have effects (a random number, say), so it is
    never moved, merged or dropped.

    ```mlir
    %y = pebble.foreign "ai.onnx.ml::Scaler" at 3 reads %x as ["x"] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    ```
    """

    name = "pebble.foreign"

    operator = prop_def(StringAttr)
    position = prop_def(IntegerAttr.constr(i64))
    reads = var_operand_def()
    names = prop_def(ArrayAttr[StringAttr])
    outputs = var_result_def()

    assembly_format: ClassVar = (
        "$operator `at` $position (`reads` $reads^)? `as` $names attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self, operator: str, position: int, reads: Mapping[str, SSAValue], result_types: Sequence[Attribute]
    ) -> None:
        super().__init__(
            operands=[list(reads.values())],
            properties={
                "operator": StringAttr(operator),
                "position": IntegerAttr(position, i64),
                "names": ArrayAttr([StringAttr(name) for name in reads]),
            },
            result_types=[result_types],
        )

    def verify_(self) -> None:
        if len(self.names) != len(self.reads):
            raise VerifyException(f"{len(self.names)} names for {len(self.reads)} operands")

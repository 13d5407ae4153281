"""The attribute that says which part of a distributed network owns each output of a layer."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import BytesAttr, DenseIntOrFPElementsAttr, IntAttr, IntegerType, TensorType, i32
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

Owners = NDArray[np.int32]


@irdl_attr_definition
class PartitionAttr(ParametrizedAttribute):
    """The part that computes each output of a layer, and what that costs for a batch of one.

    `volume` are the values that parts send to others before the layer, `messages` the pairs of parts that have some to
    send, `most_connections` those of the fullest part.

    ```mlir
    #pebble.partition<2 parts, owners = dense<[0, 0, 1, 1]> : tensor<4xi32>, volume = 3, messages = 2,
      most_connections = 8>
    ```
    """

    name = "pebble.partition"

    part_count: IntAttr
    owners: DenseIntOrFPElementsAttr[IntegerType]
    volume: IntAttr
    messages: IntAttr
    most_connections: IntAttr

    @staticmethod
    def of(part_count: int, owners: Owners, costs: tuple[int, int, int]) -> "PartitionAttr":
        """Return the partition of a layer; costs are (volume, messages, most connections)."""
        data = BytesAttr(np.ascontiguousarray(owners, dtype="<i4").tobytes())
        dense = DenseIntOrFPElementsAttr(TensorType(i32, owners.shape), data)
        return PartitionAttr(IntAttr(part_count), dense, *(IntAttr(cost) for cost in costs))

    @property
    def array(self) -> Owners:
        """The owners: a read-only view."""
        return np.frombuffer(self.owners.data.data, dtype="<i4")

    def verify(self) -> None:
        count = self.part_count.data
        if count < 1:
            raise VerifyException(f"{count} parts, expected 1 or more")
        if self.owners.type.element_type != i32 or len(self.owners.get_shape()) != 1:
            raise VerifyException(f"owners of type {self.owners.type}, expected 32-bit integers of rank 1")
        if len(self.array) != self.owners.get_shape()[0]:
            raise VerifyException(f"{len(self.array)} owners for {self.owners.type}")
        outside = self.array[(self.array < 0) | (self.array >= count)]
        if len(outside):
            raise VerifyException(f"owner {outside[0]}, expected 0 to {count - 1}")
        for word, number in (
            ("volume", self.volume.data),
            ("messages", self.messages.data),
            ("most_connections", self.most_connections.data),
        ):
            if number < 0:
                raise VerifyException(f"{word} {number}, expected 0 or more")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            part_count = IntAttr(parser.parse_integer())
            parser.parse_keyword("parts")
            parser.parse_punctuation(",")
            _parse_word(parser, "owners")
            owners = parser.parse_attribute()
            if not isa(owners, DenseIntOrFPElementsAttr[IntegerType]):
                parser.raise_error("expected dense 32-bit integers")
            costs: list[IntAttr] = []
            for word in ("volume", "messages", "most_connections"):
                parser.parse_punctuation(",")
                _parse_word(parser, word)
                costs.append(IntAttr(parser.parse_integer()))
        return (part_count, owners, *costs)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.part_count.data} parts, owners = ")
            printer.print_attribute(self.owners)
            printer.print_string(f", volume = {self.volume.data}, messages = {self.messages.data}")
            printer.print_string(f", most_connections = {self.most_connections.data}")


def _parse_word(parser: AttrParser, word: str) -> None:
    parser.parse_keyword(word)
    parser.parse_punctuation("=")

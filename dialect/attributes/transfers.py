"""Attributes about the movement of values: what an order of connections transfers, and what every order must.

Counts are for a fast memory of M values; in the batched form of M rows, one value for each column of a batch tile.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

POLICIES = ("min", "lru")
"""The eviction policy of fast memory: the value used again last leaves, or the one not used for longest."""


@irdl_attr_definition
class TransferCountAttr(ParametrizedAttribute):
    """Transfers of one order, and the digest of that order: on any other order the verifier refuses the count.

    ```mlir
    #pebble.transfer_count<memory = 4, policy = min, weight_reads = 3, bias_reads = 2, row_reads = 3, row_writes = 1,
      order = "0f1e2d3c4b5a6978">
    ```
    """

    name = "pebble.transfer_count"
    COUNTS: ClassVar = ("weight_reads", "bias_reads", "row_reads", "row_writes")

    memory: IntAttr
    policy: StringAttr
    weight_reads: IntAttr
    bias_reads: IntAttr
    row_reads: IntAttr
    row_writes: IntAttr
    order: StringAttr

    @staticmethod
    def of(memory: int, policy: str, counts: Sequence[int], order: str) -> "TransferCountAttr":
        """Return the counts of the order whose digest is `order`; `counts` are those that `COUNTS` names."""
        weights, biases, reads, writes = (IntAttr(count) for count in counts)
        return TransferCountAttr(IntAttr(memory), StringAttr(policy), weights, biases, reads, writes, StringAttr(order))

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """The counts that `COUNTS` names."""
        return self.weight_reads.data, self.bias_reads.data, self.row_reads.data, self.row_writes.data

    @property
    def reads(self) -> int:
        """Values read, for a batch of one."""
        return sum(self.counts[:3])

    def verify(self) -> None:
        _verify_memory(self.memory.data, self.policy.data)
        if min(self.counts) < 0:
            raise VerifyException(f"counts {list(self.counts)}, expected none below 0")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            memory = _parse_integer(parser, "memory")
            policy = _parse_word(parser, "policy")
            counts = [_parse_integer(parser, name) for name in cls.COUNTS]
            return (memory, policy, *counts, _parse_text(parser, "order"))

    def print_parameters(self, printer: Printer) -> None:
        numbers: Mapping[str, int] = dict(zip(self.COUNTS, self.counts, strict=True))
        with printer.in_angle_brackets():
            printer.print_string(f"memory = {self.memory.data}, policy = {self.policy.data}, ")
            printer.print_string("".join(f"{name} = {count}, " for name, count in numbers.items()))
            printer.print_string("order = ")
            printer.print_string_literal(self.order.data)


@irdl_attr_definition
class InstanceBoundAttr(ParametrizedAttribute):
    """Fewest transfers of any order, by a certified argument, and those of the pull order under `policy`.

    Values moved for a batch tile of `batch_tile` columns, with a fast memory of `memory` rows.

    ```mlir
    #pebble.instance_bound<memory = 100, batch_tile = 1, policy = min, transfers = 78268 to 113934, by "segments">
    ```
    """

    name = "pebble.instance_bound"

    memory: IntAttr
    batch_tile: IntAttr
    policy: StringAttr
    fewest: IntAttr
    pull: IntAttr
    argument: StringAttr

    @staticmethod
    def of(memory: tuple[int, int, str], transfers: tuple[int, int], argument: str) -> "InstanceBoundAttr":
        """Return the bound for (memory, batch tile, policy); transfers are (fewest, those of the pull order)."""
        size, batch, policy = memory
        fewest, pull = transfers
        numbers = IntAttr(size), IntAttr(batch), StringAttr(policy), IntAttr(fewest), IntAttr(pull)
        return InstanceBoundAttr(*numbers, StringAttr(argument))

    def verify(self) -> None:
        _verify_memory(self.memory.data, self.policy.data)
        if self.batch_tile.data < 1:
            raise VerifyException(f"batch tile {self.batch_tile.data}, expected 1 or more")
        if not 0 <= self.fewest.data <= self.pull.data:
            raise VerifyException(
                f"transfers from {self.fewest.data} to {self.pull.data}, expected 0 <= lower <= upper"
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            memory = _parse_integer(parser, "memory")
            batch = _parse_integer(parser, "batch_tile")
            policy = _parse_word(parser, "policy")
            parser.parse_keyword("transfers")
            parser.parse_punctuation("=")
            fewest = IntAttr(parser.parse_integer())
            parser.parse_keyword("to")
            pull = IntAttr(parser.parse_integer())
            parser.parse_punctuation(",")
            parser.parse_keyword("by")
            return (memory, batch, policy, fewest, pull, StringAttr(parser.parse_str_literal()))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"memory = {self.memory.data}, batch_tile = {self.batch_tile.data}, ")
            printer.print_string(f"policy = {self.policy.data}, ")
            printer.print_string(f"transfers = {self.fewest.data} to {self.pull.data}, by ")
            printer.print_string_literal(self.argument.data)


def _verify_memory(memory: int, policy: str) -> None:
    if memory < 3:
        raise VerifyException(f"memory of {memory} values, a connection needs 3")
    if policy not in POLICIES:
        raise VerifyException(f"unknown policy {policy!r}, accepted are {', '.join(POLICIES)}")


def _parse_name(parser: AttrParser, name: str) -> None:
    parser.parse_keyword(name)
    parser.parse_punctuation("=")


def _parse_integer(parser: AttrParser, name: str) -> IntAttr:
    _parse_name(parser, name)
    value = IntAttr(parser.parse_integer())
    parser.parse_punctuation(",")
    return value


def _parse_word(parser: AttrParser, name: str) -> StringAttr:
    _parse_name(parser, name)
    value = StringAttr(parser.parse_identifier())
    parser.parse_punctuation(",")
    return value


def _parse_text(parser: AttrParser, name: str) -> StringAttr:
    _parse_name(parser, name)
    return StringAttr(parser.parse_str_literal())

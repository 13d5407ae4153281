"""Values of an image network that lie in memory as codes of eight bits, and not as floats.

A value is rounded to codes by the op that yields it, or comes in to be. It is stored as codes where all that reads it
can do with them: quantized convolutions of the same codes, poolings, elementwise work, and what leaves the network.
Elementwise work up to an op that rounds is a chain, whose values are in registers alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llvmlite import ir
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.codes import CodesAttr
from ...dialect.ops.elementwise import ActivateOp, BinaryOp, rounds_to_codes
from ...dialect.ops.images import Pool2dOp, QuantizedConv2dOp, image_shape
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.ops.regions import YieldOp
from ..llvm.values import FLOAT, I32
from .geometry import reads_all


class Stored(NamedTuple):
    """Codes of bytes: the distance of the values of two neighbours, and the code of 0, the least one being 0.

    Those that are found at each call have none of both before.
    """

    scale: float
    zero: int
    is_found: bool = False

    @staticmethod
    def of(codes: CodesAttr) -> "Stored":
        """Return codes that begin at 0."""
        return Stored(codes.scale, codes.unsigned_zero, codes.is_dynamic)

    @property
    def attribute(self) -> CodesAttr:
        """The codes as an attribute."""
        return CodesAttr("u8", self.scale, self.zero)

    @property
    def constants(self) -> tuple[ir.Constant, ir.Constant]:
        """The scale and the zero point as arguments of code."""
        return ir.Constant(FLOAT, self.scale), ir.Constant(I32, self.zero)


@dataclass
class StoredCodes:
    """Values of a network that are stored as codes, and the chains of elementwise work by their last op."""

    codes: dict[SSAValue, Stored] = field(default_factory=dict[SSAValue, Stored])
    chains: dict[Operation, tuple[Operation, ...]] = field(default_factory=dict[Operation, tuple[Operation, ...]])

    @staticmethod
    def of(arguments: Sequence[SSAValue], ops: Sequence[Operation]) -> "StoredCodes":
        """Return what of a network, given by its arguments and ops, is stored so."""
        return _Finding(arguments, ops).found()

    @property
    def inner(self) -> set[SSAValue]:
        """The values within chains, which are not stored at all."""
        return {op.results[0] for chain in self.chains.values() for op in chain[:-1]}


@dataclass
class _Finding:
    arguments: Sequence[SSAValue]
    ops: Sequence[Operation]
    rounded: dict[SSAValue, Stored] = field(default_factory=dict[SSAValue, Stored])
    """The codes that values are rounded to, however they are stored."""

    def found(self) -> StoredCodes:
        """Return the values that are stored as codes, and the chains."""
        for value in self.arguments:
            entering = {_codes_read(use.operation) for use in value.uses}
            (codes,) = entering if len(entering) == 1 else (None,)
            self._note(value, codes)
        for op in self.ops:
            for result in op.results:
                self._note(result, self._codes_made(op))
        stored = dict(self.rounded)
        while refused := [value for value in stored if not self._may_stay(value, stored)]:
            for value in refused:
                del stored[value]
        found = (self._chain(op) for op in self.ops if rounds_to_codes(op) and op.results[0] in stored)
        chains: dict[Operation, tuple[Operation, ...]] = {chain[-1]: chain for chain in found}
        for last in list(chains):
            _join_with_operand(last, chains, stored)
        return StoredCodes(stored, chains)

    def _note(self, value: SSAValue, codes: Stored | None) -> None:
        if codes is not None:
            self.rounded[value] = codes

    def _codes_made(self, op: Operation) -> Stored | None:
        """Return the codes to which an op rounds its results, or its operands were, None for none."""
        match op:
            case QuantizedConv2dOp():
                return None if op.output is None else Stored.of(op.output)
            case ActivateOp():
                return _codes_read(op)
            case Pool2dOp() if _takes_largest(op):
                return self.rounded.get(op.x)
            case SplitOp():
                return self.rounded.get(op.x)
            case ConcatOp():
                parts = {self.rounded.get(part) for part in op.parts}
                return next(iter(parts)) if len(parts) == 1 else None
            case _:
                return None

    def _may_stay(self, value: SSAValue, stored: dict[SSAValue, Stored]) -> bool:
        """Return whether all ops that read a value, and the one that yields it, can do with codes."""
        op = value.owner
        if isinstance(op, Pool2dOp | ConcatOp | SplitOp) and not all(operand in stored for operand in op.operands):
            return False
        return all(self._can_read(use.operation, value, stored) for use in value.uses)

    def _can_read(self, op: Operation, value: SSAValue, stored: dict[SSAValue, Stored]) -> bool:
        """Return whether an op can do with codes, given what is stored as codes."""
        match op:
            case QuantizedConv2dOp():
                return _codes_read(op) == stored[value]
            case Pool2dOp():
                return _takes_largest(op) or (reads_all(op) and op.kind.data != "max")
            case ActivateOp() | BinaryOp():
                ends = [last for last in self.ops if rounds_to_codes(last) and op in self._chain(last)]
                return any(last.results[0] in stored for last in ends)
            case ConcatOp() | SplitOp():
                return all(result in stored for result in op.results)
            case YieldOp():
                return True
            case _:
                return False

    def _chain(self, last: Operation) -> tuple[Operation, ...]:
        """Return the ops of elementwise work up to one that rounds, each of which reads the one before."""
        chain = [last]
        while isinstance(chain[0], ActivateOp):
            before = chain[0].x.owner
            if not isinstance(before, ActivateOp | BinaryOp) or not chain[0].x.has_one_use():
                break
            # what is rounded in between is rounded again: one of them is enough only where both are the same
            if rounds_to_codes(before):
                break
            chain.insert(0, before)
        return tuple(chain)


def _join_with_operand(
    last: Operation, chains: dict[Operation, tuple[Operation, ...]], stored: dict[SSAValue, Stored]
) -> None:
    """Put the chain before a sum or a product, both operands of which are made of the same codes, in front of it."""
    first = chains[last][0]
    if not isinstance(first, BinaryOp):
        return
    for operand, other in (first.operands, reversed(first.operands)):
        before = chains.get(operand.owner) if isinstance(operand.owner, Operation) else None
        if before is not None and operand.has_one_use() and source_of(before, stored) is other:
            chains[last] = (*chains.pop(before[-1]), *chains[last])
            del stored[operand]
            return


def source_of(chain: Sequence[Operation], stored: Mapping[SSAValue, Stored]) -> SSAValue | None:
    """Return the value of whose codes, given before a call, a chain makes others alone; None where there is none."""
    made = {op.results[0] for op in chain}
    (source, *others) = {operand for op in chain for operand in op.operands} - made
    is_known = source in stored and not stored[source].is_found
    return source if not others and is_known and source.type == chain[-1].results[0].type else None


def _codes_read(op: Operation) -> Stored | None:
    """Return the codes to which an op rounds what it reads."""
    match op:
        case QuantizedConv2dOp():
            return Stored.of(op.codes)
        case ActivateOp() if rounds_to_codes(op):
            scale, zero = op.activation.values
            return Stored(scale, int(zero))
        case _:
            return None


def _takes_largest(op: Pool2dOp) -> bool:
    """Return whether each result is the largest of a window that has a pixel in it."""
    rows, columns = op.window.dilations
    return op.kind.data == "max" and rows == columns == 1 and not reads_all(op) and 0 not in image_shape(op.x)

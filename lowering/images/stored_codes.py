"""Values of an image network that lie in memory as codes, and not as floats.

Codes are integers of eight bits that stand for values: value = scale * (code - zero). A value is rounded to codes by
the op that yields it, or comes in to be. It is stored as codes, with floats of these in its place, where all that reads
it can do with them: convolutions on these codes, poolings, elementwise work, and what leaves the network.
Elementwise work up to an op that rounds is a chain, whose values are in registers alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llvmlite import ir
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.codes import CodesAttr, codes_in
from ...dialect.ops.elementwise import ActivateOp, BinaryOp, ConvertOp, rounds_to_codes
from ...dialect.ops.images import Conv2dOp, Pool2dOp, is_largest_of_pixels
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.ops.regions import YieldOp
from ...dialect.tensors import shape_of
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
    same: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Codes and the floats of these codes are stored as one value: value -> the value that is stored for it."""

    @staticmethod
    def of(arguments: Sequence[SSAValue], ops: Sequence[Operation]) -> "StoredCodes":
        """Return what of a network, given by its arguments and ops, is stored so."""
        left = list(arguments)
        while True:
            finding = _Finding(left, arguments, ops)
            found = finding.found()
            # what comes as floats and stays so is not rounded on its way in
            refused = [value for value in left if value in finding.rounded and value not in found.codes]
            if not refused:
                return found
            left = [value for value in left if value not in refused]

    def place(self, value: SSAValue) -> SSAValue:
        """Return the value that one is stored as."""
        return self.same.get(value, value)

    @property
    def inner(self) -> set[SSAValue]:
        """The values within chains, which are not stored at all."""
        return {op.results[0] for chain in self.chains.values() for op in chain[:-1]}

    def source_of(self, chain: Sequence[Operation]) -> SSAValue | None:
        """Return the value of whose codes, given before a call, a chain makes others alone; None where none is."""
        made = {op.results[0] for op in chain}
        (source, *others) = {self.place(operand) for op in chain for operand in op.operands} - made
        is_known = source in self.codes and not self.codes[source].is_found
        return source if not others and is_known and shape_of(source) == shape_of(chain[-1].results[0]) else None


@dataclass
class _Finding:
    rounding: Sequence[SSAValue]
    """Arguments that may be rounded on their way in."""
    arguments: Sequence[SSAValue]
    ops: Sequence[Operation]
    rounded: dict[SSAValue, Stored] = field(default_factory=dict[SSAValue, Stored])
    """The codes that values are rounded to, however they are stored."""
    stored: StoredCodes = field(default_factory=StoredCodes)

    def found(self) -> StoredCodes:
        """Return the values that are stored as codes, and the chains."""
        for value in self.rounding:
            entering = {_codes_read(use.operation) for use in value.uses}
            (codes,) = entering if len(entering) == 1 else (None,)
            self._note(value, codes)
        for op in self.ops:
            self._round(op)
        codes, same = self.stored.codes, self.stored.same
        codes |= self.rounded
        while refused := [value for value in codes if not self._may_stay(value)]:
            for value in refused:
                del codes[value]
        found = (self._chain(op) for op in self.ops if rounds_to_codes(op) and op.results[0] in codes)
        self.stored.chains |= {chain[-1]: chain for chain in found}
        for last in list(self.stored.chains):
            self._join_with_operand(last)
        codes |= {other: codes[value] for other, value in same.items() if value in codes}
        return self.stored

    def _round(self, op: Operation) -> None:
        """Note the codes that the results of an op have."""
        if isinstance(op, ConvertOp):
            place = self.stored.place(op.x)
            if not op.rounds or self.rounded.get(place) == Stored.of(op.codes):
                self.stored.same[op.result] = place
                return
        for result in op.results:
            self._note(result, self._codes_made(op))

    def _note(self, value: SSAValue, codes: Stored | None) -> None:
        if codes is not None:
            self.rounded[value] = codes

    def _codes_made(self, op: Operation) -> Stored | None:
        """Return the codes to which an op rounds its results, or its operands were, None for none."""
        match op:
            case Conv2dOp():
                codes = codes_in(op.result.type)
                return None if codes is None else Stored.of(codes)
            case ActivateOp() | ConvertOp():
                return _codes_read(op)
            case Pool2dOp() if is_largest_of_pixels(op):
                return self._codes_of(op.x)
            case SplitOp():
                return self._codes_of(op.x)
            case ConcatOp():
                parts = {self._codes_of(part) for part in op.parts}
                return next(iter(parts)) if len(parts) == 1 else None
            case _:
                return None

    def _codes_of(self, value: SSAValue) -> Stored | None:
        return self.rounded.get(self.stored.place(value))

    def _readers(self, value: SSAValue) -> list[Operation]:
        """Return the ops that read a value, or what is stored as the same."""
        same = [value, *(other for other, place in self.stored.same.items() if place is value)]
        uses = (use.operation for one in same for use in one.uses)
        return [op for op in uses if not (op.results and op.results[0] in self.stored.same)]

    def _may_stay(self, value: SSAValue) -> bool:
        """Return whether all ops that read a value, and the one that yields it, can do with codes."""
        op, codes = value.owner, self.stored.codes
        if isinstance(op, Pool2dOp | ConcatOp | SplitOp) and not all(
            self.stored.place(operand) in codes for operand in op.operands
        ):
            return False
        return all(self._can_read(reader, value) for reader in self._readers(value))

    def _can_read(self, op: Operation, value: SSAValue) -> bool:
        """Return whether an op can do with the codes of a value, given what is stored as codes."""
        codes = self.stored.codes
        match op:
            case Conv2dOp():
                return _codes_read(op) == codes[value]
            case Pool2dOp():
                return is_largest_of_pixels(op) or (reads_all(op) and op.kind.data != "max")
            case ActivateOp() | ConvertOp() | BinaryOp():
                ends = (last for last in self.ops if rounds_to_codes(last) and last.results[0] in codes)
                return any(op in self._chain(last) for last in ends)
            case ConcatOp() | SplitOp():
                return all(result in codes for result in op.results)
            case YieldOp():
                return True
            case _:
                return False

    def _chain(self, last: Operation) -> tuple[Operation, ...]:
        """Return the ops of elementwise work up to one that rounds, each of which reads the one before."""
        chain = [last]
        while isinstance(first := chain[0], ActivateOp | ConvertOp):
            before = first.x.owner
            if not isinstance(before, ActivateOp | BinaryOp) or not first.x.has_one_use():
                break
            # what is rounded in between is rounded again: one of them is enough only where both are the same
            if rounds_to_codes(before):
                break
            chain.insert(0, before)
        return tuple(chain)

    def _join_with_operand(self, last: Operation) -> None:
        """Put the chain before a sum or product, both operands of which are made of the same codes, in front of it."""
        chains = self.stored.chains
        first = chains[last][0]
        if not isinstance(first, BinaryOp):
            return
        for operand, other in (first.operands, reversed(first.operands)):
            place = self.stored.place(operand)
            before = chains.get(place.owner) if isinstance(place.owner, Operation) else None
            alone = before is not None and len(self._readers(place)) == 1
            if before is not None and alone and self.stored.source_of(before) is self.stored.place(other):
                chains[last] = (*chains.pop(before[-1]), *chains[last])
                del self.stored.codes[place]
                return


def _codes_read(op: Operation) -> Stored | None:
    """Return the codes to which an op rounds what it reads, or of which it reads codes."""
    match op:
        case Conv2dOp():
            return None if op.codes is None else Stored.of(op.codes)
        case ConvertOp() if op.rounds:
            return Stored.of(op.codes)
        case ActivateOp() if rounds_to_codes(op):
            scale, zero = op.activation.values
            return Stored(scale, int(zero))
        case _:
            return None

"""Axis maps: which axes of an op's operands and results are the same, and which it sums over or needs as a whole.

A map gives every axis of every value a name, as einsum does: with `"...k, kn, n -> ...n"` an op reads a matrix whose
rows are the last axis of its first operand, and whose columns are that of its result; the axes before are the same in
both. An axis that no result has is summed, in any order. Analyses and passes ask the map, so that a new op is known to
all of them by its map alone; the shapes of a `PatternOp`, and what it refuses, follow from its pattern. Compare the
indexing maps of MLIR's linalg and the sharding rules of Shardy.
"""

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import NamedTuple, TypeVar, cast

from typing_extensions import override
from xdsl.dialects.builtin import DenseArrayBase, IntegerType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.irdl.operations import BaseAttrAccessor, VarIRConstruct
from xdsl.traits import OpTrait
from xdsl.utils.exceptions import VerifyException

from ..tensors import DYNAMIC, F32Tensor, Shape, f32_tensor, rank_of, shape_of, shape_text

Axes = tuple[str, ...]
"""The names of a value's axes."""

LEADING = "..."
"""Ellipsis of a pattern: all other axes, aligned at the last one and broadcast as numpy does."""


class Join(NamedTuple):
    """An axis that holds others one after the other."""

    whole: str
    parts: Axes


@dataclass(frozen=True)
class AxisMap:
    """The names of the axes of all operands and results of one op."""

    operands: tuple[Axes, ...]
    results: tuple[Axes, ...]
    whole: frozenset[str] = frozenset()
    """Axes of which every index of the result depends on all indices of the operand, in any order: softmax."""
    fixed: frozenset[str] = frozenset()
    """Axes whose indices mean something to the op, so that they cannot be permuted."""
    join: Join | None = None
    parameters: frozenset[int] = frozenset()
    """Operands without batch axes: weights, and what has an entry a feature."""

    @classmethod
    def in_order(
        cls,
        operands: Sequence[Axes],
        results: Sequence[Axes],
        samples: str,
        parameters: frozenset[int] = frozenset(),
    ) -> "AxisMap":
        """Return the map of an op that keeps samples apart, and relies on the order of all axes but theirs."""
        names = frozenset(chain.from_iterable((*operands, *results)))
        return cls(tuple(operands), tuple(results), fixed=names - {samples}, parameters=parameters)

    @property
    def summed(self) -> frozenset[str]:
        """Axes that no result has: the op sums over them, in any order."""
        read = set(chain.from_iterable(self.operands)) - set(chain.from_iterable(self.results))
        joined = (self.join.whole, *self.join.parts) if self.join is not None else ()
        return frozenset(read - self.fixed - set(joined))

    @property
    def reduces(self) -> bool:
        """Whether a value of the result depends on many values of an operand."""
        return bool(self.whole or self.summed)

    @property
    def keeps_features(self) -> bool:
        """Whether every operand has the features of the result, in the same order."""
        return not (self.summed or self.fixed or self.join is not None)

    @property
    def is_elementwise(self) -> bool:
        """Whether a value of the result depends on the value at the same place of each operand."""
        (result,) = self.results if len(self.results) == 1 else ((),)
        aligned = all(axes == result[len(result) - len(axes) :] for axes in self.operands)
        return aligned and self.keeps_features and not self.whole


class HasAxisMap(OpTrait, ABC):
    """An op with an axis map."""

    @abstractmethod
    def axis_map(self, op: Operation) -> AxisMap:
        """Return the map for the ranks and attributes of `op`."""

    def pattern_for(self, _: Operation, /) -> "AxisPattern | None":
        """Return the pattern that states the shapes of an op; None where none does."""
        return None


class RowWise(OpTrait):
    """An op that runs in tiles wherever its map allows: each row, all axes but the last, from the same row of operands.

    What has the axes `join` of its map along `axis` there has it along the last one of two.
    """


class RowMajor(OpTrait):
    """An op that runs outside of tiles, too, on row-major buffers."""


@dataclass(frozen=True)
class AxisPattern(HasAxisMap):
    """A map for any rank: `AxisPattern("...k, kn, n -> ...n")`; operands that are left out are the last ones.

    `whole` names the axes that the op needs as a whole, `known` those whose sizes the types of all operands state. An
    axis of the results alone has size 1.
    """

    pattern: str
    whole: str = ""
    known: str = ""

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        return _map_of_ranks(self, tuple(map(rank_of, op.operands)), tuple(map(rank_of, op.results)))

    @override
    def pattern_for(self, _: Operation, /) -> "AxisPattern":
        return self


@dataclass(frozen=True)
class FixedAxes(HasAxisMap):
    """A map as `AxisPattern` has it, whose `fixed` axes have numbers or an order that the op relies on.

    No operand is a parameter: all may be computed in a call.
    """

    pattern: str
    fixed: str
    known: str = ""

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        found = AxisPattern(self.pattern).axis_map(op)
        return AxisMap(found.operands, found.results, fixed=frozenset(self.fixed))

    @override
    def pattern_for(self, _: Operation, /) -> AxisPattern:
        return AxisPattern(self.pattern, known=self.known)


@dataclass(frozen=True)
class MixedFeatures(HasAxisMap):
    """The map of a network that runs row by row: its features, the last axes, have an order that the op relies on.

    The first `inputs` operands are data, all others parameters; -1 stands for all.
    """

    inputs: int = -1

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        count = self.inputs if self.inputs >= 0 else len(op.operands)
        data = [_named((LEADING, f"in{index}"), rank_of(value)) for index, value in enumerate(op.operands[:count])]
        parameters = [own_axes(value, f"p{index}.") for index, value in enumerate(op.operands[count:])]
        results = [_named((LEADING, f"out{index}"), rank_of(value)) for index, value in enumerate(op.results)]
        fixed = frozenset(chain((axes[-1] for axes in (*data, *results) if axes), *parameters))
        return AxisMap(
            (*data, *parameters),
            tuple(results),
            fixed=fixed,
            parameters=frozenset(range(count, len(op.operands))),
        )


def axis_map_of(op: Operation) -> AxisMap | None:
    """Return the map of an op; None where it has none, and only the op itself knows what it reads."""
    trait = _trait_of(type(op))
    return None if trait is None else trait.axis_map(op)


@cache
def _trait_of(kind: type[Operation]) -> HasAxisMap | None:
    return kind.get_trait(HasAxisMap)


class PatternOp(IRDLOperation):
    """An op of one result whose shapes a pattern states; optional operands are the last ones."""

    def verify_(self) -> None:
        trait = _trait_of(type(self))
        pattern = None if trait is None else trait.pattern_for(self)
        assert pattern is not None
        found, expected = shape_of(self.results[0]), result_shape(type(self), pattern, self.operands)
        if found != expected:
            raise VerifyException(f"expected result {shape_text(expected)}, got {shape_text(found)}")


Kind = TypeVar("Kind", bound=type[IRDLOperation])


def with_quick_operands(kind: Kind) -> Kind:
    """Return a class of ops whose operands, of which several are optional, are found in 1 us instead of 8.

    xDSL decodes the sizes of all operands anew at each access; there are few different ones.
    """
    for name, accessor in list(vars(kind).items()):
        if isinstance(accessor, BaseAttrAccessor) and accessor.construct is VarIRConstruct.OPERAND:
            setattr(kind, name, _Operand(accessor))
    return kind


class _Operand:
    """Access to an operand of an op, as xDSL's finds it."""

    def __init__(self, accessor: BaseAttrAccessor) -> None:
        self._index: Callable[[tuple[int, ...], Sequence[int]], int | Sequence[int] | None] = accessor.index
        self._sizes = accessor.option.attribute_name
        self._places = dict[bytes, int | slice | None]()
        """The place among all operands by the numbers of operands of each kind."""

    def __get__(self, op: Operation, kind: type[Operation] | None = None) -> object:
        sizes = cast("DenseArrayBase[IntegerType]", op.properties[self._sizes]).data.data
        try:
            place = self._places[sizes]
        except KeyError:
            place = self._places[sizes] = self._place(struct.unpack(f"<{len(sizes) // 4}i", sizes))
        return None if place is None else op.operands[place]

    def _place(self, sizes: tuple[int, ...]) -> int | slice | None:
        found = self._index(sizes, range(sum(sizes)))
        return slice(found.start, found.stop) if isinstance(found, range) else cast("int | None", found)


def result_type(kind: type[PatternOp], *operands: SSAValue | None) -> F32Tensor:
    """Return the type of the result of an op of a kind whose pattern is always the same; None: operands left out.

    Raises:
        VerifyException: the operands do not fit.
    """
    pattern = kind.get_trait(AxisPattern) or kind.get_trait(FixedAxes)
    assert pattern is not None
    given = [operand for operand in operands if operand is not None]
    return f32_tensor(result_shape(kind, AxisPattern(pattern.pattern, known=pattern.known), given))


def result_shape(kind: type[PatternOp], pattern: AxisPattern, operands: Sequence[SSAValue]) -> Shape:
    """Return the shape that a pattern gives the result for operands; of an unknown size and a known one, the latter.

    Raises:
        VerifyException: the operands do not fit.
    """
    names = tuple(name for name, _ in kind.get_irdl_definition().operands)
    return _shape_by(pattern, names, tuple(map(shape_of, operands)))


def _fits(size: int, expected: int, is_exact: bool) -> bool:
    return size == expected or (size == DYNAMIC and not is_exact)


@lru_cache(maxsize=1024)
def _shape_by(pattern: AxisPattern, names: tuple[str, ...], operands: tuple[Shape, ...]) -> Shape:
    read, (written,) = _sides(pattern.pattern)
    sizes, leading = dict[str, int](), -1
    # operands with more axes of their own say what others have to fit: a weight, what its input has
    for index in sorted(range(len(operands)), key=lambda index: -sum(name != LEADING for name in read[index])):
        name, word, shape = names[index], read[index], operands[index]
        least, is_open = len(word) - (LEADING in word), LEADING in word and leading < 0
        rank = least + (leading if LEADING in word and not is_open else 0)
        if len(shape) < rank or (len(shape) > rank and not is_open):
            more = " or more" if is_open else ""
            raise VerifyException(f"expected {name} of rank {rank}{more}, got {shape_text(shape)}")
        leading = len(shape) - least if LEADING in word else leading
        axes = _named(word, len(shape))
        known = [sizes.get(axis, DYNAMIC) for axis in axes]
        fitting = tuple(here if size == DYNAMIC else size for here, size in zip(shape, known, strict=True))
        exact = [axis in pattern.known for axis in axes]
        if not all(map(_fits, shape, fitting, exact)):
            raise VerifyException(f"expected {name} {shape_text(fitting)}, got {shape_text(shape)}")
        unknown = [axis for axis, strict in enumerate(exact) if strict and shape[axis] == DYNAMIC]
        if unknown:
            raise VerifyException(f"expected {name} with a known size of axis {unknown[0]}, got {shape_text(shape)}")
        sizes.update(zip(axes, fitting, strict=True))
    rank = len(written) + (leading - 1 if LEADING in written else 0)
    return tuple(sizes.get(axis, 1) for axis in _named(written, rank))


def own_axes(value: SSAValue, prefix: str) -> Axes:
    """Return a name of its own for every axis of a value."""
    return tuple(f"{prefix}{axis}" for axis in range(rank_of(value)))


@cache
def _sides(pattern: str) -> tuple[Sequence[Axes], Sequence[Axes]]:
    """Return the words of a pattern: those of operands, and those of results."""
    read, written = (
        [tuple(re.findall(r"\.\.\.|\w", word)) for word in side.split(",")] for side in pattern.split("->")
    )
    return read, written


@cache
def _map_of_ranks(pattern: AxisPattern, operands: tuple[int, ...], results: tuple[int, ...]) -> AxisMap:
    """Return the map for operands and results of these ranks."""
    read, written = _sides(pattern.pattern)
    return AxisMap(
        tuple(_named(word, rank) for word, rank in zip(read, operands, strict=False)),
        tuple(_named(word, rank) for word, rank in zip(written, results, strict=True)),
        frozenset(pattern.whole),
        parameters=frozenset(index for index, word in enumerate(read) if LEADING not in word),
    )


def _named(word: Sequence[str], rank: int) -> Axes:
    """Return the names of a value's axes; those that `LEADING` stands for are counted from the last one."""
    leading = range(rank - len(word) + 1, 0, -1)
    names = chain.from_iterable(
        (f"{LEADING}{axis}" for axis in leading) if name == LEADING else (name,) for name in word
    )
    return tuple(names)[:rank]

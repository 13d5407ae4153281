"""Sizes of values that are known while the graph is read, in the dialect's symbolic sizes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from xdsl.ir import Operation, SSAValue

from ...dialect.ops.movement import INFERRED, TargetShapeAttr, copied
from ...dialect.shape_inference import result_shapes
from ...dialect.symbolic_sizes import ONE, Size, SymbolicShape
from ...dialect.tensors import DYNAMIC, shape_of

KNOWN_SIZE: Final = "known size"
"""Words of messages for the size that a node expects of an axis whose size calls choose."""


def extent_of(size: Size) -> int:
    """Return the size as an extent of a tensor type: its number, or `DYNAMIC`."""
    return DYNAMIC if size.constant is None else size.constant


def is_known(size: Size) -> bool:
    """Return whether the size is the same number in every call."""
    return size.constant is not None


def exact_quotient(whole: Size, part: Size) -> Size | None:
    """Return whole / part where that is a whole number whatever the symbols stand for, else None."""
    if part.coefficient == 0:
        return None
    size = whole / part
    exact = size.coefficient.denominator == 1 and all(power > 0 for _, power in size.powers)
    return size if exact else None


def shape_words(sizes: Sequence[Size]) -> str:
    """Return the sizes as a person writes a shape: `batch x 64`."""
    return " x ".join(map(str, sizes)) or "scalar"


def broadcast_sizes(left: SymbolicShape, right: SymbolicShape) -> SymbolicShape | None:
    """Return numpy's broadcast of two shapes, or None where it is not certain for every value of the symbols."""
    rank = max(len(left), len(right))
    padded = zip((ONE,) * (rank - len(left)) + left, (ONE,) * (rank - len(right)) + right, strict=True)
    sizes: list[Size] = []
    for first, second in padded:
        if first not in (second, ONE) and second != ONE:
            return None
        sizes.append(second if first == ONE else first)
    return tuple(sizes)


def target_of(source: SymbolicShape, result: SymbolicShape) -> TargetShapeAttr | None:
    """Return the reshape target that makes `result` of `source`, None where several axes would be left over."""
    entries: list[int] = []
    free = set(range(len(source)))
    for axis, size in enumerate(result):
        match = next((index for index in (axis, *sorted(free)) if index in free and source[index] == size), None)
        if size.constant is not None:
            entries.append(size.constant)
        elif match is None:
            entries.append(INFERRED)
        else:
            free.discard(match)
            entries.append(copied(match))
    return TargetShapeAttr(entries) if entries.count(INFERRED) <= 1 else None


class SizeTable(Mapping[SSAValue, SymbolicShape]):
    """The sizes of the f32 tensors of the IR: declared for what comes from outside, worked out for what ops yield."""

    def __init__(self) -> None:
        self._sizes: dict[SSAValue, SymbolicShape] = {}
        self._fresh = 0

    def fresh(self) -> Size:
        """Return a size of which nothing is known."""
        self._fresh += 1
        return Size.symbol(f"?{self._fresh}")

    def declare(self, value: SSAValue, sizes: SymbolicShape) -> None:
        """Record the sizes of an argument, or of what a foreign op yields."""
        self._sizes[value] = sizes

    def __getitem__(self, value: SSAValue) -> SymbolicShape:
        if value not in self._sizes:
            if not isinstance(value.owner, Operation):
                raise KeyError(value)
            for result, sizes in zip(value.owner.results, result_shapes(value.owner, self), strict=True):
                extents = zip(shape_of(result), sizes, strict=True)
                # a type may know a number where the symbols do not
                self._sizes[result] = tuple(s if extent == DYNAMIC else Size.known(extent) for extent, s in extents)
        return self._sizes[value]

    def __iter__(self) -> Iterator[SSAValue]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

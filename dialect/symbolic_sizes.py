"""Sizes that only a call knows: every dimension of every value as a product of the inputs' symbolic sizes.

A size is a monomial such as `4*batch*sequence`, as reshapes multiply and divide sizes. Where values of unknown sizes
are joined, their sum is a symbol of its own, whose name lists the addends. The number of windows of a row is one, too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import NamedTuple

NAME = "pebble.name"
DIMS = "pebble.dims"


@dataclass(frozen=True)
class Size:
    """`coefficient` times the symbols to their powers; symbols are sorted and their powers are not zero."""

    coefficient: Fraction
    powers: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def known(value: int) -> "Size":
        """Return the size that is `value` in every call."""
        return Size(Fraction(value))

    @staticmethod
    def symbol(name: str) -> "Size":
        """Return the size that the call knows as `name`."""
        return Size(Fraction(1), ((name, 1),))

    @property
    def constant(self) -> int | None:
        """The size where it is the same in every call, else None."""
        return None if self.powers else int(self.coefficient)

    def __mul__(self, other: "Size") -> "Size":
        return self._combined(other, 1)

    def __truediv__(self, other: "Size") -> "Size":
        return self._combined(other, -1)

    def _combined(self, other: "Size", sign: int) -> "Size":
        powers = dict(self.powers)
        for name, power in other.powers:
            powers[name] = powers.get(name, 0) + sign * power
        coefficient = self.coefficient * other.coefficient**sign
        return Size(coefficient, tuple(sorted((name, power) for name, power in powers.items() if power)))

    def evaluate(self, symbols: Mapping[str, int]) -> int:
        """Return the size in a call.

        Raises:
            ValueError: the result is no whole number.
        """
        known = {name: _symbol_value(name, symbols) for name, _ in self.powers}
        if any(known[name] == 0 and power < 0 for name, power in self.powers):
            return 0
        value = self.coefficient * prod(Fraction(known[name]) ** power for name, power in self.powers)
        if value.denominator != 1:
            raise ValueError(f"size {self}: expected a whole number, got {value}")
        return int(value)

    def __str__(self) -> str:
        names = [(_words(name), power) for name, power in self.powers]
        words = [f"{name}^{power}" if power != 1 else name for name, power in names]
        return "*".join([str(self.coefficient), *words] if self.coefficient != 1 or not words else words)


ONE = Size.known(1)

SUM = "sum of "
"""The beginning of the name of a symbol that stands for a sum."""

LONGEST_SUM = 2000


def sum_of(parts: Sequence[Size]) -> Size:
    """Return the sum of sizes: of multiples of one product a multiple of it, of others a symbol that stands for it.

    Raises:
        VerifyException: the sum would have a name of more than `LONGEST_SUM` letters.
    """
    totals: dict[tuple[tuple[str, int], ...], Fraction] = {}
    for part in parts:
        only = part.powers[0] if len(part.powers) == 1 else ("", 0)
        # a sum of sums is one sum
        for size in parts_of_sum(only[0]) if only[1] == 1 else ():
            totals[size.powers] = totals.get(size.powers, Fraction(0)) + part.coefficient * size.coefficient
        if only[1] != 1 or not parts_of_sum(only[0]):
            totals[part.powers] = totals.get(part.powers, Fraction(0)) + part.coefficient
    if len(totals) == 1:
        ((powers, coefficient),) = totals.items()
        return Size(coefficient, powers)
    name = SUM + json.dumps([[str(coefficient), powers] for powers, coefficient in totals.items() if coefficient])
    if len(name) > LONGEST_SUM:
        # loaded here, as calls of compiled networks need sizes and no IR
        from xdsl.utils.exceptions import VerifyException

        raise VerifyException(f"expected a single size, got a sum of {len(totals)}")
    return Size.symbol(name)


def parts_of_sum(name: str) -> tuple[Size, ...]:
    """Return the sizes whose sum a symbol stands for; none of any other symbol."""
    if not name.startswith(SUM):
        return ()
    entries: list[tuple[str, list[tuple[str, int]]]]
    try:
        entries = json.loads(name.removeprefix(SUM))
        return tuple(
            Size(Fraction(number), tuple((name, power) for name, power in powers)) for number, powers in entries
        )
    except (ValueError, TypeError, ArithmeticError):
        return ()


WINDOWS = "windows of "
"""The beginning of the name of a symbol that stands for the windows of a row, which say how many results it has."""


class Windows(NamedTuple):
    """A number of windows: (size + added) / step rounded down, where `size` is a symbol; not below `fewest`."""

    size: str
    added: int
    step: int
    fewest: int = 0

    @staticmethod
    def of(name: str) -> "Windows | None":
        """Return the windows that a symbol stands for; None of any other one."""
        if not name.startswith(WINDOWS):
            return None
        try:
            size, added, step, fewest = json.loads(name.removeprefix(WINDOWS))
            return Windows(str(size), int(added), int(step), int(fewest))
        except (ValueError, TypeError):
            return None


def has_windows(size: Size) -> bool:
    """Return whether the windows of a row of that length can be counted: it is a number, or one size of an input."""
    ((name, power),) = size.powers if len(size.powers) == 1 else (("", 0),)
    return size.constant is not None or (size.coefficient == 1 and power == 1 and not name.startswith(SUM))


def windows_of(size: Size, added: int, step: int, fewest: int = 0) -> Size:
    """Return (size + added) / step rounded down, not below `fewest`; windows of windows are larger ones.

    Raises:
        VerifyException: `size` has none, see `has_windows`.
    """
    if size.constant is not None:
        return Size.known(max(fewest, (size.constant + added) // step))
    if not has_windows(size):
        # loaded here, as calls of compiled networks need sizes and no IR
        from xdsl.utils.exceptions import VerifyException

        raise VerifyException(f"expected a row whose length is a size of an input, got {size}")
    ((name, _),) = size.powers
    inner = Windows.of(name)
    if inner is None or inner.fewest:
        inner = Windows(name, 0, 1)
    whole = Windows(inner.size, inner.added + added * inner.step, inner.step * step, fewest)
    return Size.symbol(inner.size if whole[1:] == (0, 1, 0) else WINDOWS + json.dumps(whole))


def row_of(size: Size) -> Size:
    """Return the size of the row whose windows a size counts, itself where it counts none."""
    windows = Windows.of(size.powers[0][0]) if len(size.powers) == 1 else None
    return size if windows is None else row_of(Size.symbol(windows.size))


def computed_of(name: str) -> list[str]:
    """Return a symbol that is computed from other sizes, after the computed symbols that it reads; else none."""
    windows = Windows.of(name)
    if windows is not None:
        return [*computed_of(windows.size), name]
    return [name] if parts_of_sum(name) else []


def _symbol_value(name: str, symbols: Mapping[str, int]) -> int:
    windows = None if name in symbols else Windows.of(name)
    if windows is not None:
        return max(windows.fewest, (_symbol_value(windows.size, symbols) + windows.added) // windows.step)
    parts = () if name in symbols else parts_of_sum(name)
    return sum(size.evaluate(symbols) for size in parts) if parts else symbols[name]


def _words(name: str) -> str:
    """Return a symbol as a person writes it."""
    parts, windows = parts_of_sum(name), Windows.of(name)
    if windows is not None:
        return f"(({_words(windows.size)} + {windows.added}) / {windows.step})"
    return f"({' + '.join(map(str, parts))})" if parts else name


SymbolicShape = tuple[Size, ...]


def bind_symbols(expected: Mapping[str, SymbolicShape], shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """Return the value of every symbol, given the expected shapes of inputs by name and those that a call has.

    Raises:
        ValueError: a shape does not fit; the message names the input, the size and what is expected.
    """
    symbols: dict[str, int] = {}
    for (name, sizes), shape in zip(expected.items(), shapes, strict=True):
        if len(shape) != len(sizes):
            text = ", ".join(map(str, sizes))
            raise ValueError(f"input {name!r}: expected shape [{text}], got {shape}")
        for axis, (size, value) in enumerate(zip(sizes, shape, strict=True)):
            known = size.constant if size.constant is not None else symbols.setdefault(str(size), value)
            if known != value:
                raise ValueError(f"input {name!r}: expected size {known} along axis {axis}, got {value}")
    return symbols


def product(sizes: Sequence[Size]) -> Size:
    """Return the product of sizes, 1 for none."""
    return prod(sizes, start=Size.known(1))


def broadcast(left: SymbolicShape, right: SymbolicShape) -> SymbolicShape:
    """Return numpy's broadcast; of two sizes not known to be equal, the one that is a number wins, then the left."""
    rank = max(len(left), len(right))
    one = Size.known(1)
    padded = zip((one,) * (rank - len(left)) + left, (one,) * (rank - len(right)) + right, strict=True)
    return tuple(
        second if first == one or (first.constant is None and second.constant not in (1, None)) else first
        for first, second in padded
    )

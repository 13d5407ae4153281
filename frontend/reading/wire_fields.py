"""Messages of protobuf where they lie: what is passed over is never copied, nor read from a file."""

import mmap
from collections.abc import Iterator
from typing import Final

Data = bytes | mmap.mmap
"""A message, or a file that holds one."""

Span = tuple[int, int]
"""Offsets of a message between which bytes lie: the first one, and the one behind the last."""

VARINT: Final = 0
EIGHT_BYTES: Final = 1
SPAN: Final = 2
FOUR_BYTES: Final = 5
"""Forms of a field, the lowest three bits of its key."""


class Message:
    """The fields of a message in a span of the data, by the numbers that its definition gives them."""

    __slots__ = ("_data", "_found")

    def __init__(self, data: Data, span: Span) -> None:
        """Read the keys of all fields.

        Raises:
            ValueError: it is no message.
        """
        self._data = data
        self._found: dict[int, list[int | Span]] = {}
        for number, value in _fields(data, span):
            self._found.setdefault(number, []).append(value)

    def spans(self, number: int) -> list[Span]:
        """Return the spans of the fields of a number."""
        return [value for value in self._found.get(number, ()) if isinstance(value, tuple)]

    def messages(self, number: int) -> Iterator["Message"]:
        """Yield the fields of a number that are messages themselves."""
        return (Message(self._data, span) for span in self.spans(number))

    def number(self, number: int) -> int:
        """Return the last integer of a number, 0 where there is none."""
        return next((value for value in self._found.get(number, ())[::-1] if isinstance(value, int)), 0)

    def numbers(self, number: int) -> Iterator[int]:
        """Yield the integers of a number, be they packed or not."""
        for value in self._found.get(number, ()):
            if isinstance(value, int):
                yield value
                continue
            at, end = value
            while at < end:
                found, at = _varint(self._data, at, end)
                yield found

    def texts(self, number: int) -> tuple[str, ...]:
        """Return the texts of a number."""
        return tuple([self._data[start:end].decode() for start, end in self.spans(number)])

    def text(self, number: int) -> str:
        """Return the last text of a number, empty where there is none."""
        return "".join(self.texts(number)[-1:])


def _fields(data: Data, span: Span) -> Iterator[tuple[int, int | Span]]:
    at, end = span
    while at < end:
        key, at = _varint(data, at, end)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(data, at, end)
            yield key >> 3, value
            continue
        if kind == SPAN:
            size, at = _varint(data, at, end)
        elif kind in (EIGHT_BYTES, FOUR_BYTES):
            size = 8 if kind == EIGHT_BYTES else 4
        else:
            raise ValueError(f"expected wire type 0, 1, 2 or 5, got {kind}")
        if at + size > end:
            raise ValueError(f"a field ends {at + size - end} bytes behind its message")
        yield key >> 3, (at, at + size)
        at += size


def _varint(data: Data, at: int, end: int) -> tuple[int, int]:
    """Return an integer of seven bits a byte, the lowest first, and where it ends."""
    found = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return found | byte << shift, at
        found |= (byte & 0x7F) << shift
        shift += 7
    raise ValueError("an integer is cut short")

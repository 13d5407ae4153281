"""Tables that can be added to from outside: what a layer knows of each operator or op."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TypeVar

from typing_extensions import override

Key = TypeVar("Key")
Entry = TypeVar("Entry", covariant=True)


class ExtensibleTable(Mapping[Key, Entry]):
    """A table that is constant but for the entries of somebody else's operators, for as long as these are in use."""

    def __init__(self, entries: Mapping[Key, Entry]) -> None:
        self._entries = MappingProxyType(dict(entries))

    @override
    def __getitem__(self, key: Key) -> Entry:
        return self._entries[key]

    @override
    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    @override
    def __len__(self) -> int:
        return len(self._entries)

    @contextmanager
    def extended(self, entries: Mapping[Key, Entry]) -> Generator[None]:
        """Let `entries` be in the table as well, in all threads, until the end of the `with` statement."""
        before = self._entries
        self._entries = MappingProxyType({**before, **entries})
        try:
            yield
        finally:
            self._entries = before

"""Results that are soon asked for again: a model is often read twice, and each network in it is looked at once more."""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

MOST_KEPT: Final = 2048
"""Results that are kept, a few kilobytes each; the oldest goes first."""


class RecentResults(Generic[Key, Result]):
    """Results by what they follow from; several threads may use it."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: dict[Key, Result] = {}

    def of(self, key: Key, find: Callable[[], Result]) -> Result:
        """Return the result of a key, that of `find` where it is not known."""
        try:
            return self._known[key]
        except KeyError:
            result = find()
        while len(self._known) >= MOST_KEPT:
            self._known.pop(next(iter(self._known)), None)
        return self._known.setdefault(key, result)

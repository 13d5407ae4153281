"""Unique names: old values keep their names, new values get names that the original never used."""

from collections.abc import Iterable


class Names:
    """The names in use. Asking for one takes it."""

    def __init__(self, taken: Iterable[str], avoided: Iterable[str] = ()) -> None:
        """Start with the names `taken`; invented names stay clear of the `avoided` ones, too."""
        self._taken = set(taken)
        self._avoided = set(avoided)

    def is_free(self, name: str) -> bool:
        """Return whether nothing has this name yet (the empty name is nobody's)."""
        return bool(name) and name not in self._taken

    def claim(self, wanted: str) -> str:
        """Take the name `wanted`, or `wanted_1`, `wanted_2`, ... when it is taken."""
        name = wanted if self.is_free(wanted) else self._numbered(wanted)
        self._taken.add(name)
        return name

    def take(self, name: str) -> None:
        """Take a name that was kept for its owner, who may come more than once."""
        self._taken.add(name)

    def invent(self, stem: str) -> str:
        """Take a new name like `stem`, one that the original used for nothing."""
        fresh = self.is_free(stem) and stem not in self._avoided
        name = stem if fresh else self._numbered(stem)
        self._taken.add(name)
        return name

    def _numbered(self, stem: str) -> str:
        number = 1
        while (name := f"{stem}_{number}") in self._taken or name in self._avoided:
            number += 1
        return name

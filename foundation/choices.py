"""Choices that a person makes for a model instead of the compiler: kernels of layers, passes to leave out; as a file.

```json
{"format": "redpebble choices 1", "skip_passes": ["pebble-reorder-neurons"], "kernels": {"fc1": "count_blocks"}}
```
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .regular_files import open_regular

FORMAT: Final = "redpebble choices 1"

Json = Any
"""A value that the json module reads."""

MOST_BYTES: Final = 16 << 20
"""Bytes of a file that are read: a layer takes about a hundred."""


@dataclass(frozen=True)
class Choices:
    """Passes to leave out, and kernels by the name of the layer: families by the width from which each is used."""

    skip_passes: tuple[str, ...] = ()
    kernels: tuple[tuple[str, str], ...] = ()
    """Name of a layer, and its kernel in the words of reports: `gathered_panels from 1, sparse_rows from 8`."""

    @property
    def text(self) -> str:
        """The content of a file."""
        content = {"format": FORMAT, "skip_passes": [*self.skip_passes], "kernels": dict(self.kernels)}
        return json.dumps(content, indent=1)

    @staticmethod
    def read(source: "str | os.PathLike[str] | Choices | None") -> "Choices":
        """Return the choices in a file; none for None.

        Raises:
            OSError: the file cannot be read.
            ValueError: it holds something else.
        """
        if source is None or isinstance(source, Choices):
            return NO_CHOICES if source is None else source
        with open_regular(Path(source)) as file:
            return Choices.parse(file.read(MOST_BYTES), os.fspath(source))

    @staticmethod
    def parse(content: str | bytes, name: str) -> "Choices":
        """Return the choices that the content of a file called `name` holds.

        Raises:
            ValueError: it holds something else.
        """
        try:
            read: Json = json.loads(content)
            words = [*read["skip_passes"], *read["kernels"], *read["kernels"].values()]
            if read["format"] == FORMAT and isinstance(read["skip_passes"], list) and all(map(_is_text, words)):
                return Choices(tuple(read["skip_passes"]), tuple(read["kernels"].items()))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass
        raise ValueError(f"{name}: expected choices of redpebble explain --serve, got another file")

    def check_names(self, layers: "set[str]") -> None:
        """Check that layers of these names were found.

        Raises:
            ValueError: one was not.
        """
        for name, _ in self.kernels:
            if name not in layers:
                some = ", ".join(sorted(layers)[:4]) or "none"
                raise ValueError(f"kernels: expected names of layers with a choice such as {some}, got {name!r}")


def _is_text(word: object) -> bool:
    return isinstance(word, str)


NO_CHOICES: Final = Choices()
"""All is decided by the compiler."""

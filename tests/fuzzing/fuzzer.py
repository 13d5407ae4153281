"""The record of a fuzzer, and its cases, each of which is a folder."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")

GIBIBYTE = 1 << 30


class Fuzzer(NamedTuple):
    """Random cases of one kind.

    `draw` writes all files of a case into a folder, and what it writes depends on nothing but its seed. `check` reads
    them again; it returns a word for what became of the case, which is counted, and raises where a promise is broken.
    Both run in a process of their own, which may use `seconds` of CPU time and `memory` bytes.
    """

    name: str
    draw: Callable[[int, Path], None]
    check: Callable[[Path], str]
    seconds: int = 90
    memory: int = 8 * GIBIBYTE


def one_of(rng: np.random.Generator, values: Sequence[T]) -> T:
    """One of the values, each as likely as the others."""
    return values[int(rng.integers(len(values)))]

"""A graph as far as it says which constants its layers multiply by: of a model, or of a file that nobody has read.

Names, or values of onnx-ir, tell one value from another.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]

BLOCK: Final = 1 << 18
"""Values of a constant that are looked at together: they stay in the cache."""

FLOATS: Final = frozenset({1, 10, 11, 16})
"""Element types of floats, as ONNX numbers them: to what rounds to others a value may be a zero."""


class Constant(NamedTuple):
    """A tensor that no call replaces: its shape, and a function that yields its values, row by row, in blocks.

    Floats of 16 bits are unsigned integers of these.
    """

    shape: tuple[int, ...]
    blocks: Callable[[], Iterator[Values]]


class GraphNode(NamedTuple):
    """A node: its operator, its values, empty where it has none, and the element type that a Cast yields."""

    domain: str
    operator: str
    inputs: Sequence[Hashable | None]
    outputs: Sequence[Hashable | None]
    cast: int = 0


@dataclass(frozen=True)
class WeightGraph:
    """The nodes of a model, those of graphs inside of nodes among them, and its constants."""

    nodes: Sequence[GraphNode]
    constants: Mapping[Hashable, Constant]
    is_complete: bool
    """Whether all weights are among the constants: there are no sparse tensors, and no functions."""


def array_blocks(array: Values) -> Iterator[Values]:
    """Yield the values of an array, row by row, as a `Constant` does."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        block = flat[start : start + BLOCK]
        yield block.view(np.uint16) if block.dtype.name in ("float16", "bfloat16") else block

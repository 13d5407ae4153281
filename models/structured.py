"""MLPs whose weights are pruned to a structure: N of M, shared columns, blocks, or blocks with everything shuffled."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from .graph_builder import GraphBuilder, Output
from .pruned_weights import masked_weight, random_bias
from .recipe import require, require_at_least, require_density

if TYPE_CHECKING:
    import onnx_ir as ir

Mask = NDArray[np.bool_]
MaskMaker = Callable[[int, np.random.Generator], Mask]

GROUP: Final = 4
"""g of the pattern "nmg"."""

PANEL_ROWS: Final = 16
PANEL_COLUMNS: Final = 8
"""V and M of the pattern "vnm"."""


def n_of_m(kept: int, of: int) -> MaskMaker:
    """Each neuron keeps `kept` of every `of` consecutive inputs."""

    def make(width: int, rng: np.random.Generator) -> Mask:
        scores = rng.random((width, width // of, of))
        return (scores.argsort(axis=2).argsort(axis=2) < kept).reshape(width, width)

    return make


def grouped_n_of_m(width: int, rng: np.random.Generator) -> Mask:
    """1 of 4 in which each of the 4 choices is used by exactly `GROUP` neurons out of 16, for every 4 inputs."""
    choices = np.repeat(np.eye(4, dtype=np.bool_), GROUP, axis=0)
    blocks = [[choices[rng.permutation(len(choices))] for _ in range(width // 4)] for _ in range(width // len(choices))]
    return np.block(blocks)


def panels(width: int, rng: np.random.Generator) -> Mask:
    """V:N:M with V = 16, N = 2, M = 8: 16 neurons share 4 of every 8 inputs, and each keeps 2 of these 4."""
    mask = np.zeros((width, width), dtype=np.bool_)
    pairs = np.array(list(itertools.combinations(range(4), 2)))
    rows = np.arange(PANEL_ROWS)[:, None]
    for row, column in itertools.product(range(0, width, PANEL_ROWS), range(0, width, PANEL_COLUMNS)):
        shared = np.sort(rng.choice(PANEL_COLUMNS, 4, replace=False))
        chosen = pairs[rng.integers(0, len(pairs), PANEL_ROWS)]
        mask[row + rows, column + shared[chosen]] = True
    return mask


def blocks(rows: int, columns: int, density: float) -> MaskMaker:
    """Blocks of `rows` neurons by `columns` inputs, each kept with probability `density`."""

    def make(width: int, rng: np.random.Generator) -> Mask:
        kept = rng.random((width // rows, width // columns)) < density
        return kept.repeat(rows, axis=0).repeat(columns, axis=1)

    return make


FIXED_PATTERNS: Final[Mapping[str, MaskMaker]] = MappingProxyType(
    {"2:4": n_of_m(2, 4), "1:4": n_of_m(1, 4), "nmg": grouped_n_of_m, "vnm": panels}
)
"""Patterns that say themselves how dense they are."""

BLOCK_SHAPES: Final = MappingProxyType({"block4x1": (4, 1), "block16x1": (16, 1), "block4x4": (4, 4)})
"""Pattern -> neurons and inputs of a block."""

DEFAULT_BLOCK_DENSITY: Final = 0.1


@dataclass(frozen=True)
class Structured:
    """MLP pruned to a pattern: 2:4, 1:4, nmg, vnm, block4x1, block16x1 or block4x4, on request shuffled.

    `density` is for blocks (0.1 when None); the other patterns have their own. Shuffling permutes the rows and the
    columns of each weight, so that the structure has to be found.
    """

    pattern: str = "2:4"
    width: int = 1024
    depth: int = 2
    density: float | None = None
    shuffled: bool = False

    def __post_init__(self) -> None:
        """Check the parameters."""
        patterns = [*FIXED_PATTERNS, *BLOCK_SHAPES]
        require(self.pattern in patterns, "pattern", self.pattern, ", ".join(patterns))
        require_at_least(1, depth=self.depth, width=self.width)
        require(self.width % 16 == 0, "width", self.width, "multiples of 16")
        if self.density is not None:
            fixed = self.pattern in FIXED_PATTERNS
            require(not fixed, "density", self.density, f"None, as pattern {self.pattern} has its own")
            require_density(self.density)

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [batch, width] -> y [batch, width], Relu between layers."""
        builder = GraphBuilder()
        dims = ("batch", self.width)
        value = builder.input("x", dims)
        for layer in range(self.depth):
            weight = masked_weight(self._mask(rng), rng)
            value = builder.linear(value, weight, random_bias(self.width, rng), f"layers.{layer}")
            if layer < self.depth - 1:
                value = builder.op("Relu", [value], f"/layers.{layer}/Relu")
        return builder.model("structured", {"y": Output(value, dims)})

    def _mask(self, rng: np.random.Generator) -> Mask:
        if self.pattern in FIXED_PATTERNS:
            mask = FIXED_PATTERNS[self.pattern](self.width, rng)
        else:
            density = DEFAULT_BLOCK_DENSITY if self.density is None else self.density
            mask = blocks(*BLOCK_SHAPES[self.pattern], density)(self.width, rng)
        if not self.shuffled:
            return mask
        return mask[rng.permutation(self.width)][:, rng.permutation(self.width)]

"""The record of a kernel family: what a way to compute a linear layer stores, does and is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..sparse.csr import CscMatrix
from .input_blocks import BlockRule
from .layer_with_pattern import LayerWithPattern, features_in_turn
from .work import Layer, Stored, Tile, Work

Floats = NDArray[np.float32]
PackedArrays = tuple[NDArray[np.generic], ...]

SHARE: Final = 16
"""Features in a thread's share of an op are multiples of this: whole vectors and cache lines of any tile."""

SPARSE: Final[tuple[Stored, ...]] = ("sparse", "panels")
"""The layers of a family that reads connections one by one."""


class GroupedCodes(NamedTuple):
    """Entries of a weight as multiples of scales, one for `size` neighbouring inputs of an output."""

    steps: NDArray[np.signedinteger]
    """[nonzeros], in the order of a sparse weight's entries; of a dense weight [outputs, inputs]."""
    scales: Floats
    """[outputs, groups]."""
    size: int
    bits: int = 4


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """The constants of a layer, for `pack`.

    weight [inputs, outputs] is as the IR stores it, bias [outputs]; panels are outputs that share inputs, by height
    [panels, height]; blocks are the blocks of inputs, None for the fewest that are possible.
    """

    weight: CscMatrix | Floats
    bias: Floats
    panels: Sequence[NDArray[np.int64]] = ()
    blocks: int | None = None
    whole: LayerWeights | None = None
    """The layer that these weights are a share of, None for a whole layer: decisions do not depend on threads."""
    codes: GroupedCodes | None = None
    """The entries as codes with scales, where inputs may be rounded for them."""

    @property
    def density(self) -> float:
        if self.whole is not None:
            return self.whole.density
        inputs, outputs = self.weight.shape
        return len(self.sparse.rows) / max(1, inputs * outputs)

    @cached_property
    def sparse(self) -> CscMatrix:
        """The entries that are not zero."""
        return self.weight if isinstance(self.weight, CscMatrix) else CscMatrix.from_dense(self.weight)

    @cached_property
    def dense(self) -> Floats:
        return self.weight.to_dense() if isinstance(self.weight, CscMatrix) else self.weight

    def steps(self, shape: tuple[int, int], kind: type[np.signedinteger]) -> NDArray[np.signedinteger]:
        """Return the codes of all weights in an array [outputs, inputs] of zeros, which has this shape or a larger one.

        Raises:
            ValueError: the weights are no codes with a scale for each group.
        """
        if self.codes is None:
            raise ValueError("expected codes with a scale for each group of inputs, got floats")
        steps = np.zeros(shape, kind)
        if isinstance(self.weight, CscMatrix):
            steps[self.weight.columns, self.weight.rows] = self.codes.steps
        else:
            inputs, outputs = self.weight.shape
            steps[:outputs, :inputs] = self.codes.steps
        return steps

    def share(self, first: int, end: int) -> LayerWeights:
        """Return the same of the outputs from `first` to `end`; panels that lie elsewhere in part are left out."""
        inside = [outputs[((outputs >= first) & (outputs < end)).all(axis=1)] - first for outputs in self.panels]
        weight, bias = _columns(self.weight, first, end), self.bias[first:end]
        return LayerWeights(weight, bias, inside, self.blocks, self.whole or self, self._codes(first, end))

    def _codes(self, first: int, end: int) -> GroupedCodes | None:
        """Return the codes of the outputs from `first` to `end`."""
        if self.codes is None:
            return None
        if not isinstance(self.weight, CscMatrix):
            return self.codes._replace(steps=self.codes.steps[first:end], scales=self.codes.scales[first:end])
        start, stop = self.sparse.pointers[first], self.sparse.pointers[end]
        return self.codes._replace(steps=self.codes.steps[start:stop], scales=self.codes.scales[first:end])


def _columns(weight: CscMatrix | Floats, first: int, end: int) -> CscMatrix | Floats:
    """Return the columns of a weight from `first` to `end`, stored as it is."""
    if not isinstance(weight, CscMatrix):
        return np.ascontiguousarray(weight[:, first:end])
    start, stop = weight.pointers[first], weight.pointers[end]
    pointers = weight.pointers[first : end + 1] - start
    return CscMatrix((weight.shape[0], end - first), pointers, weight.rows[start:stop], weight.values[start:stop])


@dataclass(frozen=True, eq=False)
class KernelFamily:
    """One way to compute a linear layer on a feature-major tile of batch columns.

    A family NAME is three things: `kernels/formats/NAME.py`, which holds this record with how weights are stored and
    what work they make, `lowering/kernels/NAME.py` with its code, and a line in `kernels/families.py`. Prices of its
    units of work are fitted by `bench/fit_prices.py`; without them it can be named in the IR, but is never chosen.
    """

    name: str
    pack: Callable[[LayerWeights], PackedArrays]
    """The arrays that the kernel reads, in the order of its pointers."""
    work: Callable[[Layer, Tile], Work]
    widths: tuple[int, ...]
    """Batch columns of the tiles that it has code for."""
    lanes: tuple[int, ...] = (4, 8, 16)
    """Floats in the vectors of the machines that it is for."""
    stored: tuple[Stored, ...] = SPARSE
    """The layers that it can compute. One for dense layers computes what a dense product does, 0 * inf included."""
    any_rows: bool = False
    """Whether its code takes any number of rows, sums them in one order whatever the width, and can write rows."""
    row_major: bool = False
    """Whether its tiles are rows of features, as many as there are, all others in them computed row by row."""
    packed_as: str = ""
    """The family that packs the same arrays; empty for none."""
    share: int = SHARE
    """Outputs in a thread's share of a layer are multiples of this."""
    rounds: Literal["", "bf16", "groups"] = ""
    """Values that it rounds: inputs and weights to bfloat16, for layers of that precision on CPUs with its products;
    or groups of inputs to integers of eight bits, for weights that are codes; empty where nothing."""
    code_bits: int = 4
    """Bits of the codes that it reads, where it rounds groups."""
    needs: Literal["", "places_bytes", "bfloat_tiles"] = ""
    """The property of a `Machine` without which its code does not run; empty for none."""
    block_rule: BlockRule | None = None
    """The rule by which it cuts inputs into blocks, if it does."""
    prices: Mapping[int, tuple[float, ...]] = field(default_factory=dict[int, tuple[float, ...]])
    """Prices as those of the default machine by lanes, where they are not fitted: see `Machine.prices_of`."""
    priced_in: tuple[str, int] | None = None
    """The family, and the number of its unit of work, in whose price on a machine `prices` are told."""
    most_inputs: int = 1 << 40
    """The most inputs of a layer that it can compute."""
    far_features: Callable[[LayerWithPattern, float], float] = features_in_turn
    """The features of x and y that a cache for so many of them does not deliver."""

    @property
    def format(self) -> str:
        """The name of its packed arrays: families with the same one share them."""
        return self.packed_as or self.name

    @property
    def is_dense(self) -> bool:
        """Whether it computes zeros, too, of floats."""
        return "dense" in self.stored and not self.rounds

    def block_count(self, layer: Layer) -> int:
        """Return the blocks of inputs that a layer has; 0 where the family has none."""
        return layer.blocks(self.block_rule) if self.block_rule is not None else 0

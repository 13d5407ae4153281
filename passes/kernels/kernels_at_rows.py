"""Kernels that a number of rows meets, of those chosen by the width of the tile, and whether they beat onnxruntime."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from ...kernels import few_bits_times
from ...kernels.dense_work import OVERHEADS, rows_share, runtime_times
from ...kernels.families import FAMILIES, is_dense, takes_any_rows
from ...kernels.few_bits_times import FewBits
from ...kernels.machine import DEFAULT_PRICES, Machine
from ...kernels.tile_widths import MIXED, Tiles, all_tiles_of, least_rows

ANY_ROWS: Final = range(1, 257)
"""Numbers of rows that stand for any: more of them are cut into the same tiles."""

CERTAIN_SHARE: Final = 0.95
"""Mean time of a sparse layer over that of a dense one in onnxruntime below which it gains."""

CLEAR_SHARE: Final = 0.85
"""Time of a dense layer over that in onnxruntime below which it gains clearly."""

NOTICED: Final = 0.03
"""Share of a call that it may take longer at a single number of rows: less than anybody would notice."""


class ChosenKernels(NamedTuple):
    """A layer and its kernels: families from each width on, microseconds of a tile of each width."""

    inputs: int
    outputs: int
    families: Mapping[int, str]
    us: Mapping[int, float]
    other_bytes: float = 0.0
    """Bytes of the dense weights that onnxruntime reads between two uses of the layer."""
    few_bits: FewBits | None = None
    """The weight of few bits that onnxruntime would read instead of floats."""

    def family(self, width: int) -> str:
        """Return the family of a tile of some width."""
        return self.families[max(start for start in self.families if start <= width)]

    def times(self, counts: Sequence[int], machine: Machine) -> dict[int, float]:
        """Return the microseconds of some numbers of rows."""
        us, size, times = self.us, (self.inputs, self.outputs), dict[int, float]()
        cuts = self._tiles(counts)
        families = {width: self.family(width) for width in {one.width for tiles in cuts.values() for one in tiles}}
        formats = {width: FAMILIES[family].format for width, family in families.items()}
        shares = {width for width, family in families.items() if takes_any_rows(family)}
        for rows, tiles in cuts.items():
            total = sum(us[one.width] * one.number for one in tiles)
            width, left = tiles[-1].width, tiles[-1].rows % tiles[-1].width
            if left and width in shares:
                total -= us[width] * (1 - rows_share(left, width, size, machine))
            is_mixed = len(tiles) > 1 and len({formats[one.width] for one in tiles}) > 1
            times[rows] = (MIXED if is_mixed else 1.0) * total
        return times

    def runtime_times(self, counts: Sequence[int], machine: Machine) -> dict[int, float]:
        """Return the microseconds of some numbers of rows in onnxruntime."""
        size = self.inputs, self.outputs
        if self.few_bits is not None:
            return few_bits_times.runtime_times(self.few_bits, *size, counts, machine, self.other_bytes)
        return runtime_times(*size, counts, machine, self.other_bytes)

    def meets(self, counts: Sequence[int]) -> set[str]:
        """Return the families of the tiles that some numbers of rows are cut into."""
        tiles = self._tiles(counts).values()
        return {self.family(width) for width in {tile.width for some in tiles for tile in some}}

    def _tiles(self, counts: Sequence[int]) -> Mapping[int, Sequence[Tiles]]:
        return all_tiles_of(least_rows(dict(sorted(self.us.items()))), counts)


def gains(kernels: ChosenKernels, counts: Sequence[int], machine: Machine) -> bool:
    """Return whether a layer is faster than in onnxruntime for some numbers of rows: on the mean, and slower for none.

    Dense kernels that some of them meet are no obstacle where they are as fast as onnxruntime's. Layers that are alike
    have the same times: they are compared once.
    """
    size, beside = (kernels.inputs, kernels.outputs), (kernels.other_bytes, kernels.few_bits)
    return _gains(size, tuple(kernels.families.items()), tuple(kernels.us.items()), beside, tuple(counts), machine)


def gains_clearly(kernels: ChosenKernels, rows: int, machine: Machine) -> bool:
    """Return whether a layer is much faster than in onnxruntime for a number of rows, whatever its kernel."""
    return kernels.times([rows], machine)[rows] < CLEAR_SHARE * kernels.runtime_times([rows], machine)[rows]


@lru_cache(maxsize=64)
def _gains(
    size: tuple[int, int],
    families: tuple[tuple[int, str], ...],
    us: tuple[tuple[int, float], ...],
    beside: tuple[float, FewBits | None],
    counts: Sequence[int],
    machine: Machine,
) -> bool:
    kernels = ChosenKernels(*size, dict(families), dict(us), *beside)
    if all(map(is_dense, kernels.meets(counts))):
        return False
    ours = kernels.times(counts, machine)
    theirs = kernels.runtime_times(counts, machine)
    call = OVERHEADS.get(machine.prices, OVERHEADS[DEFAULT_PRICES]).call
    if any(ours[rows] - theirs[rows] > NOTICED * (call + theirs[rows]) for rows in counts):
        return False
    return sum(ours[rows] / theirs[rows] for rows in counts) < CERTAIN_SHARE * len(counts)

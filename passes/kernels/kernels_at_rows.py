"""Kernels that a number of rows meets, of those chosen by the width of the tile, and whether they beat onnxruntime."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from redpebble.kernels.dense_work import rows_share, runtime_times
from redpebble.kernels.families import is_dense, takes_any_rows
from redpebble.kernels.machine import Machine
from redpebble.kernels.tile_widths import MIXED, least_rows, tiles_of

ANY_ROWS: Final = range(1, 257)
"""Numbers of rows that stand for any: more of them are cut into the same tiles."""

CERTAIN_SHARE: Final = 0.95
"""Mean time of a sparse layer over that of a dense one in onnxruntime below which it gains."""

MOST_SHARE: Final = 1.03
"""The same of a single number of rows, up to which it is no loss that anybody would notice."""

SMALL: Final = 4096
"""Weights of a layer that takes about as long as the call of a node: its time in onnxruntime says little."""


class ChosenKernels(NamedTuple):
    """A layer and its kernels: families from each width on, microseconds of a tile of each width."""

    inputs: int
    outputs: int
    families: Mapping[int, str]
    us: Mapping[int, float]
    other_bytes: float = 0.0
    """Bytes of the dense weights that onnxruntime reads between two uses of the layer."""

    def family(self, width: int) -> str:
        """Return the family of a tile of some width."""
        return self.families[max(start for start in self.families if start <= width)]

    def times(self, counts: Sequence[int], machine: Machine) -> dict[int, float]:
        """Return the microseconds of some numbers of rows."""
        us = dict(sorted(self.us.items()))
        least, times = least_rows(us), dict[int, float]()
        for rows in counts:
            tiles, size = tiles_of(least, rows), (self.inputs, self.outputs)
            total = sum(us[one.width] * one.number for one in tiles)
            width, left = tiles[-1].width, tiles[-1].rows % tiles[-1].width
            if left and takes_any_rows(self.family(width)):
                total -= us[width] * (1 - rows_share(left, width, size, machine))
            times[rows] = (MIXED if len(tiles) > 1 else 1.0) * total
        return times

    def meets(self, counts: Sequence[int]) -> set[str]:
        """Return the families of the tiles that some numbers of rows are cut into."""
        least = least_rows(dict(sorted(self.us.items())))
        return {self.family(tile.width) for rows in counts for tile in tiles_of(least, rows)}


def gains(kernels: ChosenKernels, counts: Sequence[int], machine: Machine) -> bool:
    """Return whether a layer is faster than in onnxruntime for some numbers of rows: on the mean, and slower for none.

    Dense kernels that some of them meet are no obstacle where they are as fast as onnxruntime's.
    """
    met = kernels.meets(counts)
    if kernels.inputs * kernels.outputs <= SMALL:
        return not any(map(is_dense, met))
    if all(map(is_dense, met)):
        return False
    ours = kernels.times(counts, machine)
    theirs = runtime_times(kernels.inputs, kernels.outputs, counts, machine, kernels.other_bytes)
    shares = [ours[rows] / theirs[rows] for rows in counts]
    return max(shares) <= MOST_SHARE and sum(shares) < CERTAIN_SHARE * len(shares)

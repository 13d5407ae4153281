"""What a linear layer costs on a tile of batch columns, for each kernel family and on a given machine.

`time = (core^2 + far^2)^(1/2)`: core is the time of the instructions where the second-level cache holds all that is
read, a sum of units of work at a price each; far is the time of weights that come from farther away. A stream overlaps
with arithmetic in part: neither term is lost, the larger one counts most.

A family is a line in `FAMILY_COSTS`. Its prices, in nanoseconds, were fitted to the times of kernels on a Xeon with
AVX-512 at about 3 GHz with 48 KiB and 2 MiB of cache a core, which ran the code for AVX-512, AVX2 and SSE in turn;
`Machine` holds what another machine does differently.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import hypot
from types import MappingProxyType
from typing import Final, NamedTuple

from redpebble.kernels import work as kernel_work
from redpebble.kernels.work import Layer, Stored, Tile, Work, misses

WIDTHS: Final = (1, 8, 16, 32, 48, 64)
"""Tile widths in batch columns for which kernels have code."""

REPLACING: Final = 48
"""The width that is there in place of a wider one: three vectors of 16 floats, as panels of eight rows like best."""

DENSE_WIDTHS: Final = (2, 4, 6, 12, 20, 24, 36, 40, 56, 72, 96, 108, 144)
"""Further tile widths, for kernels that compute as many columns as there are rows."""

DENSE_FAMILY: Final = "dense_outputs"
"""The only one that does."""

TILE_WIDTHS: Final = tuple(sorted((*WIDTHS, *DENSE_WIDTHS)))

MOST_TILE_SHARE: Final = 0.5
"""Of the second-level cache: what a tile's values take from the weights; what does not fit is read again anyway."""


@dataclass(frozen=True)
class Machine:
    """What a CPU does differently from others: its vectors, its caches, and how fast each kernel family is on it.

    The defaults are the machine of the prices.
    """

    lanes: int = 16
    """Floats in a vector: 16 for AVX-512, 8 for AVX2, 4 for all else."""
    l1_bytes: int = 48 << 10
    l2_bytes: int = 2 << 20
    l3_bytes: int = 12 << 20
    """That one core gets to itself: less than what several cores, or other machines on the same host, share."""
    l3_ns: float = 0.033
    """Time of a byte that is streamed from the last-level cache, by one core."""
    dram_ns: float = 0.066
    """Time of a byte that is streamed from memory, by one core."""
    calibration_factors: Mapping[str, float] = field(default_factory=dict[str, float])
    """Measured over predicted time of instructions, for kernels such as `count_blocks@64`; 1 where there is none."""

    def __post_init__(self) -> None:
        sizes = (self.l1_bytes, self.l2_bytes, self.l3_bytes)
        if self.lanes not in (4, 8, 16):
            raise ValueError(f"{self.lanes} lanes, accepted are 4, 8 and 16")
        if not 0 < sizes[0] <= sizes[1] <= sizes[2]:
            raise ValueError(f"caches of {sizes[0]}, {sizes[1]}, {sizes[2]} bytes, expected ascending positive sizes")
        for name, value in (("l3_ns", self.l3_ns), ("dram_ns", self.dram_ns), *self.calibration_factors.items()):
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value}, expected a positive number")

    def far_ns(self, own_bytes: float, loop_bytes: float) -> float:
        """Return the time to stream `own_bytes`, a part of what is read in a loop over `loop_bytes`."""
        from_l3, from_dram = misses(loop_bytes, self.l2_bytes), misses(loop_bytes, self.l3_bytes)
        return own_bytes * (from_l3 * self.l3_ns + from_dram * max(0.0, self.dram_ns - self.l3_ns))


class FamilyCost(NamedTuple):
    """What layers and tiles a family is for, how its work follows from them, and what it costs.

    prices, by lanes: nanoseconds of each unit, and last the time for weights from beyond the second-level cache over
    that of a plain stream. A family that is for dense layers computes what a dense product does, 0 * inf included.
    """

    widths: tuple[int, ...]
    stored: tuple[Stored, ...]
    work: Callable[[Layer, Tile], Work]
    prices: Mapping[int, tuple[float, ...]]


ROW: Final = (1,)
TILES: Final = (8, 16, 32, 48, 64)
NARROW: Final = (1, 8, 16)
ANY: Final[tuple[Stored, ...]] = ("dense", "sparse", "panels")
SPARSE: Final[tuple[Stored, ...]] = ("sparse", "panels")
PANELS: Final[tuple[Stored, ...]] = ("panels",)

FAMILY_COSTS: Final[Mapping[str, FamilyCost]] = MappingProxyType(
    {
        "permute_lookup": FamilyCost(ROW, SPARSE, kernel_work.permute_lookup, {16: (0.13, 1.06, 5.11, 2.39, 1.09)}),
        DENSE_FAMILY: FamilyCost(
            TILE_WIDTHS,
            ANY,
            kernel_work.dense_outputs,
            {16: (0.124, 0.239, 0.868), 8: (0.11, 0.155, 0.855), 4: (0.209, 0, 0.863)},
        ),
        "count_blocks": FamilyCost(
            TILES,
            SPARSE,
            kernel_work.count_blocks,
            {
                16: (5.2, 0.212, 0.166, 0.183, 0.53, 1.27, 0.0024, 0.00243, 1.8),
                8: (4.8, 0.172, 0.252, 0.358, 0.692, 0.709, 0.00226, 0.000902, 1.63),
                4: (3.31, 0.158, 0.578, 0.133, 1.3, 1.22, 0.0035, 0, 1.93),
            },
        ),
        "narrow_blocks": FamilyCost(
            NARROW,
            SPARSE,
            kernel_work.narrow_blocks,
            {
                16: (0, 0.252, 0.0596, 1.72, 3.99, 0.00363, 0.00175, 1.25),
                8: (0, 0.246, 0.111, 1.83, 3.56, 0.00448, 0.00265, 1.3),
                4: (0, 0.213, 0.542, 2.08, 4.53, 0.00851, 0.00855, 1.3),
            },
        ),
        "panels": FamilyCost(
            TILES,
            PANELS,
            kernel_work.panels,
            {
                16: (0, 0.258, 0.167, 0.03, 0.481, 0.00152, 1.74),
                8: (0, 0.474, 0.102, 0.164, 0.957, 0.00141, 1.23),
                4: (559, 0.552, 0.46, 0.00125, 0, 0.00273, 0.674),
            },
        ),
        "strips": FamilyCost(
            TILES,
            SPARSE,
            kernel_work.strips,
            {
                16: (23.1, 0.119, 0.188, 0.0768, 6.37, 1.51, 0.000263, 1.52),
                8: (22.7, 0.286, 0.214, 0.000748, 7.04, 0.708, 0, 0.817),
                4: (466, 0.0741, 0.398, 0.00449, 8.16, 0.582, 0.0121, 0.573),
            },
        ),
        "sparse_rows": FamilyCost(
            TILES,
            SPARSE,
            kernel_work.sparse_rows,
            {
                16: (0, 0.527, 0.112, 0.389, 0.00205, 1.86),
                8: (0, 0.524, 0.143, 0.471, 0.00149, 1.88),
                4: (4.0, 0.507, 0.277, 0.453, 0.00219, 1.17),
            },
        ),
    }
)
"""The families that can be chosen. A new one is a line: what it is for, its work, and prices by lanes."""


def candidates(layer: Layer, width: int, lanes: int) -> tuple[str, ...]:
    """Return the families that can compute a layer on tiles of `width` columns in vectors of `lanes` floats."""
    return tuple(
        name
        for name, cost in FAMILY_COSTS.items()
        if width in cost.widths and lanes in cost.prices and layer.stored in cost.stored
    )


def predicted_us(family: str, layer: Layer, width: int, machine: Machine) -> float:
    """Return the microseconds of a tile of `width` columns.

    Raises:
        ValueError: there is no such family, or it has no code for the layer, the width or the machine's vectors.
    """
    known = candidates(layer, width, machine.lanes)
    if family not in known:
        place = f"a {layer.stored} layer at width {width} and {machine.lanes} lanes"
        raise ValueError(f"no cost of {family} for {place}, accepted are {', '.join(known)}")
    cost = FAMILY_COSTS[family]
    work = cost.work(layer, Tile(width, machine.lanes, machine.l1_bytes))
    *prices, exposure = cost.prices[machine.lanes]
    core = sum(units * price for units, price in zip(work.units, prices, strict=True))
    tile_bytes = min(4 * width * (layer.inputs + layer.outputs), MOST_TILE_SHARE * machine.l2_bytes)
    loop_bytes = layer.other_bytes + work.stream_bytes + tile_bytes
    far = exposure * machine.far_ns(work.stream_bytes * work.passes, loop_bytes)
    return hypot(core * machine.calibration_factors.get(f"{family}@{width}", 1.0), far) / 1000

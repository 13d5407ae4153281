"""Cost of linear layers in onnxruntime, and of the same layers as groups of neurons that are computed apart.

A dense layer is Gemm on rows; groups are a convolution of width 1 with so many groups on columns, which was the fastest
of four forms measured: at 64 rows and 16 groups of 64 neurons 10.6 times as fast as dense layers of 1024, against 4.9
for Split, Gemm and Concat, 4.6 for a batched MatMul on rows and 9.0 for one on columns. Split and Gemm win, by 10 to
25 %, for at most 8 rows and at most 4 groups of 256 and more.

Prices in nanoseconds, fitted to medians of onnxruntime 1.31 on one thread of a Xeon with AVX-512 at about 3 GHz with
2 MiB of cache a core: 370 networks of 1 to 6 layers, 64 to 4096 wide, with 2 to 64 groups. Half of the times are
predicted within 6 %, nine tenths within 25 %; all that was predicted to gain 1.25 was faster.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from .work import misses

CACHE_BYTES: Final = 2 << 20


class DensePrices(NamedTuple):
    """Nanoseconds for some rows, of a layer and of each weight, weight from beyond the cache, and value."""

    layer: float
    weight: float
    far_weight: float
    value: float


class GroupedPrices(NamedTuple):
    """The same for a layer in groups; then of transposing rows into columns and back, at all and for each value."""

    layer: float
    group: float
    weight: float
    far_weight: float
    value: float
    far_value: float
    transposition: float
    transposed_value: float
    ordered_value: float
    """Time of a value that takes another position."""


DENSE: Final[Mapping[int, DensePrices]] = MappingProxyType(
    {
        1: DensePrices(424, 0.048, 0.114, 0),
        2: DensePrices(403, 0.0609, 0.0988, 0),
        4: DensePrices(459, 0.0749, 0.0888, 0),
        8: DensePrices(567, 0.137, 0.0811, 0),
        64: DensePrices(1020, 0.749, 0.325, 1.26),
        512: DensePrices(590, 5.8, 0.713, 27.9),
    }
)
GROUPED: Final[Mapping[int, GroupedPrices]] = MappingProxyType(
    {
        1: GroupedPrices(427, 57.9, 0.0608, 0.111, 0.26, 14, 3150, 0, 4.2),
        2: GroupedPrices(227, 83.5, 0.227, 0.0192, 2.24, 6.02, 4470, 0, 5.78),
        4: GroupedPrices(405, 80.8, 0.229, 0.0299, 1.73, 4.84, 4030, 0.416, 5.94),
        8: GroupedPrices(517, 81.4, 0.224, 0.134, 2.27, 12.3, 3150, 2.59, 5.17),
        64: GroupedPrices(0, 69.1, 0.903, 0.0234, 7.2, 23.2, 2220, 23, 10.2),
        512: GroupedPrices(0, 0, 5.85, 1.48, 49.9, 111, 0, 313, 52.1),
    }
)
ROWS: Final = tuple(DENSE)
"""Numbers of rows that prices are known for."""


class LayerSize(NamedTuple):
    """A layer, maybe in groups of `inputs` to `outputs` neurons each."""

    inputs: int
    outputs: int
    groups: int = 1

    @property
    def weights(self) -> int:
        """The weights of all groups, zeros included."""
        return self.groups * self.inputs * self.outputs

    @property
    def values(self) -> int:
        """The neurons of all groups, for one row."""
        return self.groups * (self.inputs + self.outputs)


def rows_around(rows: int | None) -> tuple[int, ...]:
    """Return the numbers of rows with prices next to `rows` on both sides; all of them where it is unknown."""
    if rows is None:
        return ROWS
    below, above = [known for known in ROWS if known <= rows], [known for known in ROWS if known >= rows]
    return tuple(dict.fromkeys((*below[-1:], *above[:1])))


def dense_us(layer: LayerSize, rows: int, other_weights: int = 0) -> float:
    """Return microseconds for a dense layer in a network with so many other weights; `rows` is one of `ROWS`."""
    prices, far = DENSE[rows], _far(layer, rows, other_weights)
    weight = prices.weight + far * prices.far_weight
    return (prices.layer + weight * layer.weights + prices.value * layer.values) / 1e3


def grouped_us(layer: LayerSize, rows: int, other_weights: int = 0) -> float:
    """Return microseconds for a layer in groups, on columns."""
    prices, far = GROUPED[rows], _far(layer, rows, other_weights)
    weight, value = prices.weight + far * prices.far_weight, prices.value + far * prices.far_value
    return (prices.layer + prices.group * layer.groups + weight * layer.weights + value * layer.values) / 1e3


def transposing_us(values: int, rows: int) -> float:
    """Return microseconds of transposing rows into columns, or back, for so many values of a row."""
    return (GROUPED[rows].transposition / 2 + GROUPED[rows].transposed_value * values) / 1e3


def ordering_us(values: int, rows: int) -> float:
    """Return microseconds of putting columns into another order."""
    return GROUPED[rows].ordered_value * values / 1e3


def _far(layer: LayerSize, rows: int, other_weights: int) -> float:
    """Return the share of what a layer reads that the cache does not hold."""
    return misses(4 * (layer.weights + other_weights + rows * layer.values), CACHE_BYTES)

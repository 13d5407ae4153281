"""Predicted times of quantized layers, by the kernels of bytes, as measured on each machine that has prices."""

from collections.abc import Mapping, Sequence
from math import log2
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from ..sparse.csr import CscMatrix
from . import byte_lookup, byte_quads, byte_tiles
from .byte_lookup import LookupForm, by_length
from .byte_quads import QuadForm
from .machine import Machine

LOOKUP: Final = "byte_lookup"
WINDOWS: Final = "byte_windows"
"""Look-ups, the inputs of a window in registers."""

QUADS: Final = "byte_quads"

SCATTERED: Final = "byte_scattered"
SHARED: Final = {2: "byte_shared_2", 4: "byte_shared_4"}
"""Outputs that take scattered inputs together -> the kernel that does it."""

TILES: Final = "byte_tiles"
"""Dense products of tiles, on CPUs that have such; others take scattered quads of these layers."""

FORMS: Final[Mapping[str, QuadForm]] = MappingProxyType(
    {QUADS: QuadForm(scattered=False), SCATTERED: QuadForm(scattered=True)}
    | {family: QuadForm(scattered=True, share=share) for share, family in SHARED.items()}
    | {TILES: QuadForm(scattered=True)}
)
"""Kernels of quads."""


class WindowPrices(NamedTuple):
    """Nanoseconds of look-ups by windows: of a step of a panel, and of a run of steps."""

    step: float
    run: float


class Prices(NamedTuple):
    """Prices of a machine: its form of look-ups, and nanoseconds."""

    form: LookupForm
    step: Mapping[int, float]
    """Rows -> a step of a panel."""
    windows: Mapping[int, WindowPrices]
    """Rows -> the same by windows; nothing where the machine has them not."""
    lookup_output: float
    """The end of an output for 64 rows, by look-ups."""
    quad: float
    """A quad of neighbours for 64 rows."""
    scattered: float
    """A quad of scattered inputs for 64 rows."""
    shared: Mapping[int, float]
    """Outputs -> a quad of scattered inputs that so many share, for 64 rows."""
    pair: float
    """Two outputs in a block of inputs, for 64 rows."""
    quads_output: float
    """The end of an output for 64 rows, by quads."""
    float_rows: float
    """The way of an output's floats to 64 rows, by quads; look-ups have them there."""
    dense: Mapping[int, float]
    """Rows -> products a nanosecond of onnxruntime's dense layers of bytes."""
    tile: Mapping[int, float] = MappingProxyType({})
    """Rows -> 64 inputs of 32 outputs by tiles; nothing where the machine has them not."""


PRICES: Final[Mapping[str, Prices]] = MappingProxyType(
    {
        # AVX-512 VNNI of 2.5 GHz; scattered inputs by their 8 unpackings on one port, which products use, not measured
        "cascade_lake": Prices(
            LookupForm(16, bytewise=True),
            {1: 3.0, 8: 4.3, 64: 34.0},
            {},
            12.0,
            1.4,
            3.4,
            {2: 3.6, 4: 5.0},
            40.0,
            20.0,
            0.0,  # part of the end
            {1: 24.0, 8: 178.0, 64: 258.0},
        ),
        # with VBMI; ends of outputs by look-ups and the way of floats to rows as on Zen 5, for its clock
        "emerald_rapids": Prices(
            LookupForm(16, bytewise=True, in_pairs=True),
            {1: 1.6, 8: 7.2, 64: 55.7},
            {8: WindowPrices(6.3, 1.7), 64: WindowPrices(50.5, 14.5)},
            7.8,
            1.15,
            2.9,
            {2: 3.24, 4: 4.84},
            0.6,
            12.3,
            6.0,
            {1: 45.0, 8: 215.0, 64: 290.0},
            {8: 28.0, 64: 74.0},
        ),
        "zen5": Prices(
            LookupForm(16, bytewise=True, in_pairs=True),
            {1: 0.85, 8: 3.0, 64: 20.1},
            {8: WindowPrices(1.93, 0.75), 64: WindowPrices(14.9, 5.4)},
            3.4,
            0.76,
            1.13,
            {2: 1.44, 4: 2.08},
            4.5,
            1.5,
            3.0,
            {1: 140.0, 8: 400.0, 64: 475.0},
        ),
    }
)

DEFAULT: Final = next(iter(PRICES))

_NEON: Final = LookupForm(16, bytewise=True, reach=32)

_N1: Final = Prices(
    _NEON,
    {1: 4.9, 8: 36.0, 64: 289.0},
    {},
    38.0,
    9.2,
    21.2,
    {2: 42.8, 4: 85.0},
    6.4,
    38.0,
    12.0,
    {1: 30.0, 8: 50.0, 64: 56.0},
)

PREDICTED_PRICES: Final[Mapping[str, Prices]] = MappingProxyType(
    {
        "neoverse_v2": Prices(
            _NEON,
            {1: 1.97, 8: 10.8, 64: 86.3},
            {},
            17.0,
            3.25,
            6.5,
            {2: 12.2, 4: 20.0},
            2.9,
            17.0,
            5.0,
            {1: 60.0, 8: 180.0, 64: 250.0},
        ),
        "neoverse_n2": Prices(
            _NEON,
            {1: 2.16, 8: 11.8, 64: 94.6},
            {},
            14.0,
            3.29,
            8.15,
            {2: 14.9, 4: 24.6},
            2.4,
            14.0,
            4.1,
            {1: 60.0, 8: 130.0, 64: 152.0},
        ),
        "neoverse_n1": _N1,
        "cortex_a76": _N1,
        "apple_m": Prices(
            _NEON,
            {1: 1.8, 8: 11.3, 64: 90.0},
            {},
            15.0,
            3.5,
            6.9,
            {2: 11.6, 4: 19.1},
            2.5,
            15.0,
            4.5,
            {1: 60.0, 8: 130.0, 64: 143.0},
        ),
    }
)
"""Prices that nobody measured: cycles of the inner loops by llvm-mca (see docs/arm.md); ends by their instructions,
two a cycle on a Neoverse N1, four on others; dense layers at 70 % of what sdot, or smmla, allows."""

ALL_PRICES: Final[Mapping[str, Prices]] = MappingProxyType({**PRICES, **PREDICTED_PRICES})

DENSE_CALL_US: Final = 2.0
"""Microseconds of the call of a dense layer, which is a node of its own."""

MOVED_CODE_NS: Final = 0.056
"""Nanoseconds of a value that a dense convolution reads or writes, on its way to channels next to each other."""

TAP_NS: Final = 0.5
"""Nanoseconds of a tap of one of its results, whose channels are copied to where a product reads them."""

UNSIGNED_SHARE: Final = 0.35
"""Rate of ConvInteger, which takes unsigned weights as they are, over that of dense layers."""

PACKED_WEIGHT_NS: Final = 0.2
"""Nanoseconds of a weight, which ConvInteger packs at each call."""

UNSIGNED_GROUPED: Final = 13
"""Times that a product of a ConvInteger of several groups takes of one of a single group."""

GROUP_NS: Final = 250.0
"""Nanoseconds of a group, which it computes by itself."""

FOUND_CODE_NS: Final = 0.03
"""Nanoseconds of a value whose range is found, and that is rounded, by DynamicQuantizeLinear."""

SCALED_SUM_NS: Final = 0.38
"""Nanoseconds of a sum that Cast, Mul and Add make a value of."""

DENSEST: Final = 0.75
"""Density above which no layer gains, whatever its structure."""

COUNTED_PANELS: Final = 8
"""Panels whose steps are counted."""

FEWEST_QUADS: Final = 16
"""Quads of an output in a block, about, below which blocks cost more than lines from beyond the first-level cache."""


class ByteTimes(NamedTuple):
    """Microseconds by family and rows, and the blocks of inputs of each kind of quads."""

    by_family: dict[str, dict[int, float]]
    blocks: dict[str, int]


def predicted(weights: Sequence[CscMatrix], machine: str = DEFAULT, *, yields_floats: bool = True) -> ByteTimes:
    """Return the times of layers with these weights, one after the other, on a machine of `PRICES`.

    The last ones' results are floats, or bytes.
    """
    prices = ALL_PRICES[machine]
    outputs = sum(weight.shape[1] for weight in weights)
    work = [_lookup_work(weight, prices.form) for weight in weights]
    steps, runs = (sum(counts) for counts in zip((0.0, 0.0), *work, strict=True))
    loops = {LOOKUP: {rows: steps * ns for rows, ns in prices.step.items()}}
    if prices.windows:
        loops[WINDOWS] = {rows: steps * ns.step + runs * ns.run for rows, ns in prices.windows.items()}
    times = {
        family: {rows: (ns + outputs * prices.lookup_output * rows / 64) / 1e3 for rows, ns in loop.items()}
        for family, loop in loops.items()
    }
    blocks: dict[str, int] = {}
    counts: list[tuple[str, list[int], float]] = [
        (QUADS, [byte_quads.quad_count(weight) for weight in weights], prices.quad),
        (SCATTERED, [byte_quads.scattered_count(weight) for weight in weights], prices.scattered),
    ]
    counts += [
        (SHARED[share], [byte_quads.shared_count(weight, share) for weight in weights], price)
        for share, price in prices.shared.items()
    ]
    for family, quads, price in counts:
        blocks[family] = max(map(_blocks, weights, quads), default=1)
        ends = outputs * (blocks[family] * prices.pair / byte_quads.PAIR + prices.quads_output)
        rows = weights[-1].shape[1] * prices.float_rows if weights and yields_floats else 0.0
        times[family] = {byte_quads.COLUMNS: (sum(quads) * price + ends + rows) / 1e3}
    if prices.tile:
        # code for CPUs without tiles has blocks of scattered quads
        blocks[TILES], steps = blocks[SCATTERED], sum(map(byte_tiles.step_count, weights))
        times[TILES] = {
            rows: (steps * ns + outputs * prices.lookup_output * rows / 64) / 1e3 for rows, ns in prices.tile.items()
        }
    return ByteTimes(times, blocks)


def dense_layers_us(sizes: Sequence[tuple[int, int]], rows: int, machine: str = DEFAULT) -> float:
    """Return the microseconds of dense layers of so many inputs and outputs in onnxruntime."""
    known = ALL_PRICES[machine].dense
    rate = float(np.interp(log2(max(1, rows)), list(map(log2, known)), list(known.values())))
    return float(sum(DENSE_CALL_US + 1e-3 * inputs * outputs * rows / rate for inputs, outputs in sizes))


class DenseConvolution(NamedTuple):
    """Work of a dense convolution for an image: products, values in and out, taps of all results."""

    products: int
    values: int
    taps: int

    def predicted_us(self, machine: str = DEFAULT) -> float:
        """Return the microseconds that it takes in onnxruntime."""
        moved = MOVED_CODE_NS * self.values + TAP_NS * self.taps
        return 1e-3 * (self.products / ALL_PRICES[machine].dense[byte_quads.COLUMNS] + moved)


class DenseIntegers(NamedTuple):
    """Work of a dense ConvInteger of codes that a call finds: products, weights, groups, values in and out."""

    products: int
    weights: int
    groups: int
    read: int
    written: int

    def predicted_us(self, machine: str = DEFAULT) -> float:
        """Return the microseconds that it takes in onnxruntime, with the nodes around it."""
        rate = UNSIGNED_SHARE * ALL_PRICES[machine].dense[byte_quads.COLUMNS]
        products = self.products / rate
        if self.groups > 1:
            products = UNSIGNED_GROUPED * products + GROUP_NS * self.groups
        values = FOUND_CODE_NS * self.read + SCALED_SUM_NS * self.written
        return 1e-3 * (products + PACKED_WEIGHT_NS * self.weights + values)


def gains(weight: CscMatrix, machine: Machine) -> bool:
    """Return whether a layer is predicted to be faster than a dense one of bytes, whatever the rows.

    A machine decides by its own prices of bytes. One without these, such as one of AVX2, asks all that were measured.
    """
    if len(weight.values) > DENSEST * weight.shape[0] * weight.shape[1]:
        return False
    has_prices = machine.places_bytes or machine.prices in PREDICTED_PRICES
    return all(_gains_on(weight, one, machine) for one in ((machine.prices,) if has_prices else PRICES))


def _gains_on(weight: CscMatrix, prices: str, machine: Machine) -> bool:
    times = predicted([weight], prices).by_family
    if not machine.multiplies_tiles:
        times.pop(TILES, None)
    fastest = {rows: min(time.get(rows, np.inf) for time in times.values()) for rows in times[LOOKUP]}
    size, products = weight.shape[0] * weight.shape[1], ALL_PRICES[prices].dense
    return all(fastest[rows] < DENSE_CALL_US + 1e-3 * size * rows / products[rows] for rows in products)


def _blocks(weight: CscMatrix, quads: int) -> int:
    """Return the blocks of inputs: as many as the cache asks for, unless an output has few quads in each."""
    mean = quads / max(1, weight.shape[1])
    wanted = min(byte_quads.block_count(weight.shape[0]), int(mean // FEWEST_QUADS))
    return max(-(-weight.shape[0] // byte_quads.FARTHEST), wanted, 1)


def _lookup_work(weight: CscMatrix, form: LookupForm) -> tuple[float, float]:
    """Return the steps and runs of all panels, from those of a few."""
    order, lanes = by_length(weight), form.lanes
    panels = -(-len(order) // lanes)
    chosen = np.unique(np.linspace(0, max(0, panels - 1), COUNTED_PANELS).astype(np.int64))
    some = np.concatenate([order[lanes * panel : lanes * (panel + 1)] for panel in chosen])
    part = weight.pattern.taken(some)
    values = np.concatenate([weight.values[weight.pointers[one] : weight.pointers[one + 1]] for one in some])
    taken = CscMatrix((weight.shape[0], len(some)), part.pointers, part.indices, values)
    packed = byte_lookup.pack(taken, form, np.arange(len(some)), np.arange(weight.shape[0]))
    share = panels / max(1, len(chosen))
    return int(packed.starts[-1]) * share, int(packed.panels[-1]) * share

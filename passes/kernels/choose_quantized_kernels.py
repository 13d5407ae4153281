"""Choose the kernels of bytes that execute quantized layers and convolutions, by the rows that are done together.

```mlir
%y = pebble.linear %q, %w bias %b times %m : ...
// ->
%y = pebble.linear %q, %w bias %b times %m
    kernel <byte_lookup from 1, byte_windows from 8, byte_scattered from 57, blocks [byte_scattered: 1],
        predicted [1: 1.0, 8: 2.9, 64: 19.8], "density 0.099; next byte_windows 22.6 us at 64"> : ...
```

Codes are integers of eight bits that stand for values: value = scale * (code - zero).

Look-ups take any number of rows, from 8 on by windows where these have many steps. Quads take 64 columns, or fewer in
the same time, so that they may be faster from 33 rows on or some more: quads of neighbouring inputs where weights come
in blocks, of scattered ones elsewhere. Layers that read each other's codes are done together, by kernels of one kind.
Tiles (AMX) multiply blocks of 64 inputs and 32 outputs, zeros among them, and are
faster than any of these from about 8 rows on, unless few weights are left; CPUs without them take scattered quads.
CPUs that lack instructions for quads look up whatever this says. The rows of a
convolution are the 64 pixels of a tile; the time of a dense product stands beside its kernel.

Kernels that a person wants (`dialect/wanted_kernels.py`) are taken whatever they are predicted to take: of layers that
are done together, the kernel of any counts for all. A wish that came with a file is left where it cannot be had.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Final

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, ModuleOp, f64
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ...dialect.attributes.kernels import KernelAttr
from ...dialect.ops.constants import constant_matrix
from ...dialect.ops.images import Conv2dOp, image_shape
from ...dialect.ops.quantized_layers import QuantizedLayer
from ...dialect.ops.tile_chain import CodeChain, code_chains
from ...dialect.provenance import node_key
from ...dialect.tensors import shape_of
from ...dialect.wanted_kernels import WantedKernel, in_words, read_wishes
from ...kernels.byte_quads import COLUMNS, LEAST_COLUMNS
from ...kernels.byte_times import (
    ALL_PRICES,
    DEFAULT,
    FORMS,
    LOOKUP,
    SCATTERED,
    SHARED,
    TILES,
    WINDOWS,
    DenseConvolution,
    DenseIntegers,
    predicted,
)
from ...kernels.machine import Machine
from ...kernels.tile_widths import PIXELS
from ...sparse.csr import CscMatrix
from ..images.image_layers import pixels_of, tiles_of

GROUPED: Final = 8
"""Times that a product of a dense convolution of several groups takes of one of a single group."""

FEWEST_WINDOW_ROWS: Final = 8
"""Rows from which look-ups go by windows: fewer take less from a window than it costs to read it."""

LINE_FAMILIES: Final = (SCATTERED, *SHARED.values())
"""Kernels that take lines of pixels as they are."""


@dataclass(frozen=True)
class ChooseQuantizedKernels(ModulePass):
    """Write a kernel attribute on all quantized layers."""

    name = "pebble-choose-quantized-kernels"

    prices: str = DEFAULT
    """The machine of `kernels/byte_times.py` whose prices count."""
    kernels: tuple[str, ...] = ()
    """Kernels for layers by name: words such as `fc1=byte_lookup from 1, byte_quads from 64`."""

    @staticmethod
    def on(machine: Machine, kernels: Iterable[tuple[str, str]] = ()) -> "ChooseQuantizedKernels":
        """Return the pass for a machine, with kernels for layers by name."""
        return ChooseQuantizedKernels(machine.prices, in_words(kernels))

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.prices not in ALL_PRICES:
            raise PassFailedException(f"{self.name}: expected prices of {', '.join(ALL_PRICES)}, got {self.prices!r}")
        try:
            wanted = read_wishes(op, self.kernels)
            for chain in code_chains(op.walk()):
                _choose(chain, self.prices, wanted)
            for inner in op.walk():
                if isinstance(inner, Conv2dOp) and inner.times is not None:
                    choose_for_convolution(inner, self.prices, wanted.get(node_key(inner)))
        except ValueError as error:
            raise PassFailedException(f"{self.name}: {error}") from error


def choose_for_convolution(op: Conv2dOp, prices: str, wanted: WantedKernel | None = None) -> None:
    """Write the family that is predicted to be the fastest for a tile of pixels, and the time of a dense product.

    Raises:
        ValueError: a family is wanted that a convolution cannot have.
    """
    (weight,) = _weights([op.on_codes])
    times, blocks = predicted([weight], prices, yields_floats=False)
    best, following, *_ = sorted(LINE_FAMILIES, key=lambda family: times[family][COLUMNS])
    asked = wanted and wanted.family_at(PIXELS, LINE_FAMILIES)
    if asked:
        best, following = asked, following if asked == best else best
    reason = f"density {len(weight.values) / max(1, prod(weight.shape)):.3f}, {tiles_of(op)} tiles of pixels"
    reason += f"; next {following} {times[following][COLUMNS]:.3g} us"
    op.kernel = KernelAttr({1: best}, reason, {PIXELS: times[best][COLUMNS]}, blocks={best: blocks[best]})
    if op.dense_us is not None:
        return  # it was a convolution of floats, which a runtime would compute as such
    _, outputs, height, width = image_shape(op.result)
    pixels, taps = height * width, len(op.window.taps)
    read, written, groups = pixels_of(op.x), pixels_of(op.result), _groups(weight, taps)
    weights = shape_of(op.weight)[0] * outputs // groups
    if op.finds_codes:
        dense = DenseIntegers(weights * pixels, weights, groups, read, written).predicted_us(prices)
    else:
        products = weights * pixels * (GROUPED if groups > 1 else 1)
        dense = DenseConvolution(products, read + written, taps * pixels).predicted_us(prices)
    op.dense_us = FloatAttr(dense, f64)


def _groups(weight: CscMatrix, taps: int) -> int:
    """Return the most groups of channels and outputs that a weight [channels taps, outputs] keeps apart."""
    channels, outputs = weight.shape[0] // taps, weight.shape[1]
    both = gcd(channels, outputs)
    for groups in range(both, 1, -1):
        if both % groups == 0 and np.array_equal(
            weight.rows // taps * groups // channels, weight.columns * groups // outputs
        ):
            return groups
    return 1


def _weights(layers: Sequence[QuantizedLayer]) -> list[CscMatrix]:
    return [matrix for layer in layers if (matrix := constant_matrix(layer.weight)) is not None]


def _choose(chain: CodeChain, prices: str, wishes: Mapping[str, WantedKernel]) -> None:
    """Write the kernels of all layers of a chain, each with its share of the times by connections."""
    weights = _weights(chain.layers)
    times, blocks = predicted(weights, prices, yields_floats=not chain.yields_bytes)
    wanted = _wanted_of(chain, wishes)
    families = None if wanted is None else _families_of(wanted, times)
    if families is None:
        families, reason = _fastest(weights, times)
    else:
        reason = "asked for"
    predicted_us = {rows: times[_at(families, rows)][rows] for rows in times[LOOKUP]}
    last = [*families.values()][-1]
    kernel = KernelAttr(families, reason, predicted_us, blocks={last: blocks[last]} if last in FORMS else {})
    total = max(1, sum(len(weight.values) for weight in weights))
    for op, weight in zip(chain.linears, weights, strict=True):
        share = len(weight.values) / total
        op.kernel = replace(kernel, predicted={rows: share * us for rows, us in kernel.predicted.items()})


def accepted_families(rows: int, times: Mapping[str, Mapping[int, float]]) -> list[str]:
    """Return the families that may be used from so many rows on, of those that have times."""
    least = {LOOKUP: 1, WINDOWS: FEWEST_WINDOW_ROWS, **dict.fromkeys(FORMS, LEAST_COLUMNS), TILES: FEWEST_WINDOW_ROWS}
    return [family for family, fewest in least.items() if family in times and rows >= fewest]


def _wanted_of(chain: CodeChain, wishes: Mapping[str, WantedKernel]) -> WantedKernel | None:
    """Return the kernel that is wanted for the layers of a chain.

    Raises:
        ValueError: different ones are wanted.
    """
    wanted = [wishes[key] for key in map(node_key, chain.linears) if key in wishes]
    for one in wanted[1:]:
        if one.families != wanted[0].families:
            raise ValueError(f"layer {one.layer}: expected the kernel of {wanted[0].layer}, which is done with it")
    return wanted[0] if wanted else None


def _families_of(wanted: WantedKernel, times: Mapping[str, Mapping[int, float]]) -> dict[int, str] | None:
    """Return the families that are wanted; None where one cannot be had, and need not.

    Raises:
        ValueError: one cannot be had.
    """
    last = [*wanted.families][-1]
    for rows in wanted.families:
        accepted = accepted_families(rows, times)
        if rows != last:
            # layers are packed for one kind of quads, which all more rows are for
            accepted = [family for family in accepted if family not in FORMS]
        if wanted.family_at(rows, accepted) is None:
            return None
    return dict(wanted.families)


def _at(families: Mapping[int, str], rows: int) -> str:
    return families[max(start for start in families if start <= rows)]


def _fastest(weights: Sequence[CscMatrix], times: Mapping[str, Mapping[int, float]]) -> tuple[dict[int, str], str]:
    """Return the fastest families by the rows from which each is used, and why."""
    connections = sum(len(weight.values) for weight in weights)
    density = connections / max(1, sum(weight.shape[0] * weight.shape[1] for weight in weights))
    lookups = WINDOWS if _gain_by_windows(times) else LOOKUP
    quads = [family for family in FORMS if family in times]
    best, following, *_ = sorted((lookups, *quads), key=lambda family: times[family][COLUMNS])
    families = {1: LOOKUP, FEWEST_WINDOW_ROWS: WINDOWS} if lookups == WINDOWS else {1: LOOKUP}
    if best == TILES and times[TILES][FEWEST_WINDOW_ROWS] < times[lookups][FEWEST_WINDOW_ROWS]:
        families[FEWEST_WINDOW_ROWS] = TILES
    elif best in FORMS:
        families[_fewest_columns(times[best][COLUMNS] / times[lookups][COLUMNS])] = best
    return families, f"density {density:.3f}; next {following} {times[following][COLUMNS]:.3g} us at {COLUMNS}"


def _gain_by_windows(times: Mapping[str, Mapping[int, float]]) -> bool:
    """Return whether look-ups by windows are faster, for few rows and for many."""
    windows = times.get(WINDOWS, {})
    return bool(windows) and all(us < times[LOOKUP][rows] for rows, us in windows.items())


def _fewest_columns(share: float) -> int:
    """Return the rows from which quads, that take as long for any number of rows, are faster than look-ups.

    For all columns they take this share of the time.
    """
    eighths = int(share * COLUMNS / FEWEST_WINDOW_ROWS)
    return max(LEAST_COLUMNS, eighths * FEWEST_WINDOW_ROWS + 1)

"""`code_bits`, `code_bytes`, `code_halves`: weights of four or eight bits that are not zero, and a bit for each weight.

Sixteen neighbouring outputs are a panel. A chunk is 4 neighbouring inputs of a panel: 64 weights, the 4 of an output
side by side, with a word of 64 bits that says which of them are stored, one behind the other through all of a panel.
Codes of four bits of two chunks lie in the same bytes: those of chunks with even numbers are the low halves, and those
of odd ones the high halves. Where zeros are spread evenly both are about as long. `code_halves` stores zeros like all
other codes, and no words.

The inputs of a unit, 32 neighbours or 16, have a scale together, and so have the weights of an output there.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..family import GroupedCodes, KernelFamily, LayerWeights
from ..work import Layer, Tile, Work
from .code_slots import GREATEST_SCALE, LOOKED_UP, PANEL_WIDTH, PANELS_AT_ONCE, PASS_ROWS, UNIT, WIDTHS

CHUNK_INPUTS: Final = 4
"""Inputs of a chunk: bytes that an instruction multiplies and adds in a lane."""

CHUNK: Final = CHUNK_INPUTS * PANEL_WIDTH
"""Weights of a chunk, a bit of a word each."""

BLOCK_ROWS: Final = 8
"""Rows that share a reading of codes."""

SCALE_BYTES: Final = 2 * PANEL_WIDTH

FOUR: Final = 4

Bytes = NDArray[np.uint8]

Steps = NDArray[np.signedinteger]


class PackedBits(NamedTuple):
    """Panels of 16 outputs, packed."""

    sizes: NDArray[np.uint64]
    """Units of a panel, inputs of a unit, bytes of a unit, whether it has zeros; then for each panel the byte at which
    its codes begin."""
    heads: NDArray[np.float32]
    """[panels, 2, 16]: what scales are multiples of, and the bias."""
    units: Bytes
    """[panels, units, bytes]: a word for each chunk, unless zeros are stored; scales, 16 of 16 bits; the zero of each
    output in a byte, if there are any but the middle code."""
    codes: Bytes
    """The codes of all panels, and room behind them to read a chunk too far."""


SIZE_WORDS: Final = 4
"""Numbers in `PackedBits.sizes` before those of panels."""


def pack(weights: LayerWeights, *, stores_zeros: bool = False) -> PackedBits:
    """Return the packed form of a layer, without its zeros or, if it has four bits, with them.

    Raises:
        ValueError: the weights are no codes with a scale for each group.
    """
    codes, (inputs, outputs) = weights.codes, weights.weight.shape
    if codes is None:
        raise ValueError("expected codes with a scale for each group of inputs, got floats")
    middle = 1 << (codes.bits - 1)
    unit = UNIT if codes.size >= UNIT else LOOKED_UP
    units, panels = -(-inputs // unit), -(-outputs // PANEL_WIDTH)
    steps = weights.steps((panels * PANEL_WIDTH, units * unit), np.int8 if codes.bits == FOUR else np.int16)
    zeros = _zeros(steps.reshape(panels, PANEL_WIDTH, units, unit), middle)
    has_zeros = bool((zeros != middle).any())
    factors, scales = _scales(codes, units, unit, panels)
    parts = [
        _panels(steps[first * PANEL_WIDTH : last * PANEL_WIDTH], zeros[first:last], codes.bits, stores_zeros)
        for first in range(0, panels, PANELS_AT_ONCE)
        for last in [min(panels, first + PANELS_AT_ONCE)]
    ]
    masks = np.concatenate([part.masks for part in parts]).reshape(panels, units, -1)
    columns = [
        masks,
        scales.view(np.uint8).reshape(panels, units, -1),
        *([zeros.astype(np.uint8)] if has_zeros else []),
    ]
    lengths = np.concatenate([part.lengths for part in parts])
    unit_bytes = sum(column.shape[2] for column in columns)
    sizes = np.array([units, unit, unit_bytes, has_zeros, *(np.cumsum(lengths) - lengths)], np.uint64)
    bias = np.zeros(panels * PANEL_WIDTH, np.float32)
    bias[:outputs] = weights.bias
    heads = np.stack([factors, bias.reshape(panels, PANEL_WIDTH)], axis=1)
    stream = np.concatenate([*(part.codes for part in parts), np.zeros(CHUNK, np.uint8)])
    return PackedBits(sizes, heads, np.concatenate(columns, axis=2), stream)


def _zeros(steps: Steps, middle: int) -> NDArray[np.int16]:
    """Return for each output of a unit a code of 0 for which all its codes have no more bits [panels, units, 16]."""
    # where all steps are positive the code of 0 is 0: a negative one is no byte
    least, most = steps.min(axis=3, initial=0), steps.max(axis=3)
    is_middle = (least >= -middle) & (most < middle)
    return np.where(is_middle, middle, -least.astype(np.int16)).astype(np.int16).swapaxes(1, 2)


def _scales(codes: GroupedCodes, units: int, unit: int, panels: int) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
    """Return factors of outputs [panels, 16], and of which multiples their scales are [panels, units, 16]."""
    scales = np.zeros((panels * PANEL_WIDTH, units))
    scales[: len(codes.scales)] = codes.scales[:, np.arange(units) * unit // codes.size]
    factors = np.abs(scales).max(axis=1, initial=0.0) / GREATEST_SCALE
    factors = np.where(factors > 0, factors, 1.0)
    multiples = np.rint(scales / factors[:, np.newaxis]).astype(np.int16)
    placed = multiples.reshape(panels, PANEL_WIDTH, units).swapaxes(1, 2)
    return factors.astype(np.float32).reshape(panels, PANEL_WIDTH), np.ascontiguousarray(placed)


class _Panels(NamedTuple):
    """Masks [panels, chunks, 8], bytes of codes of each panel, and these."""

    masks: Bytes
    lengths: NDArray[np.int64]
    codes: Bytes


def _panels(steps: Steps, zeros: NDArray[np.int16], bits: int, stores_zeros: bool) -> _Panels:
    """Return some panels of steps [16 * panels, inputs]."""
    panels, units = zeros.shape[:2]
    in_units = steps.reshape(panels, PANEL_WIDTH, units, -1, CHUNK_INPUTS).transpose(0, 2, 3, 1, 4)
    codes = (in_units + zeros[:, :, np.newaxis, :, np.newaxis].astype(steps.dtype)).astype(np.uint8)
    codes = codes.reshape(panels, -1, CHUNK)
    if stores_zeros:
        halves = codes[:, 0::2] | codes[:, 1::2] << np.uint8(FOUR)
        lengths = np.full(panels, halves[0].size, np.int64)
        return _Panels(np.zeros((panels, codes.shape[1], 0), np.uint8), lengths, halves.reshape(-1))
    is_stored = (in_units != 0).reshape(panels, -1, CHUNK)
    halves = [slice(half, None, 2) for half in (0, 1)] if bits == FOUR else [slice(0, None, 1)]
    counts = [is_stored[:, half].sum(axis=(1, 2)) for half in halves]
    lengths = np.maximum.reduce(counts)
    starts, stream = np.cumsum(lengths) - lengths, np.zeros(int(lengths.sum()), np.uint8)
    for half, count in zip(halves, counts, strict=True):
        places = np.arange(int(count.sum())) + np.repeat(starts - (np.cumsum(count) - count), count)
        stream[places] |= codes[:, half][is_stored[:, half]] << np.uint8(FOUR * half.start)
    return _Panels(np.packbits(is_stored, axis=2, bitorder="little"), lengths, stream)


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work: chunks read, chunks of all rows, units read, units of all rows, inputs rounded."""
    rows, panels = tile.width, -(-layer.outputs // PANEL_WIDTH)
    chunks, units = panels * -(-layer.inputs // CHUNK_INPUTS), panels * -(-layer.inputs // UNIT)
    reads = -(-rows // BLOCK_ROWS)
    if layer.stored == "dense":
        code_bytes = chunks * (CHUNK * FOUR / 8)
    else:
        code_bytes = chunks * (CHUNK / 8) + layer.connections * (layer.code_bits or FOUR) / 8
    read_bytes = code_bytes + SCALE_BYTES * units
    work_units = (chunks * reads, chunks * rows, units * reads, units * rows, float(layer.inputs * rows))
    return Work(tuple(map(float, work_units)), read_bytes, -(-rows // PASS_ROWS))


FAMILY = KernelFamily(
    "code_bits",
    pack,
    work,
    WIDTHS,
    lanes=(16,),
    rounds="groups",
    row_major=True,
    needs="places_bytes",
    # of 4096 x 4096 at 1, 8 and 128 rows on a Xeon (Emerald Rapids) that others used: upper ends
    prices={16: (0.35, 0.36, 0.8, 0.8, 0.75, 0.7)},
)

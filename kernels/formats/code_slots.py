"""`code_slots`: weights of four bits beside the places where their inputs are looked up, in bytes.

Sixteen outputs, a panel, have two slots each in a step of 32 bytes; all slots of a step look up 16 neighbouring inputs.
A slot is a byte: the input among these 16 in the lowest four bits, the size of the weight in three, its sign in one. A
weight of more than 7 steps of its scale takes several slots, and a slot without a weight is 0.

Where a panel would need many steps for 16 inputs, all weights of this block are stored, its zeros too, as codes of four
bits: half as many bytes, and no more instructions. The two inputs of a word of 16 outputs lie side by side. A block in
which no output has more than two weights of four neighbouring inputs (2:4) has these two as codes of four bits, and
their places among the four in two bits.

The inputs of a unit, 32 neighbours or 16, have a scale together, and so have the weights of an output there. Each panel
has its units in an order of its own, those with equally many steps one after the other: the end of a loop over a few
steps is foreseen only if it comes after as many as before.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..family import SPARSE, GroupedCodes, KernelFamily, LayerWeights
from ..work import Layer, Tile, Work

PANEL_WIDTH: Final = 16
"""Outputs of a panel."""

LOOKED_UP: Final = 16
"""Inputs that are looked up in one register."""

SLOTS: Final = 2
"""Slots of an output in a step."""

STEP_BYTES: Final = PANEL_WIDTH * SLOTS

MOST_IN_SLOT: Final = 7
"""The largest size of a weight in one slot."""

SIGN_BIT: Final = 128

LEAST_DENSE: Final = 5
"""Steps of a block from which on all its weights are stored."""

DENSE_LINES: Final = 4
"""Lines of 32 bytes that these take."""

DENSE_BIT: Final = 128
"""The bit of the number of a block's lines that says that they are no steps."""

PAIR_INPUTS: Final = 4
"""Neighbouring inputs of which an output has two weights."""

LEAST_PAIRED: Final = 4
"""Steps of a block from which on two weights of each four inputs are stored, where there are no more."""

PAIRED_LINES: Final = 3
"""Lines that these take: codes of the first and second four inputs, of the others, then their places."""

MIDDLE: Final = 8
"""The code of 0 where all weights of a block are stored."""

MOST_OF_UNIT: Final = 257
"""Sizes of an output's weights in a unit, all together, whose products with inputs up to 127 are 16-bit numbers."""

UNIT: Final = 2 * LOOKED_UP

AT_ONCE: Final = 4
"""Rows that share a reading of slots."""

PASS_ROWS: Final = 16
"""Rows that go through a panel before the next one."""

WIDTHS: Final = (1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64, 96)

GREATEST_SCALE: Final = 32767
"""The scale of a unit as a multiple of a share of the output's largest."""

PANELS_AT_ONCE: Final = 64
"""Panels that are packed or read together, to save memory."""

HEAD_WORDS: Final = 4 * PANEL_WIDTH
"""Numbers of the panel's outputs (-1 for none), their factors and biases, even outputs first; steps before its own."""

Ids = NDArray[np.int64]

Steps = NDArray[np.signedinteger]


LINE: Final = np.dtype(f"V{STEP_BYTES}")
"""The type of the packed array, which no other one has: what keeps it may store it in fewer bytes."""

HEADER_WORDS: Final = STEP_BYTES // 4
"""Numbers in the first line: see `Header`."""


class Header(NamedTuple):
    """Units of a panel, inputs of a unit, panels; from which lines on there are units, scales and slots; all lines."""

    units: int
    unit: int
    panels: int
    first_units: int
    first_scales: int
    first_slots: int
    lines: int


class PackedSlots(NamedTuple):
    """Panels of 16 outputs, packed.

    heads u32 [panels, 64]. units u32 [panels, units]: lines of the first 16 inputs, those of the others in bits 8 to
    15, the number of the unit above. scales i16 [panels, units, 16]. slots u8 [lines, 32].
    """

    unit: int
    """Inputs of a unit."""
    heads: NDArray[np.uint32]
    units: NDArray[np.uint32]
    scales: NDArray[np.int16]
    slots: NDArray[np.uint8]

    @property
    def array(self) -> NDArray[np.void]:
        """The same as lines of 32 bytes, those of the header first."""
        parts = [_as_lines(part) for part in self[1:]]
        starts = 1 + np.cumsum([0, *map(len, parts)])
        header = Header(self.units.shape[1], self.unit, len(self.heads), *map(int, starts[1:]))
        first = np.array([*header, *[0] * (HEADER_WORDS - len(header))], np.uint32)
        return np.concatenate([_as_lines(first), *parts])

    @classmethod
    def of(cls, array: NDArray[np.void]) -> "PackedSlots":
        """Return the parts of an array."""
        header = header_of(array)
        panels, units = header.panels, header.units
        heads, places = (
            array[start:].view(np.uint32)[: panels * count].reshape(panels, count)
            for start, count in ((1, HEAD_WORDS), (header.first_units, units))
        )
        scales = array[header.first_scales :].view(np.int16)[: panels * units * PANEL_WIDTH]
        return cls(
            header.unit,
            heads,
            places,
            scales.reshape(panels, units, PANEL_WIDTH),
            array[header.first_slots :].view(np.uint8).reshape(-1, STEP_BYTES),
        )


def header_of(array: NDArray[np.void]) -> Header:
    """Return the header of a packed array."""
    return Header(*map(int, array[:1].view(np.uint32)[: len(Header._fields)]))


def _as_lines(part: NDArray[Any]) -> NDArray[np.void]:
    content = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
    return np.pad(content, (0, -len(content) % STEP_BYTES)).view(LINE)


def pack(weights: LayerWeights) -> tuple[NDArray[np.void]]:
    """Return the array of the panels, outputs with most weights first.

    Raises:
        ValueError: the weights are no codes with a scale for each group.
    """
    codes, (inputs, outputs) = weights.codes, weights.weight.shape
    if codes is None:
        raise ValueError("expected codes with a scale for each group of inputs, got floats")
    is_small = not codes.steps.size or np.abs(codes.steps).max() <= np.iinfo(np.int8).max - MOST_IN_SLOT
    # the last output is that of members that are none
    steps = weights.steps((outputs + 1, -(-inputs // UNIT) * UNIT), np.int8 if is_small else np.int16)
    unit = unit_of(codes, steps)
    units = -(-inputs // unit)
    order = np.argsort(-np.count_nonzero(steps[:outputs], axis=1), kind="stable")
    panels = -(-outputs // PANEL_WIDTH)
    members = np.full(panels * PANEL_WIDTH, -1, np.int64)
    members[:outputs] = order
    parts = [
        _panels(
            steps[:, : units * unit],
            weights.bias,
            codes,
            members[first : first + PANELS_AT_ONCE * PANEL_WIDTH].reshape(-1, PANEL_WIDTH),
            unit,
        )
        for first in range(0, panels * PANEL_WIDTH, PANELS_AT_ONCE * PANEL_WIDTH)
    ]
    heads, places, scales, slots = (np.concatenate(part) for part in zip(*parts, strict=True))
    lines = ((places & DENSE_BIT - 1) + (places >> 8 & DENSE_BIT - 1)).sum(axis=1)
    heads[:, 3 * PANEL_WIDTH] = np.cumsum(lines) - lines
    return (PackedSlots(unit, heads, places, scales, slots).array,)


def unit_of(codes: GroupedCodes, steps: Steps) -> int:
    """Return the inputs of a unit: so few that sums of products with inputs are numbers of 16 bits."""
    if codes.size < UNIT:
        return LOOKED_UP
    largest = np.abs(steps).reshape(-1, UNIT).sum(axis=1, dtype=np.int32).max(initial=0)
    return UNIT if 0 < largest <= MOST_OF_UNIT else LOOKED_UP


def _panels(
    steps: Steps, bias: NDArray[np.float32], codes: GroupedCodes, members: Ids, size: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.int16], NDArray[np.uint8]]:
    """Return heads, units, scales and slots of some panels; members [panels, 16] are their outputs, -1 for none."""
    units, blocks, panels = steps.shape[1] // size, steps.shape[1] // LOOKED_UP, len(members)
    # [panels, blocks, outputs, inputs]
    held = steps[members].reshape(panels, PANEL_WIDTH, blocks, LOOKED_UP).swapaxes(1, 2)
    needed = -(-_pieces(held).sum(axis=3, dtype=np.int32).max(axis=2) // SLOTS)
    fit = _fit_in_codes(codes)
    paired = (needed >= LEAST_PAIRED) & fit
    paired[paired] = _most_of_quads(held[paired]) <= SLOTS
    dense = (needed >= LEAST_DENSE) & fit & ~paired
    lines = np.where(paired, PAIRED_LINES, np.where(dense, DENSE_LINES, needed)).astype(np.int64)
    by_unit = (lines | (dense | paired) * DENSE_BIT).reshape(panels, units, -1)
    first, second = by_unit[..., 0], by_unit[..., 1] if size > LOOKED_UP else np.zeros_like(by_unit[..., 0])
    order = np.argsort(first * 256 + second, axis=1, kind="stable")
    words = np.take_along_axis(first | second << 8, order, axis=1) | order << 16
    # lines before each block, in the order of the units
    in_order = np.take_along_axis(lines.reshape(by_unit.shape), order[..., np.newaxis], axis=1)
    ends = np.cumsum(in_order.reshape(-1))
    before = np.empty_like(by_unit)
    np.put_along_axis(before, order[..., np.newaxis], (ends - in_order.reshape(-1)).reshape(by_unit.shape), axis=1)
    starts = before.reshape(panels, blocks)
    slots = np.zeros((int(ends[-1]), STEP_BYTES), np.uint8)
    _write_slots(held[~(dense | paired)], starts[~(dense | paired)], slots)
    for kind, count, lines_of in ((dense, DENSE_LINES, _dense_lines), (paired, PAIRED_LINES, _paired_lines)):
        if kind.any():
            by_input = held[kind].swapaxes(1, 2) + np.int8(MIDDLE)
            slots[starts[kind][:, np.newaxis] + np.arange(count)] = lines_of(by_input.astype(np.uint8).reshape(-1))
    factors, scales = _scales(codes, members, (size, units), order)
    return _heads(members, factors, bias), words.astype(np.uint32), scales, slots


def _pieces(steps: Steps) -> Steps:
    """Return the slots that each weight takes."""
    return (np.abs(steps) + np.int8(MOST_IN_SLOT - 1)) // np.int8(MOST_IN_SLOT)


def _most_of_quads(blocks: Steps) -> NDArray[np.uint8]:
    """Return how many of four neighbouring inputs an output of each block has at most."""
    quads = np.ascontiguousarray(blocks != 0).view(np.uint32)
    return np.bitwise_count(quads).max(axis=(1, 2), initial=0)


def _write_slots(blocks: Steps, starts: Ids, slots: NDArray[np.uint8]) -> None:
    """Write blocks [blocks, 16 outputs, 16 inputs] into their steps, each from its line on."""
    pieces = _pieces(blocks)
    # the number of each weight's first slot among those of its output in the block
    firsts = np.cumsum(pieces, axis=2, dtype=np.int16) - pieces
    block, output, place = np.nonzero(blocks)
    step, count, rank = blocks[block, output, place], pieces[block, output, place], firsts[block, output, place]
    line, size = starts[block], np.abs(step)
    sign = np.where(step < 0, np.uint8(SIGN_BIT), np.uint8(0)) | place.astype(np.uint8)
    for piece in range(int(count.max(initial=0))):
        if piece:
            longer = count > piece
            line, output, sign, count, rank, size = (
                one[longer] for one in (line, output, sign, count, rank, size - MOST_IN_SLOT)
            )
        held = np.minimum(size, MOST_IN_SLOT).astype(np.uint8)
        at = rank + piece
        slots[line + at // SLOTS, output * SLOTS + at % SLOTS] = sign | held << np.uint8(4)


def _fit_in_codes(codes: GroupedCodes) -> bool:
    """Return whether four bits hold all weights, that of 0 being the middle one."""
    return not codes.steps.size or bool(codes.steps.min() >= -MIDDLE and codes.steps.max() < MIDDLE)


def _dense_lines(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return blocks of codes [blocks * 16 inputs * 16 outputs] as lines [blocks, 4, 32].

    A line has four inputs: of each output the first two in the low halves of two bytes, the others in the high halves.
    """
    halves = codes.reshape(-1, DENSE_LINES, 2, 2, PANEL_WIDTH).swapaxes(3, 4).reshape(-1, DENSE_LINES, 2, STEP_BYTES)
    return halves[:, :, 0] | halves[:, :, 1] << np.uint8(4)


def _paired_lines(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return blocks of codes [blocks * 16 inputs * 16 outputs], two of each four inputs, as lines [blocks, 3, 32].

    An output has two bytes of a line; codes of the second and fourth four inputs lie in the high halves.
    """
    block, output, place = np.nonzero(codes.reshape(-1, LOOKED_UP, PANEL_WIDTH).swapaxes(1, 2) != MIDDLE)
    quad, number = place // PAIR_INPUTS, np.arange(len(block))
    cell = (block * PANEL_WIDTH + output) * (LOOKED_UP // PAIR_INPUTS) + quad
    slot = output * SLOTS + number - np.searchsorted(cell, cell)
    held = np.full((len(codes) // (LOOKED_UP * PANEL_WIDTH), LOOKED_UP // PAIR_INPUTS, STEP_BYTES), MIDDLE, np.uint8)
    held[block, quad, slot] = codes.reshape(-1, LOOKED_UP, PANEL_WIDTH)[block, place, output]
    places = np.zeros_like(held)
    places[block, quad, slot] = place % PAIR_INPUTS << 2 * quad
    halves = held[:, 0::2] | held[:, 1::2] << np.uint8(4)
    return np.concatenate([halves, np.bitwise_or.reduce(places, axis=1, keepdims=True)], axis=1)


def _scales(
    codes: GroupedCodes, members: Ids, unit: tuple[int, int], order: Ids
) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
    """Return the factor of each member [panels, 16], and of which multiples its scales are [panels, units, 16]."""
    size, units = unit
    groups = np.arange(units) * size // codes.size
    scales = np.where(members[..., np.newaxis] >= 0, codes.scales[members][..., groups], 0).astype(np.float64)
    factors = np.abs(scales).max(axis=2, initial=0.0) / GREATEST_SCALE
    factors = np.where(factors > 0, factors, 1.0)
    multiples = np.rint(scales / factors[..., np.newaxis]).astype(np.int16)
    placed = np.take_along_axis(multiples.swapaxes(1, 2), order[..., np.newaxis], axis=1)
    return factors.astype(np.float32), np.ascontiguousarray(placed)


def _heads(members: Ids, factors: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return the heads of panels [panels, 64], without the steps before them."""
    evens_first = [*range(0, PANEL_WIDTH, 2), *range(1, PANEL_WIDTH, 2)]
    added = np.where(members >= 0, bias[members], 0).astype(np.float32)
    parts = [members.astype(np.int32).view(np.uint32), factors.view(np.uint32), added.view(np.uint32)]
    parts.append(np.zeros_like(parts[0]))
    return np.concatenate([part[:, evens_first] for part in parts], axis=1)


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work: lines that are read, steps of all rows, units that are read, units of all rows, inputs rounded.

    A panel does as many steps over 16 inputs as its fullest output needs: of 16 outputs one is 1.77 deviations above
    the mean, as far as weights are spread evenly.
    """
    rows, blocks, panels = tile.width, -(-layer.inputs // LOOKED_UP), -(-layer.outputs // PANEL_WIDTH)
    fullest = layer.fullest(PANEL_WIDTH) / max(1, layer.inputs)
    mean = LOOKED_UP * np.clip(fullest, 0.0, 1.0)
    most = mean + FULLEST * np.sqrt(mean * (1 - mean / LOOKED_UP))
    # half a step is left over on the mean
    steps = np.minimum(LOOKED_UP, most + 0.5) / SLOTS * -np.expm1(-2 * mean * PANEL_WIDTH)
    dense = steps > LEAST_DENSE - 0.4
    lines = blocks * float(np.where(dense, DENSE_LINES, steps).sum())
    products = blocks * float(np.where(dense, DENSE_STEPS, steps).sum())
    units = panels * blocks / 2
    reads = -(-rows // AT_ONCE)
    read_bytes = STEP_BYTES * lines + (4 + 2 * PANEL_WIDTH) * units
    work_units = (lines * reads, products * rows, units * reads, units * rows, float(layer.inputs * rows))
    return Work(work_units, read_bytes, -(-rows // PASS_ROWS))


DENSE_STEPS: Final = 6
"""Steps that take as many instructions of a row as a block all of whose weights are stored."""

FULLEST: Final = 1.77
"""Deviations by which the fullest of 16 outputs is above the mean."""


FAMILY = KernelFamily(
    "code_slots",
    pack,
    work,
    WIDTHS,
    stored=(*SPARSE, "dense"),
    rounds="groups",
    row_major=True,
    # of 8 floats as measured on Zen 1, over 3.5, within 6 %; of 16 they are upper ends, by counting instructions; of 4,
    # where nothing looks up bytes, estimates: see `ChooseKernels`
    prices={
        4: (0.4, 12.0, 1.2, 2.0, 1.2, 1.0),
        8: (0.215, 0.407, 0.63, 0.978, 0.576, 1.0),
        16: (0.35, 0.5, 0.8, 1.4, 0.75, 1.0),
    },
)

"""Unpacking of weights of four bits that files hold in fewer bytes (`kernels/formats/stored_slots.py`)."""

from typing import Final

from ...kernels.formats.code_slots import (
    DENSE_BIT,
    DENSE_LINES,
    HEAD_WORDS,
    LOOKED_UP,
    MIDDLE,
    MOST_IN_SLOT,
    PAIR_INPUTS,
    PAIRED_LINES,
    PANEL_WIDTH,
    SIGN_BIT,
    SLOTS,
    STEP_BYTES,
)
from ...kernels.formats.stored_slots import DENSE_KEY, FOUR_BITS, HEADER_BYTES, PAIRED_KEY, StoredHeader
from ..llvm.flow import Blocks, loop, select, when
from ..llvm.values import BYTE, I32, Bytes, Ints, Longs, Number, Shorts
from .words import Struct, WordCode, Words, number

KEYS: Final = 256
"""Keys that a unit may have."""

PLACES_AT: Final = (PAIRED_LINES - 1) * STEP_BYTES
"""Bytes from the codes of two weights of each four inputs to their places."""

NO_WEIGHTS: Final = 0x88
"""A byte of two codes of 0."""


class _State(Struct):
    """Words that change on the way."""

    code = number()
    """The number of the next code."""
    gap = number()
    """The number of the next gap."""
    left = number()
    """Zeros before the next weight."""
    line = number()
    """The address of the next line."""


def emit_slot_unpacking(code: WordCode, *, exported: bool = False) -> None:
    """Emit `unpack_slots (stored, packed)`, which writes all of the packed array."""
    _emit_units(code)
    _emit_next_gap(code)
    _emit_block(code)

    @code.function(exported=exported)
    def unpack_slots(stored: Bytes, packed: Bytes) -> None:
        scales, keys = (stored.after(number) for number in _numbers(stored, "scales", "keys"))
        first = stored.after(HEADER_BYTES)
        header = first.cast(Ints)
        units, unit, panels, first_units, first_scales, first_slots = (header[index] for index in range(6))
        _copy(first, packed, panels * (4 * HEAD_WORDS) + STEP_BYTES)
        _copy(scales, packed.after(first_scales * STEP_BYTES), panels * units * (2 * PANEL_WIDTH))
        lines = packed.after(first_units * STEP_BYTES)
        with loop((first_scales - first_units) * (STEP_BYTES // 8)) as index:
            lines.cast(Longs)[index] = 0
        words = lines.cast(Ints)
        state = code.words(_State.word_count).cast(_State)
        state.code, state.gap, state.left = (code.constant(0) for _ in range(3))
        state.line = packed.after(first_slots * STEP_BYTES).number()
        with when(_numbers(stored, "has_gaps")[0] != 0):
            state.left = code.number("next_gap", stored, state)
        halves = unit // LOOKED_UP
        with loop(panels) as panel:
            code.call("order_units", keys.after(panel * units), words.at(panel * units), units)
        with loop(panels * units) as place:
            word = words[place]
            with loop(halves) as half:
                kind = (word >> (half * 8)) & (KEYS - 1)
                code.call("unpack_block", stored, state, place, place * halves + half, kind)


def _numbers(stored: Bytes, *names: str) -> list[Number]:
    header = stored.cast(Ints)
    return [header[StoredHeader._fields.index(name)] for name in names]


def _copy(source: Bytes, target: Bytes, size: Number) -> None:
    """Copy bytes, a multiple of eight."""
    here, there = source.cast(Longs), target.cast(Longs)
    with loop(size // 8) as index:
        there[index] = here[index]


def _emit_units(code: WordCode) -> None:
    """Emit `order_units (keys, words, units)`: the words of a panel, in the order of their keys."""

    @code.function()
    def order_units(keys: Bytes, words: Ints, units: Number) -> None:
        starts = code.words(KEYS + 1)
        with loop(code.constant(KEYS + 1)) as key:
            starts[key] = 0
        with loop(units) as unit:
            following = keys[unit] + 1
            starts[following] = starts[following] + 1
        with loop(code.constant(KEYS)) as key:
            starts[key + 1] = starts[key + 1] + starts[key]
        with loop(units) as unit:
            key = keys[unit]
            place = starts[key]
            starts[key] = place + 1
            first, second = (_kind_of(half) for half in (key >> 4, key & FOUR_BITS))
            words[place] = (first | second << 8 | unit << 16).narrow(I32)


def _kind_of(key: Number) -> Number:
    """Return the kind of a block by its key."""
    paired = select(key == PAIRED_KEY, DENSE_BIT | PAIRED_LINES, key)
    return select(key == DENSE_KEY, DENSE_BIT | DENSE_LINES, paired)


def _emit_next_gap(code: WordCode) -> None:
    """Emit `next_gap (stored, state) -> i64`: the zeros before the next weight; many behind the last one."""

    @code.function()
    def next_gap(stored: Bytes, state: _State) -> Number:
        places, codes = (stored.after(number) for number in _numbers(stored, "places", "codes"))
        end = (codes.number() - places.number()) * 2
        total = code.words()
        total[0] = 0
        with loop(end - state.gap) as _:
            number = state.gap
            state.gap = number + 1
            gap = _half(places, number)
            total[0] = total[0] + gap
            with when(gap != FOUR_BITS):
                code.leave(total[0])
        return code.constant(1 << 40)


def _half(values: Bytes, number: Number) -> Number:
    """Return one of the values of four bits."""
    return (values[number >> 1] >> ((number & 1) << 2)) & FOUR_BITS


def _emit_block(code: WordCode) -> None:
    """Emit `unpack_block (stored, state, unit, block, kind)`: the lines of 16 inputs of a panel."""
    _emit_mask(code)
    _emit_place(code)

    @code.function()
    def unpack_block(stored: Bytes, state: _State, unit: Number, block: Number, kind: Number) -> None:
        has_zeros = _numbers(stored, "has_zeros")[0]
        zeros, codes = (stored.after(number) for number in _numbers(stored, "zeros", "codes"))
        is_dense, lines = kind >= DENSE_BIT, kind & (DENSE_BIT - 1)
        is_paired = kind == DENSE_BIT | PAIRED_LINES
        target = Bytes(code.builder, code.builder.inttoptr(state.line.value, Bytes.argument_type))
        fill = select(is_dense, code.constant(NO_WEIGHTS), code.constant(0)).narrow(BYTE)
        with loop(lines * STEP_BYTES) as index:
            target[index] = fill
        with when(is_paired), loop(code.constant(STEP_BYTES)) as index:
            target[index + PLACES_AT] = 0
        zero, mask, rank = (code.words() for _ in range(3))
        with loop(code.constant(PANEL_WIDTH)) as output:
            zero[0] = MIDDLE
            with when(has_zeros != 0):
                zero[0] = _half(zeros, unit * PANEL_WIDTH + output)
            rank[0] = 0
            mask[0] = code.number("next_mask", stored, state, block * PANEL_WIDTH + output)
            with loop(mask[0].set_bits()) as _:
                left = mask[0]
                lowest = ((left & -left) - 1).set_bits()
                mask[0] = left & (left - 1)
                number = state.code
                state.code = number + 1
                step = ((_half(codes, number) + zero[0]) & FOUR_BITS) - zero[0]
                flow = Blocks(code.builder, "codes", "whole", "pairs", "slots", "placed")
                flow.branch(is_dense, "codes", "slots")
                flow.at("codes")
                flow.branch(is_paired, "pairs", "whole")
                flow.at("whole")
                _place_code(target, output, lowest, step)
                flow.go("placed")
                flow.at("pairs")
                _place_pair(target, rank, output, lowest, step)
                flow.go("placed")
                flow.at("slots")
                code.call("place_slots", target, rank, output, lowest, step)
                flow.go("placed")
                flow.at("placed")
        state.line = state.line + lines * STEP_BYTES


def _place_code(target: Bytes, output: Number, place: Number, step: Number) -> None:
    """Add a weight to the code of 0 at its place."""
    at = (place >> 2) * STEP_BYTES + output * 2 + (place & 1)
    target[at] = (target[at] + (step << ((place & 2) << 1))).narrow(BYTE)


def _place_pair(target: Bytes, rank: Words, output: Number, place: Number, step: Number) -> None:
    """Add a weight to the code of 0 among the two of its four inputs; `rank` is 16 for each four, and those there."""
    quad, known = place >> 2, rank[0]
    own = select(known >> 4 == quad, known, quad << 4)
    rank[0] = own + 1
    slot = output * SLOTS + (own & (LOOKED_UP - 1))
    at = (quad >> 1) * STEP_BYTES + slot
    target[at] = (target[at] + (step << ((quad & 1) << 2))).narrow(BYTE)
    target[slot + PLACES_AT] = (target[slot + PLACES_AT] | (place & (PAIR_INPUTS - 1)) << (quad << 1)).narrow(BYTE)


def _emit_place(code: WordCode) -> None:
    """Emit `place_slots (block, rank, output, place, step)`: a weight in one slot, or in as many as it needs."""

    @code.function()
    def place_slots(target: Bytes, rank: Words, output: Number, place: Number, step: Number) -> None:
        is_negative = step < 0
        size = select(is_negative, -step, step)
        sign = select(is_negative, code.constant(SIGN_BIT), code.constant(0))
        with loop(size.divided_up(MOST_IN_SLOT)) as piece:
            number = rank[0]
            rank[0] = number + 1
            part = (size - piece * MOST_IN_SLOT).smaller(MOST_IN_SLOT)
            at = (number // SLOTS) * STEP_BYTES + output * SLOTS + number % SLOTS
            target[at] = (place | part << 4 | sign).narrow(BYTE)


def _emit_mask(code: WordCode) -> None:
    """Emit `next_mask (stored, state, number) -> i64`: which of the 16 inputs an output has weights of."""

    @code.function()
    def next_mask(stored: Bytes, state: _State, number: Number) -> Number:
        (has_gaps,) = _numbers(stored, "has_gaps")
        places = stored.after(_numbers(stored, "places")[0])
        with when(has_gaps == 0):
            code.leave(places.cast(Shorts)[number])
        mask = code.words()
        mask[0] = 0
        with loop(code.constant(LOOKED_UP)) as place, when(state.left == place):
            mask[0] = mask[0] | code.constant(1) << place
            state.left = place + 1 + code.number("next_gap", stored, state)
        state.left = state.left - LOOKED_UP
        return mask[0]

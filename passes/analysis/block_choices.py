"""Numbers of blocks of inputs for the kernels of a layer: as predicted, or as measured where a clock knows more."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...kernels.block_choice import WORTHWHILE, BlockPrice, gain, price_blocks
from ...kernels.families import OVER_BLOCKS, block_counts
from ...kernels.input_blocks import possible_blocks
from ...kernels.machine import Machine
from ...kernels.prediction import all_predicted_us
from ...kernels.tile_widths import TILE_WIDTHS
from ...kernels.work import Layer

Times = dict[int, dict[str, float]]
"""Microseconds of families by tile width."""

Kernel = tuple[str, int]
"""A family and its number of blocks of inputs, 0 for families without blocks and for the usual number."""

Clock = Mapping[int, Mapping[Kernel, float]]
"""Measured microseconds by tile width."""


class LayerTimes(NamedTuple):
    """Times of a layer: the model's of all candidates, those that were measured, and those of blocks."""

    predicted: Times
    measured: Times
    blocks: tuple[BlockPrice, ...] = ()


def predicted_times(layer: Layer, machine: Machine) -> Times:
    """Return the microseconds that all families are predicted to take that can compute a layer."""
    return {width: all_predicted_us(layer, width, machine) for width in TILE_WIDTHS}


def given_blocks(words: Iterable[str]) -> dict[str, int]:
    """Return numbers of blocks by family from words such as `count_blocks=4`.

    Raises:
        ValueError: a word is something else.
    """
    blocks: dict[str, int] = {}
    names = [family.name for family in OVER_BLOCKS]
    for word in words:
        family, _, count = word.partition("=")
        if family not in names or not count.isdecimal() or int(count) < 1:
            known = " or ".join(names)
            raise ValueError(f"expected blocks FAMILY=NUMBER with {known} and 1 or more, got {word!r}")
        blocks[family] = int(count)
    return blocks


def with_blocks(layer: Layer, given: Mapping[str, int], machine: Machine, clock: Clock) -> tuple[Layer, LayerTimes]:
    """Return a layer with its numbers of blocks, and its times; those `given` are had as far as the layer can."""
    usual = block_counts(layer)
    known = {
        width: {(family, blocks or usual.get(family, 0)): time for (family, blocks), time in times.items()}
        for width, times in clock.items()
    }
    layer = layer.with_blocks({family: possible_blocks(layer.inputs, count) for family, count in given.items()})
    predicted = predicted_times(layer, machine)
    prices = price_blocks(layer, predicted, machine)
    chosen = {price.family: price.blocks for price in prices}
    for family in {family for times in known.values() for family, _ in times} & usual.keys() - given.keys():
        chosen[family] = _measured_blocks((family, usual[family]), known)
    changed = {family: count for family, count in chosen.items() if count != block_counts(layer)[family]}
    if changed:
        layer = layer.with_blocks(changed)
        predicted = predicted_times(layer, machine)
    final = block_counts(layer)
    measured = {
        width: {family: time for (family, blocks), time in times.items() if not blocks or blocks == final[family]}
        for width, times in known.items()
    }
    kept = tuple(price for price in prices if price.blocks == chosen[price.family])
    return layer, LayerTimes(predicted, {width: times for width, times in measured.items() if times}, kept)


def _measured_blocks(usual: Kernel, clock: Clock) -> int:
    """Return the number of blocks that the clock has found to be better than the usual one of a family, or that one."""
    times: dict[int, dict[int, float]] = {usual[1]: {}}
    for width, known in clock.items():
        for (family, blocks), time in known.items():
            if family == usual[0]:
                times.setdefault(blocks, {})[width] = time
    now = times[usual[1]]
    gains = {blocks: gain(now, after) for blocks, after in times.items() if after.keys() == now.keys()}
    best = max(gains, key=gains.__getitem__)
    return best if gains[best] > WORTHWHILE else usual[1]

"""Whether a layer is predicted to gain by other blocks of inputs than the usual ones.

A layer is packed once for all tile widths, so the number of blocks is one for all widths at which a family is among the
fastest. Numbers are compared by what the counts of connections say, which takes no pass over them, and only the best
one by where the connections are.
"""

from collections.abc import Mapping
from math import exp, log
from statistics import fmean
from typing import Final, NamedTuple

from .families import OVER_BLOCKS
from .family import KernelFamily
from .input_blocks import other_blocks
from .machine import Machine
from .prediction import predicted_us
from .work import Layer

Times = Mapping[int, Mapping[str, float]]
"""Microseconds of families by tile width."""

AMONG_FASTEST: Final = 1.1
"""Times the least of a width: so long a family may take there to count."""

WORTHWHILE: Final = 1.06
"""Least gain over all widths: predicted ratios of two numbers of blocks are wrong by about as much. On 49
random layers the usual number was measured to be within 2 % of the best one on average."""

NO_LOSS: Final = 0.99
"""Least ratio at one width: the loss that is accepted there."""


class BlockPrice(NamedTuple):
    """The number of blocks of a family that was chosen, and the best of the others, with microseconds at a width."""

    family: str
    blocks: int
    other: int
    width: int
    microseconds: float
    other_us: float


def widths_of(family: str, times: Times) -> tuple[int, ...]:
    """Return the widths at which a family is among the fastest."""
    return tuple(
        width
        for width, known in sorted(times.items())
        if family in known and known[family] <= AMONG_FASTEST * min(known.values())
    )


def gain(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Return how many times as fast tiles are afterwards, the mean over all widths; 0 where one of them loses."""
    ratios = [before[width] / after[width] for width in before if after[width] > 0]
    if not ratios or min(ratios) < NO_LOSS:
        return 0.0
    return exp(fmean(map(log, ratios)))


def price_blocks(layer: Layer, times: Times, machine: Machine) -> list[BlockPrice]:
    """Return the numbers of blocks for the families over blocks that are among the fastest of a layer.

    times are those of the layer as it is. Families for which only one number is possible are left out, and those for
    which it is decided.
    """
    prices: list[BlockPrice] = []
    for family in (family for family in OVER_BLOCKS if family.name not in layer.block_counts):
        widths = widths_of(family.name, times)
        if widths and layer.connections:
            prices += _price(family, layer, {width: times[width][family.name] for width in widths}, machine)
    return prices


def _price(chosen: KernelFamily, layer: Layer, now: Mapping[int, float], machine: Machine) -> list[BlockPrice]:
    family, usual, width = chosen.name, chosen.block_count(layer), max(now)
    rough = Layer(layer.inputs, layer.counts, layer.other_bytes, layer.stored, layer.panel_reads)

    def roughly(blocks: int) -> dict[int, float]:
        known = rough.with_blocks({family: blocks})
        return {width: predicted_us(family, known, width, machine) for width in now}

    before = roughly(usual)
    others = {blocks: roughly(blocks) for blocks in other_blocks(layer.inputs, usual)}
    if not others:
        return []
    gains = {blocks: gain(before, after) for blocks, after in others.items()}
    best = max(gains, key=lambda blocks: (gains[blocks], before[width] / others[blocks][width]))
    if gains[best] <= WORTHWHILE:
        return [BlockPrice(family, usual, best, width, now[width], now[width] * others[best][width] / before[width])]
    changed = layer.with_blocks({family: best})
    after = {width: predicted_us(family, changed, width, machine) for width in now}
    if gain(now, after) <= WORTHWHILE:
        return [BlockPrice(family, usual, best, width, now[width], after[width])]
    return [BlockPrice(family, best, usual, width, after[width], now[width])]

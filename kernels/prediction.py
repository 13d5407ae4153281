"""Predicted time of a linear layer on a tile of batch columns, for each kernel family and on a given machine.

`time = (core^2 + far^2)^(1/2)`: core is the time of the instructions where the second-level cache holds all that is
read, a sum of units of work at a price each; far is the time of weights that come from farther away. A stream overlaps
with arithmetic in part: neither term is lost, the larger one counts most. Values that leave that cache come on top.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from math import hypot, sqrt
from typing import Final, NamedTuple

from ..sparse.densities import CODES_ALONE
from .families import FAMILIES
from .family import KernelFamily
from .layer_with_pattern import LayerWithPattern
from .machine import Machine
from .measured.neighbours import LEAST_FACTOR, MOST_FACTOR, Example, Neighbours, Place
from .work import Layer, Tile, Work

MOST_TILE_SHARE: Final = 0.5
"""Share of the second-level cache that a tile's values take from the weights; what does not fit is read again."""

FOUR_BITS: Final = 4
"""Bits of codes that all CPUs have kernels for."""

LEAST_CORE: Final = 0.1
"""Share of a time that is left for instructions however long the stream takes."""

MORE_SEGMENTS: Final = 1.1
"""Times the segments of a layer by which `segment_us` tells what they cost."""


def candidates(layer: Layer, width: int, machine: Machine) -> tuple[str, ...]:
    """Return the families with a price for a layer on tiles of `width` columns."""
    return tuple(
        name
        for name, family in FAMILIES.items()
        if width in family.widths
        and layer.stored in family.stored
        and layer.inputs <= family.most_inputs
        and _may_round(family, layer, machine)
        and (not family.needs or getattr(machine, family.needs))
        and _prices(family, machine)
    )


def _may_round(family: KernelFamily, layer: Layer, machine: Machine) -> bool:
    """Return whether a layer may be rounded as a family does; codes with few zeros are no case for floats."""
    match family.rounds:
        case "bf16":
            return layer.rounded and machine.bfloat
        case "groups":
            return layer.code_bits == family.code_bits and not layer.rounded
        case _:
            return layer.code_bits != FOUR_BITS or layer.density < CODES_ALONE or layer.stored == "dense"


def _prices(family: KernelFamily, machine: Machine) -> tuple[float, ...]:
    fitted, told = machine.prices_of(family.name), family.prices.get(machine.lanes, ())
    if fitted or not told or family.priced_in is None:
        return fitted or told
    other, unit = family.priced_in
    *prices, exposure = told
    return *(machine.prices_of(other)[unit] * price for price in prices), exposure


def predicted_us(family: str, layer: Layer, width: int, machine: Machine) -> float:
    """Return the microseconds of a tile of `width` columns.

    Raises:
        ValueError: there is no such family, or it has no code for the layer, the width or the machine's vectors.
    """
    known = candidates(layer, width, machine)
    if family not in known:
        case = f"a {layer.stored} layer at width {width} and {machine.lanes} lanes"
        raise ValueError(f"expected a cost for one of {', '.join(known)}, got {family} for {case}")
    return _us(family, layer, width, machine, machine.examples.near(layer))


def all_predicted_us(layer: Layer, width: int, machine: Machine) -> dict[str, float]:
    """Return the same for each family that has a price."""
    near = machine.examples.near(layer)
    return {family: _us(family, layer, width, machine, near) for family in candidates(layer, width, machine)}


def tiled_us(layer: Layer, width: int, tiles: int, machine: Machine) -> dict[str, float]:
    """Return the microseconds of one of so many tiles of an image for each family.

    Weights of other layers are read between two images, not between two tiles.
    """
    if tiles == 1:
        return all_predicted_us(layer, width, machine)
    times = all_predicted_us(replace(layer, other_bytes=0.0), width, machine)
    far = {name: parts_of(name, layer, width, machine).far / 1000 for name in times}
    return {name: hypot(tiles * time, far[name]) / tiles for name, time in times.items()}


def _us(family: str, layer: Layer, width: int, machine: Machine, near: Neighbours | None) -> float:
    parts = parts_of(family, layer, width, machine)
    core = parts.core if near is None else parts.core * near.factor(family, width)
    return (hypot(core, parts.far) + parts.values) / 1000


class Parts(NamedTuple):
    """Nanoseconds of a tile: of instructions as they are priced, of weights from afar, and of values from afar."""

    core: float
    far: float
    values: float


def parts_of(family: str, layer: Layer, width: int, machine: Machine) -> Parts:
    """Return the microseconds of a tile of `width` columns, also of widths without code."""
    work = FAMILIES[family].work(layer, Tile(width, machine.lanes, machine.l1_bytes))
    *prices, exposure = _prices(FAMILIES[family], machine)
    core = sum(units * price for units, price in zip(work.units, prices, strict=True))
    far, values = exposure * stream_of(work, layer, width, machine), 4 * width * (layer.inputs + layer.outputs)
    far = max(far, machine.memory_ns(work.stream_bytes, layer.other_bytes + work.stream_bytes))
    if not isinstance(layer, LayerWithPattern) or values <= machine.l2_bytes:
        return Parts(core, far, 0.0)
    far_features = FAMILIES[family].far_features(layer, machine.l2_bytes / (4 * width))
    return Parts(core, far, machine.far_ns(4.0 * width * far_features, values))


def example_of(layer: Layer, microseconds: Mapping[str, float], machine: Machine) -> Example:
    """Return the factors of kernels on a layer by measured times, of kernels such as `count_blocks@64`.

    What comes from afar is left out: of a time that it explains, a tenth is taken to be instructions.
    """
    factors: dict[str, float] = {}
    for kernel, time in microseconds.items():
        family, _, width = kernel.partition("@")
        core, far, values = parts_of(family, layer, int(width), machine)
        near = max(0.0, 1000 * time - values)
        own = sqrt(max(near**2 - far**2, (LEAST_CORE * 1000 * time) ** 2))
        factors[kernel] = min(MOST_FACTOR, max(LEAST_FACTOR, own / max(core, 1e-9)))
    return Example(Place.of(layer), factors)


def stream_of(work: Work, layer: Layer, width: int, machine: Machine) -> float:
    """Return the nanoseconds of a plain stream of all that a kernel reads beside its tile."""
    tile_bytes = min(4 * width * (layer.inputs + layer.outputs), MOST_TILE_SHARE * machine.l2_bytes)
    loop_bytes = layer.other_bytes + work.stream_bytes + tile_bytes
    return machine.far_ns(work.stream_bytes * work.passes, loop_bytes)


def segment_us(family: str, layer: LayerWithPattern, width: int, machine: Machine) -> float:
    """Return the microseconds that all segments of a layer take beside its connections."""
    more = copy(layer)
    object.__setattr__(more, "segment_factor", MORE_SEGMENTS)
    later = predicted_us(family, more, width, machine)
    return (later - predicted_us(family, layer, width, machine)) / (MORE_SEGMENTS - 1)

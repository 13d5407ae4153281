"""Predicted time of a linear layer on a tile of batch columns, for each kernel family and on a given machine.

`time = (core^2 + far^2)^(1/2)`: core is the time of the instructions where the second-level cache holds all that is
read, a sum of units of work at a price each; far is the time of weights that come from farther away. A stream overlaps
with arithmetic in part: neither term is lost, the larger one counts most. Values that leave that cache come on top.
"""

from copy import copy
from math import hypot
from typing import Final

from redpebble.kernels.families import FAMILIES
from redpebble.kernels.layer_with_pattern import LayerWithPattern
from redpebble.kernels.machine import Machine
from redpebble.kernels.work import Layer, Tile, Work

MOST_TILE_SHARE: Final = 0.5
"""Share of the second-level cache that a tile's values take from the weights; what does not fit is read again."""

MORE_SEGMENTS: Final = 1.1
"""Times the segments of a layer by which `segment_us` tells what they cost."""


def candidates(layer: Layer, width: int, machine: Machine) -> tuple[str, ...]:
    """Return the families with a price for a layer on tiles of `width` columns."""
    return tuple(
        name
        for name, family in FAMILIES.items()
        if width in family.widths and layer.stored in family.stored and machine.prices_of(name)
    )


def predicted_us(family: str, layer: Layer, width: int, machine: Machine) -> float:
    """Return the microseconds of a tile of `width` columns.

    Raises:
        ValueError: there is no such family, or it has no code for the layer, the width or the machine's vectors.
    """
    known = candidates(layer, width, machine)
    if family not in known:
        case = f"a {layer.stored} layer at width {width} and {machine.lanes} lanes"
        raise ValueError(f"no cost of {family} for {case}, accepted are {', '.join(known)}")
    work = FAMILIES[family].work(layer, Tile(width, machine.lanes, machine.l1_bytes))
    *prices, exposure = machine.prices_of(family)
    core = sum(units * price for units, price in zip(work.units, prices, strict=True))
    core *= machine.calibration_factors.get(f"{family}@{width}", 1.0)
    far, values = exposure * stream_of(work, layer, width, machine), 4 * width * (layer.inputs + layer.outputs)
    if not isinstance(layer, LayerWithPattern) or values <= machine.l2_bytes:
        return hypot(core, far) / 1000
    far_features = FAMILIES[family].far_features(layer, machine.l2_bytes / (4 * width))
    return (hypot(core, far) + machine.far_ns(4.0 * width * far_features, values)) / 1000


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

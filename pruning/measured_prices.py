"""Measurements of the layers in which most of the work is done, alone in onnxruntime, that correct all prices."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .layer_prices import ANCHORS, UNEVEN_ANCHORS, Anchor, Correction, Kind, LayerPrices, correction_of
from .layers import PrunableLayer
from .runs.layer_times import LayerClock
from .solving.methods import Sparsity
from .solving.structures import Structure

Array = NDArray[np.float32]
Watch = Callable[[str, int, int], None]

MOST_KINDS: Final = 6
MOST_WORK: Final = 0.95
"""Share of the work whose layers are measured; others have the correction of the largest one."""


def measured_corrections(
    layers: Sequence[PrunableLayer], structure: Structure, prices: LayerPrices, clock: LayerClock, watch: Watch
) -> Mapping[Kind, Correction]:
    """Return the corrections of all kinds of layers."""
    work: dict[Kind, float] = {}
    examples = {prices.kind_of(layer): layer for layer in layers}
    for layer in layers:
        kind = prices.kind_of(layer)
        work[kind] = work.get(kind, 0.0) + prices.work_of(layer)
    ordered = sorted(work, key=work.__getitem__, reverse=True)
    before = np.cumsum([0.0, *(work[kind] for kind in ordered)])
    chosen = [kind for kind, done in zip(ordered, before, strict=False) if done < MOST_WORK * before[-1]][:MOST_KINDS]
    found: dict[Kind, Correction] = {}
    for number, kind in enumerate(chosen, 1):
        anchors = list(_anchors(examples[kind], structure, prices, clock))
        if anchors:
            found[kind] = correction_of(prices.dense_us(examples[kind]), anchors)
        watch("measuring prices", number, len(chosen))
    for kind in ordered:
        alike = next((known for known in found if (known.window is None) == (kind.window is None)), None)
        if alike is not None:
            found.setdefault(kind, found[alike])
    return found


def _anchors(layer: PrunableLayer, structure: Structure, prices: LayerPrices, clock: LayerClock) -> Sequence[Anchor]:
    scores = np.random.default_rng(0).random((layer.inputs, layer.outputs), dtype=np.float32)
    found, densities = list[Anchor](), ANCHORS if structure.is_even else UNEVEN_ANCHORS
    for choices in densities if structure.density is None else ((structure.density,),):
        density = next((one for one in choices if prices.sparse_us(layer, one) is not None), None)
        predicted = None if density is None else prices.predicted_us(layer, density)
        if density is not None and predicted is not None:
            # random numbers in a random mask: what they are does not matter
            weight = (scores + np.float32(0.1)) * Sparsity(structure, density).mask(scores)
            found.append(Anchor(density, predicted, clock.times(layer, weight)))
    return found

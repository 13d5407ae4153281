"""Faults that are planted to see that fuzzers find them: each changes the code of this process, for good."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from redpebble.kernels.families import FAMILIES
from redpebble.kernels.family import LayerWeights, PackedArrays
from redpebble.runtime import network
from redpebble.runtime.call import Call
from redpebble.runtime.loaded_network import LoadedNetwork
from redpebble.runtime.thread_pool import ThreadPool


def _change_packing(change: Callable[[LayerWeights, PackedArrays], PackedArrays]) -> None:
    for family in FAMILIES.values():
        pack = family.pack

        def changed(weights: LayerWeights, pack: Callable[[LayerWeights], PackedArrays] = pack) -> PackedArrays:
            return change(weights, pack(weights))

        object.__setattr__(family, "pack", changed)


def wrong_index() -> None:
    """In the packed weights of each layer the first index that differs from its neighbour becomes its neighbour."""

    def change(_: LayerWeights, arrays: PackedArrays) -> PackedArrays:
        changed = [array.copy() for array in arrays]
        for array in changed:
            if array.dtype.kind in "iu" and array.ndim:
                places = np.flatnonzero(np.diff(array.reshape(-1).astype(np.int64)))
                if len(places) > 4:
                    array.reshape(-1)[places[-3]] = array.reshape(-1)[places[-3] + 1]
        return tuple(changed)

    _change_packing(change)


def lost_bias() -> None:
    """The last output of each layer has no bias."""
    for family in FAMILIES.values():
        pack = family.pack

        def changed(weights: LayerWeights, pack: Callable[[LayerWeights], PackedArrays] = pack) -> PackedArrays:
            bias = weights.bias.copy()
            bias[-1:] = 0
            return pack(LayerWeights(weights.weight, bias, weights.panels, weights.blocks))

        object.__setattr__(family, "pack", changed)


def race() -> None:
    """Calls with the same shapes have one frame together, also when they run at once."""
    made, new_call = dict[object, Call](), network.new_call

    def shared(loaded: LoadedNetwork, symbols: Mapping[str, int], pool: ThreadPool | None) -> Call:
        key = (id(loaded), *symbols.items(), id(pool))
        if key not in made:
            made[key] = new_call(loaded, symbols, pool)
        return made[key]

    setattr(network, "new_call", shared)  # noqa: B010 - the name is another module's


FAULTS: Final = MappingProxyType[str, Callable[[], None]](
    {"wrong-index": wrong_index, "lost-bias": lost_bias, "race": race}
)


def plant(fault: str | None) -> None:
    """Plant a fault in this process, if one is named."""
    if fault is not None:
        FAULTS[fault]()

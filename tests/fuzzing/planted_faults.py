"""Faults that are planted to see that fuzzers find them: each changes the code of this process, for good.

`python -m tests.fuzzing.planted_faults FAULT WORDS...` is the command line with a fault.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Final, NoReturn

import numpy as np
from xdsl.ir import SSAValue

from redpebble.distributed.parts import compile_part
from redpebble.distributed.run import load_part
from redpebble.frontend import translation
from redpebble.frontend.operators import elementwise
from redpebble.frontend.operators.conversion import Conversion
from redpebble.frontend.reading import faults, model_source
from redpebble.kernels.families import FAMILIES
from redpebble.kernels.family import LayerWeights, PackedArrays
from redpebble.ort import network_code
from redpebble.runtime import network
from redpebble.runtime.call import Call
from redpebble.runtime.loaded_network import LoadedNetwork
from redpebble.runtime.store import artefact
from redpebble.runtime.thread_pool import ThreadPool
from redpebble.tools.main import main


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


def lost_activation() -> None:
    """Activations of the frontend do nothing."""

    def lost(conversion: Conversion, x: SSAValue, kind: str, *parameters: float) -> SSAValue:
        del conversion, kind, parameters
        return x

    setattr(elementwise, "_activate", lost)  # noqa: B010


def escaping_error() -> None:
    """What a library says of a model makes an error of ours."""

    def escape(error: BaseException) -> NoReturn:
        raise AttributeError from error

    for module in (faults, model_source, translation):
        setattr(module, "first_line", escape)  # noqa: B010


def unchecked_nodes() -> None:
    """The digest of a node of ours is not compared."""

    def unchecked(*held: object) -> str:
        return hashlib.sha256(repr(held).encode()).hexdigest()

    setattr(network_code, "checked_identity", unchecked)  # noqa: B010


def unchecked_code() -> None:
    """Files of code all have the same checksum."""
    setattr(artefact, "zlib", SimpleNamespace(crc32=_nothing))  # noqa: B010


def unchecked_parts() -> None:
    """Steps of parts are not looked at."""
    setattr(load_part, "check_part", _nothing)  # noqa: B010
    setattr(compile_part, "check_calls", _nothing)  # noqa: B010


def _nothing(*_: object) -> int:
    return 0


FAULTS: Final = MappingProxyType[str, Callable[[], None]](
    {
        "escaping-error": escaping_error,
        "lost-activation": lost_activation,
        "lost-bias": lost_bias,
        "race": race,
        "unchecked-code": unchecked_code,
        "unchecked-nodes": unchecked_nodes,
        "unchecked-parts": unchecked_parts,
        "wrong-index": wrong_index,
    }
)
PLANTED = list[str]()
"""The faults of this process."""


def plant(fault: str | None) -> None:
    """Plant a fault in this process, if one is named."""
    if fault is not None:
        FAULTS[fault]()
        PLANTED.append(fault)


if __name__ == "__main__":
    plant(sys.argv.pop(1))
    main()

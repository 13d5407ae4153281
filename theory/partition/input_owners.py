"""Owners of a network's inputs, where a search may choose them: those that use them.

An input that U parts use is sent to |U| - 1 of them when one of these owns it, whichever, and to |U| otherwise.
"""

from __future__ import annotations

import numpy as np

from redpebble.theory.partition.partition import LayerPattern, Owners, slices

FREE = -1
"""In place of an owner: who owns the input is chosen afterwards, by `owners_of_inputs`."""


def free_inputs(width: int) -> Owners:
    """Return the owners of inputs that are still to be chosen."""
    return np.full(width, FREE, dtype=np.int32)


def owners_of_inputs(pattern: LayerPattern, output_owners: Owners, part_count: int) -> Owners:
    """Return for each input of a layer a part that uses it; of several the one that owns fewest so far.

    Where every part uses every input the inputs are contiguous slices.
    """
    uses = np.zeros((pattern.column_count, part_count), dtype=np.bool_)
    uses[pattern.indices, output_owners[pattern.rows]] = True
    users = uses.sum(axis=1)
    if np.all(users == part_count):
        return slices(pattern.column_count, part_count)
    owners = np.argmax(uses, axis=1).astype(np.int32)
    loads = np.bincount(owners[users == 1], minlength=part_count)
    uses[users == 0] = True
    for number in np.flatnonzero(users != 1):
        parts = np.flatnonzero(uses[number])
        owners[number] = parts[np.argmin(loads[parts])]
        loads[owners[number]] += 1
    return owners

"""Parts of consecutive layers without connections between them, and groups of equal size that hold these parts.

The neurons of layers that read each other form levels: the inputs of the first layer, its outputs, and so on. Parts
that single layers have hang together in the layers behind; what stays apart from the first level to the last can be
computed by itself. Groups are bins of the parts: all have as many places on a level as the fullest one needs.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ...sparse.csr import CsrPattern, Indices

NOWHERE: Final = -1
"""The part of a neuron of the first level that nothing reads, and what a group holds where it holds no neuron."""


FEW_CONNECTIONS: Final = 8


class LayerParts(NamedTuple):
    """The part of each input and of each output of a layer; parts are numbered from 0."""

    inputs: Indices
    outputs: Indices

    @property
    def part_count(self) -> int:
        """The number of parts; an input or output without a connection is one of its own."""
        return int(max(self.inputs.max(initial=-1), self.outputs.max(initial=-1))) + 1


def layer_parts(rows: CsrPattern) -> LayerParts | None:
    """Return the parts of a layer, or None where one part has all connections."""
    # where a few connections of each output leave no parts, more of them do not make any
    if rows.thinned(FEW_CONNECTIONS).hangs_together() or rows.hangs_together():
        return None
    parts = _parts(rows)
    return parts if len(np.unique(parts.outputs[rows.lengths > 0])) > 1 else None


def _parts(rows: CsrPattern) -> LayerParts:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    size = rows.column_count + rows.row_count
    graph = csr_array((np.ones(len(rows.indices)), (rows.indices, rows.column_count + rows.rows)), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    return LayerParts(*np.split(labels.astype(np.int64), [rows.column_count]))


def joint_parts(layers: Sequence[LayerParts]) -> list[Indices]:
    """Return for every level the part of each neuron, parts numbered by their first neuron; 0 alone where all is one.

    Derivation: every part of a layer is a node; a neuron between two layers ties the part that it is in as an output to
    the one that it is in as an input. Parts that are one neuron of the first level, which nothing reads, are `NOWHERE`.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    offsets = np.cumsum([0, *(layer.part_count for layer in layers)])
    starts = [layer.inputs + offset for layer, offset in zip(layers, offsets, strict=False)]
    ends = [layer.outputs + offset for layer, offset in zip(layers, offsets, strict=False)]
    before = np.concatenate([np.zeros(0, np.int64), *ends[:-1]])
    behind = np.concatenate([np.zeros(0, np.int64), *starts[1:]])
    ties = csr_array((np.ones(len(before)), (before, behind)), shape=(offsets[-1], offsets[-1]))
    _, joint = connected_components(ties, directed=False)
    levels: list[Indices] = [joint[starts[0]], *(joint[end] for end in ends)]
    written = np.zeros(len(joint), dtype=bool)
    written[np.concatenate(levels[1:])] = True
    levels[0] = np.where(written[levels[0]], levels[0], NOWHERE)
    everyone = np.concatenate(levels)
    used, first = np.unique(everyone[everyone != NOWHERE], return_index=True)
    numbers = np.full(len(joint) + 1, NOWHERE)
    numbers[used[np.argsort(first, kind="stable")]] = np.arange(len(used))
    return [numbers[level] for level in levels]


def group_counts(parts: int, most: int) -> list[int]:
    """Return the numbers of groups to try for some parts: up to `most`, each about half again the one before."""
    counts = {parts} if parts <= most else set[int]()
    step = 2
    while step <= min(parts, most):
        counts |= {step, step * 3 // 2} if step * 3 // 2 <= min(parts, most) else {step}
        step *= 2
    return sorted(counts)


def grouped(levels: Sequence[Indices], count: int) -> list[Indices]:
    """Return for every level the neurons of each of `count` groups [groups, places], ascending, then `NOWHERE`.

    Parts of one size go to groups in their order, as many to each as there are; otherwise each part, the largest first,
    goes to the group in which the levels that it needs are emptiest.
    """
    parts = max(int(level.max(initial=NOWHERE)) for level in levels) + 1
    sizes = np.stack([np.bincount(level[level != NOWHERE], minlength=parts) for level in levels], axis=1)
    if parts % count == 0 and (sizes == sizes[0]).all():
        group_of = np.arange(parts) // (parts // count)
    else:
        group_of = _packed(sizes, count)
    return [_members(level, group_of, count) for level in levels]


def _packed(sizes: Indices, count: int) -> Indices:
    """Return the group of each part, of `sizes` [parts, levels]."""
    shares = sizes / np.maximum(1, sizes.sum(axis=0))
    filled = np.zeros((count, sizes.shape[1]))
    group_of = np.zeros(len(sizes), dtype=np.int64)
    for part in np.argsort(-shares.max(axis=1), kind="stable"):
        group_of[part] = chosen = int((filled @ shares[part]).argmin())
        filled[chosen] += shares[part]
    return group_of


def _members(level: Indices, group_of: Indices, count: int) -> Indices:
    neurons = np.flatnonzero(level != NOWHERE)
    group = group_of[level[neurons]]
    neurons = neurons[np.argsort(group, kind="stable")]
    filled = np.bincount(group, minlength=count)
    members = np.full((count, int(filled.max(initial=0))), NOWHERE)
    members[
        np.repeat(np.arange(count), filled), np.arange(len(neurons)) - np.repeat(np.cumsum(filled) - filled, filled)
    ] = neurons
    return members

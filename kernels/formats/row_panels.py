"""`row_panels`: output rows that share inputs, eight, four, two or one at a time.

A panel's shared inputs are stored once, its weights input by input, a weight for each row. What a row reads besides
follows row by row. Panels whose rows read nothing else have sections, and kernels, of their own.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CscMatrix
from ..family import KernelFamily, LayerWeights
from ..row_segments import OFFSET_UNIT, ranges
from ..tile_widths import WIDTHS
from ..work import Layer, Tile, Work

READ_AHEAD = 8
"""Inputs after a panel's last one that may be read, to fetch rows of x ahead."""

Indices = NDArray[np.int64]


class Section(NamedTuple):
    """Panels of one height; `mixed` ones have rows with inputs of their own."""

    height: int
    mixed: bool


SECTIONS = (*(Section(height, mixed) for height in (8, 4, 2) for mixed in (False, True)), Section(1, mixed=False))


class PackedPanels(NamedTuple):
    """See the module docstring."""

    heads: NDArray[np.uint32]
    """[sections]: how many panels of each follow."""
    records: NDArray[np.uint32]
    """For each panel: the number of shared inputs, the offset of each row in y, own inputs of each row if mixed."""
    inputs: NDArray[np.uint32]
    """Offsets in x: for each panel the shared inputs, then each row's own; `READ_AHEAD` more at the end."""
    weights: NDArray[np.float32]
    """Weights, panel by panel: for each shared input one weight a row, then the weights of each row's own inputs."""
    bias: NDArray[np.float32]
    """[outputs]."""


def pack(weights: LayerWeights) -> PackedPanels:
    """Return the panels of a layer; a row that is in no panel is one by itself."""
    matrix = weights.sparse
    members = {section: [np.zeros((0, section.height), dtype=np.int64)] for section in SECTIONS}
    single = np.ones(matrix.shape[1], dtype=bool)
    for outputs in weights.panels:
        single[outputs] = False
        for part in _cut(outputs, outputs.shape[1]):
            mixed = _are_mixed(matrix, part)
            for section in (one for one in SECTIONS if one.height == part.shape[1]):
                members[section].append(part[mixed == section.mixed])
    members[SECTIONS[-1]].append(np.flatnonzero(single).reshape(-1, 1))
    rows = {section: np.concatenate(found) for section, found in members.items()}
    parts = [_packed(matrix, some, section) for section, some in rows.items()]
    records, inputs, values = zip(*parts, strict=True)
    return PackedPanels(
        np.array([len(some) for some in rows.values()], dtype=np.uint32),
        np.concatenate(records),
        np.pad(np.concatenate(inputs), (0, READ_AHEAD)),
        np.concatenate(values),
        weights.bias,
    )


def _cut(outputs: Indices, height: int) -> list[Indices]:
    """Return panels [panels, height] in parts that there is code for, each [parts, its height]."""
    parts: list[Indices] = []
    start = 0
    for section in SECTIONS:
        times = 0 if section.mixed else (height - start) // section.height
        if times:
            end = start + times * section.height
            parts.append(outputs[:, start:end].reshape(-1, section.height))
            start = end
    return parts


def _are_mixed(matrix: CscMatrix, rows: Indices) -> NDArray[np.bool_]:
    """Return which panels of `rows` [panels, height] have rows that do not read the same inputs."""
    lengths = np.diff(matrix.pointers)[rows]
    mixed = (lengths != lengths[:, :1]).any(axis=1)
    panel = np.repeat(np.flatnonzero(~mixed), lengths[~mixed, 0])
    positions = matrix.pointers[rows[panel]] + ranges(lengths[~mixed, 0])[:, None]
    read = matrix.rows[positions]
    mixed[panel[(read != read[:, :1]).any(axis=1)]] = True
    return mixed


def _packed(
    matrix: CscMatrix, rows: Indices, section: Section
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32]]:
    """Return the records, inputs and weights of the panels of a section, `rows` [panels, height]."""
    count, height = len(rows), section.height
    lengths: Indices = np.diff(matrix.pointers)[rows].ravel()
    owner = np.repeat(np.arange(count * height), lengths)
    positions = matrix.pointers[:-1][rows].ravel()[owner] + ranges(lengths)
    read, values, panel = matrix.rows[positions], matrix.values[positions], owner // height
    shared = _in_all(panel * matrix.shape[0] + read, height) if section.mixed else np.ones(len(read), dtype=bool)
    own = np.bincount(owner[~shared], minlength=count * height)
    common, besides = (lengths - own)[::height], own.reshape(count, height).sum(axis=1)
    # an entry's rank among the shared ones of its row, or among all others of its panel
    rank = np.empty(len(read), dtype=np.int64)
    rank[shared], rank[~shared] = ranges(lengths - own), ranges(besides)
    inputs = np.empty(int((common + besides).sum()), dtype=np.uint32)
    weights = np.empty(len(read), dtype=np.float32)
    input_at, weight_at = (np.cumsum(sizes) - sizes for sizes in (common + besides, common * height + besides))
    first = shared & (owner % height == 0)
    inputs[input_at[panel[first]] + rank[first]] = read[first] * OFFSET_UNIT
    inputs[(input_at + common)[panel[~shared]] + rank[~shared]] = read[~shared] * OFFSET_UNIT
    weights[weight_at[panel[shared]] + rank[shared] * height + owner[shared] % height] = values[shared]
    weights[(weight_at + common * height)[panel[~shared]] + rank[~shared]] = values[~shared]
    records = np.column_stack([common, rows * OFFSET_UNIT, *([own.reshape(count, height)] if section.mixed else [])])
    return records.astype(np.uint32).ravel(), inputs, weights


def _in_all(reads: Indices, count: int) -> NDArray[np.bool_]:
    _, inverse, times = np.unique(reads, return_inverse=True, return_counts=True)
    return times[inverse] == count


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work for a call, lines of x, weights, their multiply-adds, lines of y, bytes of x again."""
    reads, weights, passes = layer.panel_reads, float(layer.connections), tile.passes_of(3)
    again = 4 * reads * tile.width * tile.far_share(layer.inputs) * layer.x_share(tile)
    units = (1.0, reads * tile.line, weights * passes, weights * tile.line, layer.outputs * tile.line, again)
    return Work(units, 4 * weights + 4 * reads + 8 * layer.outputs, passes)


FAMILY = KernelFamily("row_panels", pack, work, WIDTHS[1:], stored=("panels",))

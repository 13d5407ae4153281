"""Packing for `panels`: output rows that share inputs, eight, four, two or one at a time.

A panel's shared inputs are stored once, its weights input by input, a weight for each row. What a row reads besides
follows row by row. Panels whose rows read nothing else have sections, and kernels, of their own.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.dialect.panels import PanelsAttr
from redpebble.dialect.tensors import CscMatrix

OFFSET_UNIT = 32
"""Bytes between two rows of x or y in tiles of 8 columns; other widths scale offsets."""

INPUTS_AHEAD = 8
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
    """For each panel: the number of shared inputs, the offset of each row in y, the own inputs of each row if mixed."""
    inputs: NDArray[np.uint32]
    """Offsets in x: for each panel the shared inputs, then each row's own; `INPUTS_AHEAD` more at the end."""
    weights: NDArray[np.float32]
    """For each panel one weight a row for each shared input, then each row's own."""
    bias: NDArray[np.float32]
    """[outputs]."""


class _Stream(NamedTuple):
    """The parts of the arrays, panel by panel."""

    records: list[Indices]
    inputs: list[Indices]
    weights: list[NDArray[np.float32]]

    def add(self, matrix: CscMatrix, rows: Indices, mixed: bool) -> None:
        """Add a panel."""
        spans = [slice(matrix.pointers[row], matrix.pointers[row + 1]) for row in rows.tolist()]
        together = np.concatenate([matrix.rows[span] for span in spans])
        shared = _in_all(together, len(rows))
        common = [np.isin(matrix.rows[span], shared, assume_unique=True) for span in spans]
        own = [span.stop - span.start - len(shared) for span in spans]
        self.records.append(np.concatenate([[len(shared)], rows * OFFSET_UNIT, own if mixed else []]).astype(np.int64))
        self.inputs.append(shared)
        self.inputs.extend(matrix.rows[span][~mask] for span, mask in zip(spans, common, strict=True))
        grid = np.stack([matrix.values[span][mask] for span, mask in zip(spans, common, strict=True)], axis=1)
        self.weights.append(grid.ravel())
        self.weights.extend(matrix.values[span][~mask] for span, mask in zip(spans, common, strict=True))


def pack_panels(matrix: CscMatrix, panels: PanelsAttr | None, bias: NDArray[np.float32]) -> PackedPanels:
    """Return the panels of a weight; a row that is in no panel is one by itself."""
    sections: dict[Section, list[Indices]] = {section: [] for section in SECTIONS}
    alone = np.ones(matrix.shape[1], dtype=bool)
    for height, outputs in panels.panels if panels is not None else ():
        alone[outputs] = False
        for rows in outputs:
            for part in _cut(rows, height):
                sections[Section(len(part), _is_mixed(matrix, part))].append(part)
    sections[SECTIONS[-1]].extend(row.reshape(1) for row in np.flatnonzero(alone))
    stream = _Stream([], [np.zeros(0, np.int64)], [np.zeros(0, np.float32)])
    for section, members in sections.items():
        for rows in members:
            stream.add(matrix, rows, section.mixed)
    return PackedPanels(
        np.array([len(members) for members in sections.values()], dtype=np.uint32),
        np.concatenate([*stream.records, np.zeros(0, np.int64)]).astype(np.uint32),
        np.pad(np.concatenate(stream.inputs) * OFFSET_UNIT, (0, INPUTS_AHEAD)).astype(np.uint32),
        np.concatenate(stream.weights),
        bias,
    )


def _cut(rows: Indices, height: int) -> list[Indices]:
    """Return the rows of a panel in parts that there is code for."""
    parts: list[Indices] = []
    start = 0
    for section in SECTIONS:
        while not section.mixed and height - start >= section.height:
            parts.append(rows[start : start + section.height])
            start += section.height
    return parts


def _is_mixed(matrix: CscMatrix, rows: Indices) -> bool:
    first = matrix.rows[matrix.pointers[rows[0]] : matrix.pointers[rows[0] + 1]]
    return any(
        not np.array_equal(first, matrix.rows[matrix.pointers[row] : matrix.pointers[row + 1]]) for row in rows[1:]
    )


def _in_all(together: Indices, count: int) -> Indices:
    """Return the inputs that `together`, the lists of `count` rows one after the other, has `count` times."""
    inputs, times = np.unique(together, return_counts=True)
    return inputs[times == count]

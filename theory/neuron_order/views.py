"""Cost of the positions of a group's neurons for the kernels that read them: a swap changes it in few cells.

Kernels cut their inputs into blocks, and what a row has in a block is a cell. A kernel over large blocks handles the
segments of rows: a cell of c connections is ceil(c / most) of them. `permute_lookup` visits a block as often as the
rows of a panel need it (see `visits_of`). Rows that have about equally many connections in each block leave few lanes
idle.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.formats.permute_lookup import FEW_ROWS, PANEL_ROWS
from ...sparse.csr import CsrPattern

Indices = NDArray[np.int64]

MOST_CELLS: Final = 1 << 24
"""Cells from which a view is too large to keep a count of each: it is left out."""


class View(NamedTuple):
    """Reads of a group by one weight's kernel: what each row reads as numbers of neurons of the group, 0 first.

    The group starts at index `start` of the weight's inputs, which are cut into blocks of `block`. `panels` [rows] is
    the panel of each row that shares visits, and empty for a kernel over segments of up to `most` connections; `price`
    is that of a segment, or of half a visit.
    """

    rows: CsrPattern
    start: int
    block: int
    panels: Indices
    most: int
    price: int

    @property
    def shares_visits(self) -> bool:
        """Whether panels of rows share visits of blocks."""
        return len(self.panels) > 0

    @property
    def block_count(self) -> int:
        """The number of blocks up to the last one that the group touches."""
        return -(-(self.start + self.rows.column_count) // self.block)

    @property
    def cell_count(self) -> int:
        """The numbers to be kept for it."""
        cells = self.rows.row_count * self.block_count
        if self.shares_visits:
            cells += (int(self.panels.max()) + 1) * self.block_count * (self.block + 1)
        return cells

    def table(self) -> Indices:
        """Return the price of a cell by its connections, or of a level of a panel's block by its rows."""
        if self.shares_visits:
            return np.rint(-self.price * np.expm1(-np.arange(PANEL_ROWS + 1) / FEW_ROWS)).astype(np.int64)
        return self.price * -(-np.arange(min(self.block, self.rows.column_count) + 2) // self.most)


def cells(view: View, positions: Indices) -> Indices:
    """Return the connections that each row has in each block, [rows, blocks], for positions [neurons of the group]."""
    row = np.repeat(np.arange(view.rows.row_count), np.diff(view.rows.pointers))
    block = (view.start + positions[view.rows.indices]) // view.block
    counts = np.bincount(row * view.block_count + block, minlength=view.rows.row_count * view.block_count)
    return counts.reshape(view.rows.row_count, view.block_count)


def levels(view: View, counts: Indices) -> Indices:
    """Return for each panel, block and c the rows that have c or more connections, [panels, blocks, block + 1]."""
    found = np.zeros((int(view.panels.max()) + 1, view.block_count, view.block + 1), dtype=np.int64)
    row, block = np.nonzero(counts)
    count = counts[row, block]
    np.add.at(found, (view.panels[row], block, count), 1)
    summed = np.cumsum(found[:, :, ::-1], axis=2)[:, :, ::-1]
    summed[:, :, 0] = 0
    return summed


def view_cost(view: View, positions: Indices) -> int:
    """Return the price of the positions for a view."""
    counts = cells(view, positions)
    table = view.table()
    return int(table[levels(view, counts)].sum() if view.shares_visits else table[counts].sum())

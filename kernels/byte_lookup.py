"""Format of quantized weights for arbitrary masks: steps, each of which looks up bytes in a window of inputs.

Outputs are in panels, one a lane of a vector of sums. A step of a panel has the first input of a window, and for each
output some slots: which byte of the window, and its weight. The next window begins at the first input that an output
of the panel still needs, or with the vector in which that is, and each output takes as many of its inputs there as it
has slots: no other choice of windows needs fewer steps. Slots that stay empty have the weight 0.

Steps of a panel that share a window follow each other: they are a run. Where windows are pairs of vectors, the next run
begins one vector further on, so that one of its two vectors is that of the run before.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..sparse.csr import CscMatrix, Indices

QUARTER: Final = 16
"""Inputs among which a look-up chooses: the bytes of a quarter of the widest register."""

VECTOR: Final = 64
"""Bytes of that register: where a look-up chooses among two of them, windows begin with one."""

PANEL_CHUNK_BYTES: Final = 1 << 18
"""Bytes of panels that all rows at hand meet before the next ones: a part of the second-level cache."""

NOBODY: Final = np.iinfo(np.int64).max

INDEX_OF_ZERO: Final = 0x80
"""Index for which a look-up in a quarter yields 0, and one in two vectors the first byte."""


class LookupForm(NamedTuple):
    """Form of the steps: outputs in a panel, whether sums are of four bytes or of two words, and the reach."""

    lanes: int
    bytewise: bool
    in_pairs: bool = False
    """Whether a look-up chooses among the bytes of two vectors."""
    reach: int = QUARTER
    """Inputs among which it chooses elsewhere."""

    @property
    def window(self) -> int:
        """Inputs among which a look-up chooses."""
        return 2 * VECTOR if self.in_pairs else self.reach

    @property
    def alignment(self) -> int:
        """Inputs of which windows begin at a multiple."""
        return VECTOR if self.in_pairs else 1

    @property
    def key(self) -> str:
        return f"{self.lanes}_{self.slots}_{self.window}"

    @property
    def slots(self) -> int:
        """Inputs that a step multiplies for each output."""
        return 4 if self.bytewise else 2

    @property
    def step_bytes(self) -> int:
        """Bytes of the indices of a step, and of its weights."""
        return 4 * self.lanes


class LookupPanels(NamedTuple):
    """Packed weights of a layer."""

    starts: NDArray[np.int64]
    """[panels + 1]: the first step of each panel."""
    panels: NDArray[np.int64]
    """[panels + 1]: the first run of each panel, or nothing where windows are no pairs of vectors."""
    runs: NDArray[np.int64]
    """[runs + 1]: the first step of each run. A panel has a run for every vector between its first and its last window;
    a run may be empty."""
    chunks: NDArray[np.int64]
    """Number of chunks, the first panel of each, and the number of panels."""
    windows: NDArray[np.int32]
    """[steps + 1]: the first input of each window, and 0."""
    indices: NDArray[np.uint8]
    """[steps, 4 lanes]"""
    weights: NDArray[np.int8] | NDArray[np.int16]
    """[steps, lanes, slots]"""


class _Entries(NamedTuple):
    """Inputs and weights, output by output, and the bounds of each output's entries."""

    inputs: Indices
    values: Indices
    starts: Indices
    ends: Indices


class ByteEntries(NamedTuple):
    """Entries whose values fit a byte, and which part of a larger value each one is."""

    owners: Indices
    inputs: Indices
    values: Indices
    parts: Indices


def within_bytes(owners: Indices, inputs: Indices, values: Indices) -> ByteEntries:
    """Return entries with the same sums whose values are -128 to 127: a larger one becomes several."""
    made, part = ByteEntries(owners, inputs, values.copy(), np.zeros_like(owners)), 0
    while (over := np.flatnonzero((made.values < -128) | (made.values > 127))).size:
        rest, part = made.values[over] - np.clip(made.values[over], -128, 127), part + 1
        made.values[over] -= rest
        more = ByteEntries(made.owners[over], made.inputs[over], rest, np.full_like(over, part))
        made = ByteEntries(*(np.append(one, other) for one, other in zip(made, more, strict=True)))
    return made


def by_length(weight: CscMatrix) -> Indices:
    """Return the outputs in the order in which they make panels of about equal lengths: the longest first."""
    return np.argsort(-np.diff(weight.pointers), kind="stable")


def by_length_in_vectors(weight: CscMatrix) -> Indices:
    """Return the outputs, sorted by length inside each whole vector; the remainder keeps its order."""
    lengths = np.diff(weight.pointers)
    order, whole = np.arange(len(lengths)), len(lengths) // VECTOR * VECTOR
    sorted_ones = np.argsort(-lengths[:whole].reshape(-1, VECTOR), axis=1, kind="stable")
    order[:whole] = (sorted_ones + order[:whole:VECTOR, None]).ravel()
    return order


def pack(weight: CscMatrix, form: LookupForm, outputs: Indices, positions: Indices) -> LookupPanels:
    """Return the panels of a weight [inputs, outputs] of integers up to 255.

    `outputs` is the order of the outputs, `positions` says where each input lies.
    """
    entries = _entries(weight, form, outputs, positions)
    steps: list[tuple[NDArray[np.bool_], Indices, Indices, Indices]] = []
    panel = np.arange(len(entries.starts)) // form.lanes
    following, last = entries.starts.copy(), max(0, len(entries.inputs) - 1)
    padded = entries if len(entries.inputs) else entries._replace(inputs=np.zeros(1, int), values=np.zeros(1, int))
    while True:
        waiting = following < entries.ends
        first = np.where(waiting, padded.inputs[np.minimum(following, last)], NOBODY)
        windows = first.reshape(-1, form.lanes).min(axis=1)
        active = windows < NOBODY
        windows -= windows % form.alignment
        if not active.any():
            break
        index, value = (np.zeros((len(panel), form.slots), np.int64) for _ in range(2))
        for slot in range(form.slots):
            entry = np.minimum(following, last)
            taken = (following < entries.ends) & (padded.inputs[entry] - windows[panel] < form.window)
            index[:, slot] = np.where(taken, padded.inputs[entry] - windows[panel], INDEX_OF_ZERO)
            value[:, slot] = np.where(taken, padded.values[entry], 0)
            following += taken
        steps.append((active, windows, index, value))
    return _panels(form, steps, len(panel) // form.lanes)


def _entries(weight: CscMatrix, form: LookupForm, outputs: Indices, positions: Indices) -> _Entries:
    """Return the entries of outputs in order, padded to whole panels; a weight too large for a slot becomes several."""
    lengths = np.diff(weight.pointers)
    owner = np.argsort(outputs)[np.repeat(np.arange(len(lengths)), lengths)]
    inputs, values = positions[weight.rows], np.rint(weight.values).astype(np.int64)
    if form.bytewise:
        owner, inputs, values, _ = within_bytes(owner, inputs, values)
    order = np.lexsort((inputs, owner))
    count = -(-len(lengths) // form.lanes) * form.lanes
    ends = np.cumsum(np.bincount(owner, minlength=count))
    return _Entries(inputs[order], values[order], np.append(0, ends[:-1]) if count else ends, ends)


def _panels(
    form: LookupForm, steps: list[tuple[NDArray[np.bool_], Indices, Indices, Indices]], panels: int
) -> LookupPanels:
    """Return steps, that all panels did at the same time, panel by panel."""
    lanes, slots = form.lanes, form.slots
    active = np.array([one[0] for one in steps], bool).reshape(len(steps), panels)
    where = np.nonzero(active.T)
    windows = np.array([one[1] for one in steps], np.int64).reshape(len(steps), panels).T[where]
    shape = (len(steps), panels, lanes, slots)
    index, value = (
        np.array([one[part] for one in steps], np.int16).reshape(shape).transpose(1, 0, 2, 3)[where] for part in (2, 3)
    )
    starts = np.append(0, np.cumsum(active.sum(axis=0, dtype=np.int64)))
    if not form.bytewise:  # a byte of a word is the other one's zero
        index = np.stack([index, np.full_like(index, INDEX_OF_ZERO)], axis=-1)
    chunk = starts[:-1] * 2 * form.step_bytes // PANEL_CHUNK_BYTES
    firsts = np.flatnonzero(np.diff(chunk, prepend=-1)) if panels else np.zeros(0, np.int64)
    nothing = np.zeros(1, np.int64)
    panel_runs, run_starts = _runs(starts, windows // VECTOR) if form.in_pairs else (nothing, nothing)
    return LookupPanels(
        starts.astype(np.int64),
        panel_runs,
        run_starts,
        np.array([len(firsts), *firsts, panels], np.int64),
        np.append(windows, 0).astype(np.int32),
        index.reshape(-1, form.step_bytes).astype(np.uint8),
        value.astype(np.int8) if form.bytewise else value,
    )


def _runs(starts: Indices, vectors: Indices) -> tuple[Indices, Indices]:
    """Return the first run of each panel and the first step of each run.

    `starts` are the first steps of panels, `vectors` those with which the windows of steps begin.
    """
    counts = np.diff(starts)
    some, panel = counts > 0, np.repeat(np.arange(len(counts)), counts)
    firsts, runs = np.zeros_like(counts), np.zeros_like(counts)
    firsts[some] = vectors[starts[:-1][some]]
    runs[some] = vectors[starts[1:][some] - 1] + 1 - firsts[some]
    panels = np.append(0, np.cumsum(runs))
    steps = np.bincount(panels[panel] + vectors - firsts[panel], minlength=panels[-1])
    return panels, np.append(0, np.cumsum(steps))

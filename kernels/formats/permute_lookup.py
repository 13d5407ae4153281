"""`permute_lookup`: which inputs are looked up together, and the arrays of every panel of rows.

An input may stand in two blocks: with its neighbours in x, and with inputs far from them in x transposed. There each
block has the same one of the 4 inputs of 16 units; units that follow each other in x go to different blocks. What a row
has too much of in one block is spread over many of the others, so that fewer steps are idle and fewer entries are left
over. Transposing x takes time, and pays at middling densities: where rows have few entries in a block anyway the
sequence has to go everywhere, where they have many all blocks are alike. `permute_lookup_search` finds the sequences.
"""

from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...foundation.compiled_loops import compiled_loop
from ...sparse.csr import CscMatrix, CsrPattern
from ..family import KernelFamily, LayerWeights
from ..work import Layer, Tile, Work
from .permute_lookup_search import (
    BLOCK,
    CHUNK_STEPS,
    PANEL_ROWS,
    Placing,
    matching_of,
    panel_starts,
)

FIELD_BITS: Final = 5

GATHER_COST: Final = 9.0
"""Steps of a sequence in the time of a gather for every row of a panel: fitted prices say 10 to 12."""

TRANSPOSED_DENSITIES: Final = (0.05, 0.07, 0.1, 0.2, 0.3)
TRANSPOSED_GAINS: Final = (0.0, 0.012, 0.024, 0.019, 0.0)
"""Steps for an input that x transposed saves a panel, by the density of its fullest row."""
TRANSPOSING: Final = 0.22
"""Steps that transposing an input costs, and is then to save: skewed rows gain less than random ones."""
MOST_TRANSPOSED: Final = 1280
"""Inputs for which there is room for x transposed, beside x and a panel's weights, in the first-level cache."""
UNIT: Final = 4
"""Inputs that are loaded together to be transposed: a quarter of a vector."""

FEW_ROWS: Final = 3.0
"""Rows of a panel that need a visit for it to be worth most of its price: fitted to sequences as they are packed."""

VISITS_EXPONENT: Final = 0.5
"""Time of a list of visits from their number: fitted to lists as they are packed; the rest is idle lanes."""
TRANSPOSED_EXPONENT: Final = 0.1
"""The same where inputs are looked up transposed, too, in blocks in which their order matters little."""
LEAST_LOOKED_UP: Final = 0.02
"""Density below which a sequence is mostly gathers; where not, its steps are as many and its ends cost most."""


Number = TypeVar("Number", bound=np.generic)


class SequenceLength(NamedTuple):
    """Steps and gathers of a sequence for each connection of its fullest row, at some `DENSITIES` of that row."""

    steps: tuple[float, ...]
    gathers: tuple[float, ...]


DENSITIES: Final = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 1.0)
PLAIN: Final = SequenceLength(
    (0.0, 0.0, 1.77, 4.01, 3.13, 1.95, 1.49, 1.23, 1.12, 1.027, 1.003, 1.0),
    (1.0, 0.8, 0.57, 0.091, 0.018, 0.034, 0.014, 0.011, 0.008, 0.001, 0.0, 0.0),
)
TRANSPOSED: Final = SequenceLength(
    (0.0, 0.0, 1.77, 4.01, 3.13, 1.95, 1.28, 1.07, 1.015, 1.027, 1.003, 1.0),
    (1.0, 0.8, 0.57, 0.091, 0.018, 0.034, 0.005, 0.0, 0.0, 0.001, 0.0, 0.0),
)
"""Lengths of sequences over x as it is, and over x transposed, too: fitted to random masks as they are packed."""

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Words = NDArray[np.uint32]


class PackedLookups(NamedTuple):
    """Panels of 32 rows, packed.

    sizes u32 [1 + panels, 2]: whether x is transposed and 0, then for each panel chunks of steps, and gathers.
    sequences u32: blocks as byte offsets in x, behind which x transposed stands, one more than steps. words u32 [lines,
    32]: a panel's biases, the numbers of its rows (-1 for none), a line of lookup fields for each chunk, a line of
    inputs for each gather. weights f32 [lines, 32]: a line for each step, then one for each gather.
    """

    sizes: Words
    sequences: Words
    words: Words
    weights: Floats


class _Panel(NamedTuple):
    """The entries of up to 32 rows, row by row, and where each can be looked up: lookups [entries, arrangements]."""

    starts: Ids
    inputs: Ids
    lookups: Ids
    weights: Floats


def pack(weights: LayerWeights) -> PackedLookups:
    """Return the sequences of all panels, rows with most entries first."""
    return pack_lookups(weights.sparse, weights.bias)


def pack_lookups(matrix: CscMatrix, bias: Floats, *, transposed: bool = True) -> PackedLookups:
    """Return the same; without `transposed` they keep to x as it is."""
    outputs = matrix.shape[1]
    matrix = CscMatrix(matrix.shape, _read_only(matrix.pointers), _read_only(matrix.rows), _read_only(matrix.values))
    # rows with equally many as they stand: where neurons have an order neighbours share blocks
    order = np.argsort(-np.diff(matrix.pointers), kind="stable")
    in_both = transposed & transposed_panels(np.diff(matrix.pointers)[order[::PANEL_ROWS]], matrix.shape[0])
    sizes: list[tuple[int, int]] = [(int(in_both.any()), 0)]
    sequences: list[Ids] = []
    words: list[Words] = []
    weights: list[Floats] = []
    inputs = np.arange(matrix.shape[0])
    positions = np.stack((inputs, _transposed_positions(inputs, matrix.shape[0])))
    blocks = max(1, -(-matrix.shape[0] // BLOCK)), 2 * UNIT * _groups(matrix.shape[0])
    # without outputs one panel without rows, as there are no arrays to join otherwise
    for first in range(0, max(outputs, 1), PANEL_ROWS):
        members = order[first : first + PANEL_ROWS]
        arrangements = 2 if outputs and in_both[first // PANEL_ROWS] else 1
        panel = _panel_of(matrix, members, positions[:arrangements])
        matching = matching_of(panel.starts, panel.lookups // BLOCK, blocks[arrangements - 1], GATHER_COST)
        own_words, own_weights = _lines(panel, matching)
        steps = len(matching.sequence) - 1
        sizes.append((steps // CHUNK_STEPS, len(own_weights) - steps))
        sequences.append(matching.sequence * (BLOCK * own_weights.itemsize))
        words += [_head(members, bias), own_words]
        weights.append(own_weights)
    offsets = np.concatenate(sequences).astype(np.uint32)
    return PackedLookups(np.array(sizes, dtype=np.uint32), offsets, np.concatenate(words), np.concatenate(weights))


def _read_only(array: NDArray[Number]) -> NDArray[Number]:
    """Return an array of one kind, as a loop is compiled anew for each: contiguous, and not to be written."""
    kept = np.ascontiguousarray(array).view()
    kept.flags.writeable = False
    return kept


def transposed_panels(fullest: Ids, inputs: int) -> NDArray[np.bool_]:
    """Return which panels look up x transposed, by the entries of their fullest rows: none where all gain little."""
    gains = np.interp(fullest / max(1, inputs), TRANSPOSED_DENSITIES, TRANSPOSED_GAINS)
    return (gains > 0) & (gains.sum() > TRANSPOSING) & (BLOCK * BLOCK <= inputs <= MOST_TRANSPOSED)


def _head(members: Ids, bias: Floats) -> Words:
    """Return the biases and the numbers of a panel's rows."""
    head = np.zeros((2, PANEL_ROWS), dtype=np.int32)
    head[0, : len(members)] = bias[members].view(np.int32)
    head[1] = -1
    head[1, : len(members)] = members
    return head.view(np.uint32)


def _panel_of(matrix: CscMatrix, members: Ids, positions: Ids) -> _Panel:
    """Return the entries of some rows; positions [arrangements, inputs] say where each input is looked up."""
    starts = panel_starts(matrix.pointers[members + 1] - matrix.pointers[members])
    count = int(starts[-1])
    panel = _Panel(
        starts,
        inputs=np.empty(count, dtype=np.int64),
        lookups=np.empty((count, len(positions)), dtype=np.int64),
        weights=np.empty(count, dtype=np.float32),
    )
    _collect(panel, matrix, members, positions)
    return panel


@compiled_loop()
def _collect(panel: _Panel, matrix: CscMatrix, members: Ids, positions: Ids) -> None:
    """Write the entries of some rows, with the positions [arrangements, inputs] of their inputs."""
    for row in range(len(members)):
        shift = matrix.pointers[members[row]] - panel.starts[row]
        for entry in range(panel.starts[row], panel.starts[row + 1]):
            source = matrix.rows[entry + shift]
            panel.inputs[entry] = source
            panel.weights[entry] = matrix.values[entry + shift]
            for arrangement in range(len(positions)):
                panel.lookups[entry, arrangement] = positions[arrangement, source]


def _groups(inputs: int) -> int:
    """Return the groups of 4 blocks that x transposed has; x before it gets room for as many."""
    return max(1, -(-inputs // (UNIT * BLOCK)))


def _transposed_positions(inputs: Ids, count: int) -> Ids:
    """Return where inputs stand in x transposed, behind x: see the module docstring."""
    groups = _groups(count)
    unit, number = inputs // UNIT // groups, inputs // UNIT % groups
    block = UNIT * (groups + number) + inputs % UNIT
    return block * BLOCK + unit % UNIT * UNIT + unit // UNIT


def _lines(panel: _Panel, matching: Placing) -> tuple[Words, Floats]:
    """Return the lines of words of a panel after its head, and its lines of weights."""
    steps, gathers = len(matching.sequence) - 1, int(matching.left.max())
    words = np.zeros((steps // CHUNK_STEPS + gathers, PANEL_ROWS), dtype=np.uint32)
    weights = np.zeros((steps + gathers, PANEL_ROWS), dtype=np.float32)
    _fill(panel, matching, words, weights)
    return words, weights


@compiled_loop()
def _fill(panel: _Panel, matching: Placing, words: Words, weights: Floats) -> None:
    """Write the lookup fields and the weights of all steps, then the inputs and the weights of the gathers."""
    sequence, steps = matching.sequence, matching.taken.shape[1]
    for row in range(PANEL_ROWS):
        for step in range(steps):
            entry = matching.taken[row, step]
            # an unused lane looks at the first value of a block, which is never one behind the end of x
            register, lane = step & 1, 0
            if entry >= 0:
                weights[step, row] = panel.weights[entry]
                for arrangement in range(panel.lookups.shape[1]):
                    lookup = panel.lookups[entry, arrangement]
                    for position in (step, step + 1):
                        if sequence[position] == lookup // BLOCK:
                            register, lane = position & 1, lookup % BLOCK
            field = (register * BLOCK + lane) << (FIELD_BITS * (step % CHUNK_STEPS))
            words[step // CHUNK_STEPS, row] |= np.uint32(field)
        line = steps
        for entry in range(panel.starts[row], panel.starts[row + 1]):
            if matching.step_of[entry] < 0:
                words[line - steps + steps // CHUNK_STEPS, row] = panel.inputs[entry]
                weights[line, row] = panel.weights[entry]
                line += 1


def work(layer: Layer, _: Tile) -> Work:
    """Return the work for inputs that are transposed, steps of 32 rows, gathers for 32 rows, panels."""
    transposed = is_transposed(layer)
    length = TRANSPOSED if transposed else PLAIN
    densities = layer.fullest(PANEL_ROWS) / max(1, layer.inputs)
    panels, share = len(densities), visits_share(layer)
    # whole chunks of six steps cost three for each panel
    steps, gathers = (
        share * layer.inputs * float(np.interp(densities, DENSITIES, np.multiply(ratio, DENSITIES)).sum())
        for ratio in length
    )
    steps += CHUNK_STEPS / 2 * panels
    return Work((float(transposed * layer.inputs), steps, gathers, panels), 153 * steps + 256 * gathers + 264 * panels)


def is_transposed(layer: Layer) -> bool:
    """Return whether a layer's inputs are looked up in x transposed, too."""
    return bool(transposed_panels(layer.fullest(PANEL_ROWS), layer.inputs).any())


def visits_share(layer: Layer) -> float:
    """Return the time of a layer's sequences over that of sequences over a random mask with the same counts."""
    if layer.density < LEAST_LOOKED_UP:
        return 1.0
    return layer.of_pattern(_visits_over_random, 1.0) ** visits_exponent(layer)


def visits_exponent(layer: Layer) -> float:
    """Return how the time of a layer's sequences follows from their visits."""
    return TRANSPOSED_EXPONENT if is_transposed(layer) else VISITS_EXPONENT


def panels_of(rows: CsrPattern) -> Ids:
    """Return the panel of each row, [rows]: those of most connections come first."""
    panels = np.empty(rows.row_count, dtype=np.int64)
    panels[np.argsort(-rows.lengths, kind="stable")] = np.arange(rows.row_count) // PANEL_ROWS
    return panels


def visits_of(rows: CsrPattern) -> float:
    """Return the visits of all panels' sequences to blocks, those that few rows need in part.

    A sequence goes to a block as often as the rows of a panel need it: where n rows of a panel have c or more
    connections in a block, the c-th of them costs the panel 1 - exp(-n / 3) of half a visit, as what few rows need is
    gathered beside the sequence.
    """
    blocks = -(-rows.column_count // BLOCK)
    row = np.repeat(np.arange(rows.row_count), rows.lengths)
    keys = row * blocks + rows.indices // BLOCK
    firsts = np.flatnonzero(np.append(True, np.diff(keys) != 0))
    # the c-th connection of a row in a block has the level c
    level = np.arange(len(keys)) - np.repeat(firsts, np.diff(np.append(firsts, len(keys))))
    cell = (panels_of(rows)[row] * blocks + rows.indices // BLOCK) * BLOCK + level
    _, reached = np.unique(cell, return_counts=True)
    return float(-np.expm1(-reached / FEW_ROWS).sum()) / 2


def _visits_over_random(rows: CsrPattern) -> float:
    """Return the visits over their expectation for random inputs.

    A row of n connections among K inputs has c or more in a block with the probability q of a binomial distribution
    with 16 trials of n / K; of 32 such rows E[exp(-reached / 3)] is the product of 1 - q (1 - exp(-1 / 3)).
    """
    if rows.row_count == 0 or len(rows.indices) == 0:
        return 1.0
    chance = np.minimum(1.0, np.sort(rows.lengths)[::-1] / rows.column_count)
    chance = np.pad(chance, (0, -len(chance) % PANEL_ROWS)).reshape(-1, PANEL_ROWS)
    total, exactly = 0.0, (1 - chance) ** BLOCK
    reach = 1 - exactly
    for count in range(1, BLOCK + 1):
        total += float((1 - np.prod(1 + reach * np.expm1(-1 / FEW_ROWS), axis=1)).sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.where(chance < 1, chance / (1 - chance), 0.0)
        exactly = exactly * odds * (BLOCK - count + 1) / count
        reach = np.where(chance < 1, np.maximum(0.0, reach - exactly), 1.0 if count < BLOCK else 0.0)
    expected = total * -(-rows.column_count // BLOCK) / 2
    return visits_of(rows) / expected if expected > 0 else 1.0


FAMILY = KernelFamily("permute_lookup", pack, work, (1,), lanes=(16,))

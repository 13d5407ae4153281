"""Structures of masks, by name: a structure makes a mask [inputs, outputs] from scores of the same shape and a density.

The score of a weight is the loss of its removal; that of several is their sum, so structures add scores up. A structure
of one's own is a `Structure`, or has a name while `STRUCTURES.extended({"mine": make})` holds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ...foundation.extensible_table import ExtensibleTable

# Groups of similar outputs, which lose least where they have to share their inputs.

Indices = NDArray[np.int64]
Groups = Sequence[Indices]

POWER_STEPS: Final = 8
"""Steps towards the direction in which outputs differ most: the order it gives settles long before the direction."""


def similar_outputs(scores: NDArray[np.float32], height: int) -> Groups:
    """Return groups of `height` outputs, the last one maybe smaller, whose scores [inputs, outputs] are alike.

    Outputs are cut in two where they differ most, again and again: half of them, in whole groups, to each side.
    """
    # roots: a few large scores would decide alone; each output counts as much as any other
    roots = np.sqrt(np.maximum(scores, np.float32(0.0)).T)
    norms = np.sqrt((roots * roots).sum(axis=1, keepdims=True))
    roots /= np.where(norms > 0, norms, np.float32(1.0))
    groups, pending = list[Indices](), [np.arange(len(roots), dtype=np.int64)]
    while pending:
        outputs = pending.pop()
        if len(outputs) <= height:
            groups.append(np.sort(outputs))
            continue
        cut = -(-len(outputs) // height) // 2 * height
        order = outputs[np.argsort(_differences(roots[outputs]), kind="stable")]
        pending += [order[cut:], order[:cut]]
    return groups


def _differences(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the coordinate of points [points, axes] along the direction in which they differ most."""
    centred = points - points.mean(axis=0)
    coordinate = centred[:, 0] + np.arange(len(points), dtype=np.float32) / len(points)
    for _ in range(POWER_STEPS):
        direction = coordinate @ centred
        norm = float(np.sqrt((direction * direction).sum()))
        if norm == 0.0:
            break
        coordinate = centred @ (direction / np.float32(norm))
    return coordinate


Scores = NDArray[np.float32]
Mask = NDArray[np.bool_]

WINDOW: Final = 128
"""Inputs that a mask is chosen for at a time by solvers that go from one input to the next."""

SHARED_COLUMNS: Final = 4
"""Inputs of M that V outputs share in V:N:M, of which each keeps N: 2:4 for sparse tensor cores where N is 2."""


@dataclass(frozen=True)
class Structure:
    """A structure: (scores [inputs, outputs], density) -> mask, and what solvers need to know of it."""

    choose: Callable[[Scores, float], Mask]
    density: float | None = None
    """The only density that masks have; None where they have any."""
    window: int = WINDOW
    """Neighbouring inputs whose mask can be chosen without the other inputs."""
    is_even: bool = False
    """Whether no outputs share their inputs, and counts alone tell the time."""
    height: int = 1
    """Outputs beside each other that share inputs: those that are alike are brought there, where that is free."""


Maker = Callable[[tuple[int, ...]], Structure]
"""A function that makes a structure of the numbers behind its name, such as the 4 of `rows:4`.

Raises:
    ValueError: these are not the numbers that it takes.
"""


def structure_of(text: str) -> Structure:
    """Return the structure that a text such as `equal`, `2:4`, `64:2:8` or `rows:4` names.

    Raises:
        ValueError: there is none.
    """
    words = text.split(":")
    is_numbers = all(word.isdecimal() for word in words)
    name = {2: "n:m", 3: "V:N:M"}.get(len(words), "") if is_numbers else words[0]
    numbers = words if is_numbers else words[1:]
    if name in STRUCTURES and all(word.isdecimal() and int(word) > 0 for word in numbers):
        try:
            return STRUCTURES[name](tuple(map(int, numbers)))
        except ValueError as error:
            raise ValueError(f"structure {text!r}: {error}") from error
    raise ValueError(f"structure: expected one of {', '.join(STRUCTURES)} with their numbers, got {text!r}")


def _free(numbers: tuple[int, ...]) -> Structure:
    _require(len(numbers) == 0, "free")

    def choose(scores: Scores, density: float) -> Mask:
        return _largest(scores.reshape(-1, 1), density).reshape(scores.shape)

    return Structure(choose, is_even=True)


def _equal(numbers: tuple[int, ...]) -> Structure:
    _require(len(numbers) == 0, "equal")
    return Structure(_largest, is_even=True)


def _n_of_many(numbers: tuple[int, ...]) -> Structure:
    _require(len(numbers) == 1 and numbers[0] > 1, "n:32")
    (of,) = numbers
    return Structure(
        lambda scores, density: _n_of_each(scores, max(1, round(density * of)), of), window=of, is_even=True
    )


def _n_of_m(numbers: tuple[int, ...]) -> Structure:
    _require(len(numbers) == 2 and numbers[0] < numbers[1], "2:4")
    kept, of = numbers
    return Structure(lambda scores, _: _n_of_each(scores, kept, of), kept / of, window=of)


def _grouped(numbers: tuple[int, ...]) -> Structure:
    """Return n:m:g: in each m inputs, every choice of n is that of at most g among so many outputs as there are."""
    _require(len(numbers) == 3 and numbers[0] < numbers[1] <= 8, "grouped:2:4:8")
    kept, of, group = numbers
    choices = np.zeros((0, of), dtype=np.bool_)
    for chosen in combinations(range(of), kept):
        choices = np.vstack((choices, np.isin(np.arange(of), chosen)))
    places = np.repeat(choices, group, axis=0)

    def choose(scores: Scores, density: float) -> Mask:
        del density
        padded = _padded(scores, of, 0.0)
        mask = np.zeros(padded.shape, dtype=np.bool_)
        for first in range(0, len(padded), of):
            for output in range(0, scores.shape[1], len(places)):
                gains = padded[first : first + of, output : output + len(places)].T @ places.T.astype(np.float32)
                outputs, taken = linear_sum_assignment(gains, maximize=True)
                mask[first : first + of, output + outputs] = places[taken].T
        return mask[: len(scores)]

    return Structure(choose, kept / of, window=of)


def _v_n_m(numbers: tuple[int, ...]) -> Structure:
    _require(len(numbers) == 3 and numbers[1] <= SHARED_COLUMNS <= numbers[2], "64:2:8")
    height, kept, of = numbers

    def choose(scores: Scores, density: float) -> Mask:
        del density
        shared = np.zeros(scores.shape, dtype=np.bool_)
        for first in range(0, scores.shape[1], height):
            sums = scores[:, first : first + height].sum(axis=1, keepdims=True)
            shared[:, first : first + height] = _n_of_each(sums, SHARED_COLUMNS, of)
        # inputs that are not shared rank last, so that the n best shared ones are chosen
        return _n_of_each(np.where(shared, scores, np.float32(-1.0)), kept, of) & shared

    return Structure(choose, kept / of, window=of, height=height)


def _rows(numbers: tuple[int, ...]) -> Structure:
    _require(len(numbers) == 1 and numbers[0] > 1, "rows:4")
    (height,) = numbers

    def choose(scores: Scores, density: float) -> Mask:
        return _shared(scores, similar_outputs(scores, height), density)

    return Structure(choose)


def _blocks(numbers: tuple[int, ...]) -> Structure:
    """Return blocks of so many neighbouring inputs of an output, or of so many outputs beside each other."""
    _require(len(numbers) in (1, 2), "blocks:4 or blocks:4:4")
    length, height = numbers[0], numbers[1] if len(numbers) == 2 else 1

    def choose(scores: Scores, density: float) -> Mask:
        blocks = _padded(scores, length, 0.0).reshape(-1, length, scores.shape[1]).sum(axis=1)
        outputs = np.arange(scores.shape[1], dtype=np.int64)
        neighbours = [outputs[first : first + height] for first in range(0, len(outputs), height)]
        kept = _largest(blocks, density) if height == 1 else _shared(blocks, neighbours, density)
        return kept.repeat(length, axis=0)[: len(scores)]

    return Structure(choose, window=max(1, WINDOW // length) * length)


STRUCTURES: Final = ExtensibleTable[str, Maker](
    {
        "free": _free,
        "equal": _equal,
        "n": _n_of_many,
        "n:m": _n_of_m,
        "grouped": _grouped,
        "V:N:M": _v_n_m,
        "rows": _rows,
        "blocks": _blocks,
    }
)
"""Structures by name; numbers behind the name are arguments. `n:m` and `V:N:M` are numbers alone."""


def _require(holds: bool, example: str) -> None:
    if not holds:
        raise ValueError(f"expected one such as {example}")


def _largest(scores: Scores, density: float) -> Mask:
    """Return a mask of the largest entries of each column, the same share of all, at least one."""
    return _n_of_each(scores, max(1, round(density * len(scores))), len(scores))


def _n_of_each(scores: Scores, kept: int, of: int) -> Mask:
    """Return the `kept` largest of every `of` rows of each column."""
    # what is compared lies together: outputs are the rows here
    groups = np.ascontiguousarray(_padded(scores, of).T).reshape(scores.shape[1], -1, of)
    mask = np.zeros(groups.shape, dtype=np.bool_)
    best = np.argpartition(groups, of - kept, axis=2)[..., of - kept :]
    np.put_along_axis(mask, best, values=True, axis=2)
    return np.ascontiguousarray(mask.reshape(scores.shape[1], -1).T[: len(scores)])


def _shared(scores: Scores, groups: Groups, density: float) -> Mask:
    """Return a mask whose columns are equal inside of each group."""
    mask = np.zeros(scores.shape, dtype=np.bool_)
    for outputs in groups:
        mask[:, outputs] = _largest(scores[:, outputs].sum(axis=1, keepdims=True), density)
    return mask


def _padded(scores: Scores, of: int, value: float = -np.inf) -> Scores:
    """Return scores with rows behind them, up to a multiple of `of`, that nobody chooses."""
    missing = -len(scores) % of
    return np.pad(scores, ((0, missing), (0, 0)), constant_values=value) if missing else scores

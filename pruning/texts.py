"""Texts to prune a decoder for: windows of tokens, some of them held out, and the perplexity of those."""

from collections.abc import Callable, Sequence
from math import exp
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..verification.decoder_inputs import DecoderInputs, Feeds

Ids = NDArray[np.int64]

WINDOW: Final = 256
"""Tokens that a model sees at once."""

MOST_FITTED, MOST_HELD_OUT = 64, 32
"""Windows of either kind, at most, chosen at random."""

JUDGED: Final = 8
"""Held-out windows whose logits are compared, all at once: there are a vocabulary of them for each token."""

SPARED: Final = 8
"""One file of so many is held out, or so large a part of a single one."""

LEAST: Final = 8
"""Windows to prune for and to judge by, together, at least."""


class Windows(NamedTuple):
    """Tokens [windows, WINDOW] to prune for, and those of other files, or of the end of a single one."""

    fitted: Ids
    held_out: Ids
    trained: Ids
    """All windows that are not held out: training reads more of them than pruning."""


def windows_of(files: Sequence[Sequence[int]], seed: int) -> Windows:
    """Return windows of files of tokens.

    Raises:
        ValueError: there are too few tokens.
    """
    tokens = sum(map(len, files))
    cut = [np.array(file[: len(file) // WINDOW * WINDOW], np.int64).reshape(-1, WINDOW) for file in files]
    cut = [one for one in cut if len(one)]
    total = sum(map(len, cut))
    if total < LEAST:
        raise ValueError(f"expected {LEAST} windows of {WINDOW} tokens of text or more, got {tokens} tokens")
    rng = np.random.default_rng(seed)
    if len(cut) == 1:
        spared = max(1, total // SPARED)
        fitted, held_out = cut[0][:-spared], cut[0][-spared:]
    else:
        order = rng.permutation(len(cut))
        spared = max(1, len(cut) // SPARED)
        chosen = set(order[:spared].tolist())
        held_out = np.concatenate([one for i, one in enumerate(cut) if i in chosen])
        fitted = np.concatenate([one for i, one in enumerate(cut) if i not in chosen])
    return Windows(_some(fitted, MOST_FITTED, rng), _some(held_out, MOST_HELD_OUT, rng), fitted)


def _some(windows: Ids, most: int, rng: np.random.Generator) -> Ids:
    return windows[np.sort(rng.permutation(len(windows))[:most])]


def perplexity(run: Callable[[Feeds], Sequence[Any]], inputs: DecoderInputs, windows: Ids) -> float:
    """Return how many tokens, equally likely, leave as little to guess as the model, given those before in a window."""
    nats = 0.0
    for window in windows:
        logits = np.asarray(run(inputs.feeds(window[np.newaxis]))[0], np.float32)[0, :-1]
        logits -= logits.max(axis=1, keepdims=True)
        chosen = logits[np.arange(len(logits)), window[1:]]
        nats += float((np.log(np.exp(logits).sum(axis=1)) - chosen).sum(dtype=np.float64))
    return exp(min(700.0, nats / max(1, windows[:, 1:].size)))

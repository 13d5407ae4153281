"""Training of what a pruned decoder has left, on texts: the dense decoder tells how likely each next token is.

Zeros stay, codes of four bits keep their scales, and the layer that yields logits stays as it is.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
import torch
from numpy.typing import NDArray

from ...frontend.reading.model_source import Source
from ...verification.decoder_inputs import DecoderInputs
from ..batches import Batch
from ..distil import distil
from .module import OnnxModule

BATCH: Final = 2
"""Windows of a step: many small steps gain more than few large ones where time is short."""

RATE: Final = 3e-4
"""Peak of the learning rate: among those that pilots of the recipe try, which has larger steps."""


class Texts(NamedTuple):
    """Windows of tokens [windows, tokens], and the seconds to train on them."""

    windows: NDArray[np.int64]
    seconds: float
    seed: int = 0
    threads: int = 1


def trained_decoder(
    student: onnx_ir.Model, teacher: Source, inputs: DecoderInputs, frozen: Iterable[str], texts: Texts
) -> tuple[onnx_ir.Model, int]:
    """Return a decoder whose layers were trained to answer as the dense one, and the steps that it took.

    Layers that are `frozen`, by their nodes' names, stay as they are.

    Raises:
        ModelError: an operator is not covered.
        ValueError: the loss is no number any more.
    """
    torch.set_num_threads(texts.threads)
    ours, theirs = OnnxModule(student), OnnxModule(teacher)
    ours.freeze(frozen)
    place = "cuda" if torch.cuda.is_available() else "cpu"
    for one in (ours, theirs):
        one.to(place).eval()

    def epoch(number: int) -> Iterable[Batch]:
        order = np.random.default_rng([texts.seed, number]).permutation(len(texts.windows))
        for at in range(0, len(order), BATCH):
            feeds = inputs.feeds(texts.windows[order[at : at + BATCH]])
            yield {name: torch.from_numpy(value) for name, value in feeds.items()}

    history = distil(ours, theirs, epoch, losses=["logits"], seconds=texts.seconds, rate=RATE)
    return ours.updated(), history.steps

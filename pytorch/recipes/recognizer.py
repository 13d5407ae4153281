"""Prune and distil PP-OCRv4's recogniser: `python -m redpebble.pytorch.recipes.recognizer PACKAGES FOLDER`.

The dense model, of the package rapidocr-onnxruntime, is the teacher; text lines are drawn (`text_lines`). The 21
largest layers, with 93 % of the weights, get 70 % zeros in each output by ADMM; what is left learns the teacher's
probabilities; then 80 % in the same way. The first stages, with 1 % of the weights and most of the pixels, stay as they
are: onnxruntime computes once what they make of all lines, and only what is behind is trained. Fonts and texts of the
held-out lines are none that were trained on. PACKAGES gets the Debian packages of fonts and texts, FOLDER `dense.onnx`,
`sparse_70.onnx`, `sparse_80.onnx` and what the zoo stores.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np
import onnx_ir
import torch
from torch import Tensor

from ...export.save_model import save_model
from ...models.recognizer import (
    CARDS,
    answers,
    base_model,
    constants,
    packed,
    part_of,
    unpacked,
    weights_path,
    with_constants,
)
from ...pruning.metrics import edits, read_characters
from ..batches import Batch, Module, Output
from ..distil import distil
from ..history import History
from ..imported.module import OnnxModule
from ..losses import Answer
from ..prune import prune
from .text_lines import Lines, batches_of, drawn_lines

TRAINED_FROM: Final = "p2o.Conv.12"
"""The first node that is trained: those before it have 1 % of the weights, and look at most pixels."""

PRUNED_FROM: Final = 16385
"""Weights of a layer that gets zeros: zeros in smaller ones save little, and cost the most characters."""

LINES_READ: Final = 16
"""Lines of about one width that onnxruntime reads at once."""

LINES_A_STEP: Final = 8
WIDEST: Final = 420
"""Pixels of a line to train on; a third of the lines are wider, and would take nearly half of the time."""

STEPS: Final = {70: (320, 300), 80: (240,)}
"""Per cent of zeros -> lengths of trainings, one after the other; the rate of each falls to zero, and the weights are
the mean of what they end with."""

LICENCE: Final = "base: PP-OCRv4 by PaddlePaddle, in rapidocr-onnxruntime 1.4.4, Apache-2.0; what is stored alike"
LIMITS: Final = "trained on drawn lines of English documentation alone: Chinese and photographs were not measured"


def divergence(student: Answer, teacher: Answer) -> Tensor:
    """Return the KL of probabilities of characters to those of the batch, a mean over places."""
    del teacher
    ours, theirs = student.tensor.float().clamp(min=1e-9), student.batch["wanted"].float().clamp(min=1e-9)
    return (theirs * (theirs.log() - ours.log())).sum(-1).mean()


def forward(module: Module, batch: Batch) -> Output:
    """Return what the network answers."""
    return module(batch["x"])


def trained(
    model: onnx_ir.Model, images: Sequence[np.ndarray], wanted: Sequence[Tensor], length: Mapping[str, Any]
) -> tuple[onnx_ir.Model, History]:
    """Return a model whose part behind the first stages was trained to answer probabilities to images."""
    first = next(node.inputs[0] for node in model.graph if node.name == TRAINED_FROM)
    assert first is not None
    assert first.name is not None
    name, last = first.name, model.graph.outputs[0].name or ""
    made = answers(part_of(model, model.graph.inputs[0].name or "", name), images)
    form: Any = {"memory_format": torch.channels_last}
    student = OnnxModule(onnx_ir.from_proto(part_of(model, name, last))).to(**form)
    parts = [slice(start, None, LINES_READ // LINES_A_STEP) for start in range(LINES_READ // LINES_A_STEP)]
    data = [
        {"x": torch.from_numpy(x[part]).to(**form), "wanted": y[part]}
        for x, y in zip(made, wanted, strict=True)
        for part in parts
        if len(x[part])
    ]

    def batches(epoch: int) -> Iterator[dict[str, Tensor]]:
        for index in np.random.default_rng(epoch).permutation(len(data)):
            yield data[index]

    history = distil(student, None, batches, losses=[divergence], autocast=None, forward=forward, **length)
    return with_constants(model.clone(), constants(student.updated())), history


def mean_of(models: Sequence[onnx_ir.Model]) -> onnx_ir.Model:
    """Return a model whose constants are the means of several models': it reads better than each of them."""
    each = [constants(one) for one in models]
    means = {name: np.stack([one[name] for one in each]).mean(0) for name in each[0]}
    return with_constants(models[0].clone(), means)


class Read(NamedTuple):
    """The wrong characters of each line, and how many each has."""

    wrong: list[int]
    lengths: list[int]

    @property
    def right(self) -> float:
        """The share of characters that are right."""
        return 1 - sum(self.wrong) / sum(self.lengths)


def read_lines(model: onnx_ir.Model, lines: Lines, characters: str) -> Read:
    """Read lines by onnxruntime."""
    wrong, lengths = list[int](), list[int]()
    batches = list(batches_of(lines, LINES_READ, 0))
    found = answers(onnx_ir.to_proto(model), [images for images, _ in batches])
    for scores, (_, texts) in zip(found, batches, strict=True):
        for one, text in zip(read_characters(scores), texts, strict=True):
            wrong.append(edits([characters[index - 1] for index in one], list(text)))
            lengths.append(len(text))
    return Read(wrong, lengths)


def characters_of(model: onnx_ir.Model) -> str:
    """Return the characters of classes 1, 2, ...: those that the file tells, and the space."""
    return "".join([*model.metadata_props["character"].splitlines(), " "])


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, help="of each training")
    parser.add_argument("--lines", type=int, default=1600, help="to train on")
    parser.add_argument("--held-out", type=int, default=600, help="lines to measure with")
    parser.add_argument("--rate", type=float, default=7e-4)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    dense = base_model()
    characters = characters_of(dense)
    data = drawn_lines(chosen.packages, chosen.lines, characters, chosen.seed, held_out=False)
    held_out = drawn_lines(chosen.packages, chosen.held_out, characters, chosen.seed, held_out=True)
    before = read_lines(dense, held_out, characters)
    print(f"dense: {before.right:.4f} of {sum(before.lengths)} characters", flush=True)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    save_model(dense, chosen.folder / "dense.onnx")
    images = [one for one, _ in batches_of(data, LINES_READ, chosen.seed)]
    calibration = [{"x": torch.from_numpy(one)} for one in images[:6]]
    images = [one for one in images if one.shape[-1] <= WIDEST]
    wanted = [torch.from_numpy(one.astype(np.float16)) for one in answers(onnx_ir.to_proto(dense), images)]
    cards, model = dict[str, Any](), dense
    for zeros, lengths in STEPS.items():
        start, cpu = time.perf_counter(), time.process_time()
        student = OnnxModule(model)
        prune(student, calibration, sparsity=zeros / 100, layers=_is_large, forward=forward)
        pruned = read_lines(student.updated(), held_out, characters)
        print(f"{zeros} %, pruned: {pruned.right:.4f}", flush=True)
        ends, steps = [student.updated()], 0
        for length in lengths:
            model, history = trained(ends[-1], images, wanted, {"rate": chosen.rate, "steps": chosen.steps or length})
            ends.append(model)
            steps += history.steps
        model = mean_of(ends[1:])
        save_model(model, chosen.folder / f"sparse_{zeros}.onnx")
        own = constants(dense)
        weights = packed({name: one for name, one in constants(model).items() if not np.array_equal(one, own[name])})
        (chosen.folder / weights_path(zeros).name).write_bytes(weights)
        after = read_lines(with_constants(base_model(), unpacked(weights)), held_out, characters)
        cards[f"ppocr_{zeros}"] = card_of(before, pruned, after) | {
            "zeros": _zeros(model, dense),
            "seed": chosen.seed,
            "steps": steps,
            "batch": LINES_A_STEP,
            "lines": sum(map(len, images)),
            "seconds": round(time.perf_counter() - start),
            "cpu_seconds": round(time.process_time() - cpu),
            "bytes": len(weights),
            "licence": LICENCE,
            "limits": LIMITS,
        }
        print(json.dumps(cards[f"ppocr_{zeros}"]), flush=True)
        (chosen.folder / CARDS.name).write_text(json.dumps(cards, indent=2) + "\n")


def card_of(before: Read, pruned: Read, after: Read) -> dict[str, Any]:
    """Return what held-out lines say, with the interval of 95 % of the difference that pruning makes."""
    gained, lengths = np.array(before.wrong, float) - np.array(after.wrong), np.array(before.lengths)
    difference = float(gained.sum() / lengths.sum())
    # the standard error of a ratio of sums over lines
    half = 1.96 * float(np.sqrt(len(gained)) * (gained - difference * lengths).std() / lengths.sum())
    return {
        "held_out": {"lines": len(gained), "characters": int(lengths.sum())},
        "characters_right": {"dense": before.right, "pruned": pruned.right, "trained": after.right},
        "lines_right": {"dense": before.wrong.count(0) / len(gained), "trained": after.wrong.count(0) / len(gained)},
        "difference": difference,
        "interval_difference": (difference - half, difference + half),
    }


def _is_large(name: str, module: torch.nn.Module) -> bool:
    del name
    return cast("Tensor", module.weight).numel() >= PRUNED_FROM


def _zeros(model: onnx_ir.Model, dense: onnx_ir.Model) -> float:
    """Return the share of zeros in the weights that were pruned."""
    own = constants(dense)
    pruned = [
        one for name, one in constants(model).items() if one.ndim > 1 and (one == 0).sum() > (own[name] == 0).sum()
    ]
    return sum(int((one == 0).sum()) for one in pruned) / sum(one.size for one in pruned)


if __name__ == "__main__":
    main()

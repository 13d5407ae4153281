# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false
"""Zeros alone, and heads with zeros, at one predicted time: `python -m redpebble.pytorch.recipes.heads CORPUS OUT`.

Two students start from the same encoder: a sparse one of the zoo, or the dense MiniLM. Prices give both the same time
for a text of 128 tokens. Short trials of several learning rates show which one helps; then both are distilled from
the dense encoder alike, on the same texts in the same order, for the same number of steps. `results.json` has zeros,
heads that went, predicted microseconds, the trials, figures on the held-out texts before and after, and differences
with their intervals. `zeros.onnx` and `heads.onnx` are what was trained, which `python -m
redpebble.bench.sentence_encoders_bench speed OUT` times, beside the dense encoder after `models OUT --only dense`.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from ...models import zoo
from ...models.compressed_arrays import arrays_of
from ...models.minilm import base_encoder
from ...models.sentence_encoders import embedding_model, put_layers, stored_bytes
from ...models.sentences.encoder import HEADS, Encoder, Layer, base_weights
from ...models.sentences.quality import agreement, embed, hits, measured
from ...models.sentences.stored import unpack
from ..attentions.head_budget import attention_us
from ..attentions.heads import HeadNames, drop_heads, heads_of, register_attention
from ..batches import Batch, Run, call
from ..layers import prunable_weights
from ..prices import Call, Prices
from ..prune import prune
from ..report import PruneReport
from .resnet18 import difference_interval
from .sentences import (
    DEPTHS,
    DEV,
    Bucket,
    Data,
    Recipe,
    buckets_of,
    line,
    padded,
    remember,
    say,
    score,
    tests_of,
    train,
)

TESTS: Final = ("sentences", "man_query", "man_answer")
"""Held-out texts that are quick to embed on a CPU."""

TOKENS_PRICED: Final = 128
"""Tokens of the text whose time is predicted, on one thread."""

REST_US: Final = 3500.0
"""Microseconds of norms, embeddings and attentions' scores, about, of a text of 128 tokens on one thread."""


Keep = Callable[[str, Encoder, dict[str, Any]], None]
"""(name, student, results so far) -> None, called after each training."""


@dataclass(frozen=True)
class Plan:
    """The students' speed, and their training."""

    speedup: float
    drop: int | None
    """Heads of each attention that go from the second student; None lets prices choose."""
    steps: int
    tokens: int
    """Tokens of a batch."""
    rates: tuple[float, ...]
    """The learning rates to try on the first student; both take the best."""
    trial_steps: int


def calibration(buckets: Sequence[Bucket]) -> list[Batch]:
    """Return the texts that masks are found by: the longest one first, by which scores are priced, then short ones."""
    texts = [{"ids": one.ids[:16]} for one in buckets[::2] if len(one.ids) >= 8]
    texts.sort(key=lambda one: abs(one["ids"].shape[1] - 32))
    return [{"ids": max(buckets, key=lambda one: one.ids.shape[1]).ids[:1]}, *texts]


def pruned(student: Encoder, texts: Sequence[Batch], speedup: float, drop: int | None) -> tuple[PruneReport, float]:
    """Prune an encoder in place -> the report, and the predicted microseconds of all.

    Of each attention `drop` heads go first, and zeros get what their layers and scores took; None lets prices choose.
    """
    register_attention(Layer, lambda one: HeadNames((one.qkv,), one.mixed, HEADS))
    run, rest_us, one_text = Run(texts, call), REST_US, Call(TOKENS_PRICED, 1)
    prices = Prices.of(student, prunable_weights(student), run, "free", one_text)
    wanted_us = (sum(map(prices.dense_us, prices.layers)) + rest_us) / speedup
    if drop:
        attentions = heads_of(student, run)
        one, shape = next(iter(attentions.items()))
        scores_us = attention_us(one, (1, TOKENS_PRICED, shape[-1]), prices.dense_us(one.reader.name))
        rest_us -= len(attentions) * scores_us * drop / HEADS
        drop_heads(student, texts, drop)
        prices = Prices.of(student, prunable_weights(student), run, "free", one_text)
    left = (sum(map(prices.dense_us, prices.layers)) + rest_us) / wanted_us
    report = prune(
        student, texts, speedup=left, rows=TOKENS_PRICED, rest_us=rest_us, structure="free", heads=drop is None
    )
    return report, sum(one.us or 0.0 for one in report.layers) + report.rest_us - report.saved_us


def compared(start: Encoder, data: Data, plan: Plan, output: Path, keep: Keep) -> dict[str, Any]:
    """Prune, measure, distil, measure and keep both students; return their figures, and those of heads less zeros."""
    texts, rates, results = calibration(data.buckets), list(plan.rates), dict[str, Any]()
    found = dict[str, dict[str, torch.Tensor]]()
    for name, heads in (("zeros", 0), ("heads", plan.drop)):
        torch.manual_seed(0)
        student = copy.deepcopy(start)
        report, us = pruned(student, texts, plan.speedup, heads)
        say(f"{name}: {report}")
        before, _ = figures_of(student, data)
        say(f"  pruned  {line(before)}")
        if len(rates) > 1:
            trials = {one: tried(student, data, one, plan) for one in rates}
            results["trials"] = {"pruned": dev_figures(student, data), **trials}
            rates = [max(rates, key=lambda one: score(trials[one]))]
        told = train(
            student,
            data,
            Recipe(rate=rates[0]),
            zeros=0.0,
            steps=plan.steps,
            tokens=plan.tokens,
            deadline=1e9,
            checkpoint=output / f"{name}.checkpoint",
        )
        after, found[name] = figures_of(student, data)
        say(f"  trained {line(after)}")
        results[name] = {
            "zeros": report.sparsity,
            "heads": {one.name: one.dropped for one in heads_of(student, Run(texts, call))},
            "us": us,
            "pruned": before,
            "trained": after,
            "rate": rates[0],
            "steps": told["steps"],
            "texts": told["sentences"],
            "seconds": told["seconds"],
        }
        keep(name, student, results)
    results["heads_less_zeros"] = differences(found["heads"], found["zeros"], data.tests_dense)
    return results


def tried(student: Encoder, data: Data, rate: float, plan: Plan) -> dict[str, float]:
    """Train a copy at a rate for a few steps; return its figures on the texts set apart to choose by."""
    one = copy.deepcopy(student)
    train(one, data, Recipe(rate=rate), zeros=0.0, steps=plan.trial_steps, tokens=plan.tokens, deadline=1e9)
    told = dev_figures(one, data)
    say(f"  {plan.trial_steps} steps at {rate:g}: {line(told)}")
    return told


def dev_figures(student: Encoder, data: Data) -> dict[str, float]:
    """Return the figures of an encoder on the texts set apart to choose by."""
    student.eval()
    with torch.autocast(student.words.device.type, torch.bfloat16):
        return agreement(data.dev_dense, embed(student, data.dev), ranks=False)


def figures_of(student: Encoder, data: Data) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """Return the figures of an encoder on the held-out texts, and their embeddings."""
    student.eval()
    with torch.autocast(student.words.device.type, torch.bfloat16):
        return measured(student, data.tests, data.tests_dense)


def differences(
    ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], dense: dict[str, torch.Tensor]
) -> dict[str, dict[str, float]]:
    """Return by how much embeddings are better than others of the same texts, with bounds of 95 %."""
    cosines = [(one["sentences"] * dense["sentences"]).sum(1) for one in (ours, theirs)]
    moved = (cosines[0] - cosines[1]).double()
    mean, half = float(moved.mean()), 1.96 * float(moved.std()) / len(moved) ** 0.5
    found = {"cos": {"difference": mean, "low": mean - half, "high": mean + half}}
    others = hits(theirs, dense)
    for name, right in hits(ours, dense).items():
        gained, lost, count = int((right & ~others[name]).sum()), int((others[name] & ~right).sum()), len(right)
        low, high = difference_interval(gained, lost, count)
        found[name] = {"difference": 100 * (gained - lost) / count, "low": 100 * low, "high": 100 * high}
    return found


def write_model(student: Encoder, path: Path) -> None:
    """Write an encoder as the zoo does."""
    layers = [{name: one.float().cpu().numpy() for name, one in layer.state_dict().items()} for layer in student.layers]
    torch_itself, encoder = base_encoder(path.stem)
    put_layers(torch_itself, encoder, layers)
    zoo.save(embedding_model(torch_itself, encoder), path)


def started(base: dict[str, np.ndarray], name: str) -> Encoder:
    """Return the encoder that both students start from: `dense`, or one of the zoo with six layers."""
    if name == "dense":
        return Encoder(base, DEPTHS[6])
    return unpack(stored_bytes(name), base)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare both and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, help="what `redpebble.models.sentences.corpus` wrote")
    parser.add_argument("output", type=Path, help="folder of results.json and of the models")
    parser.add_argument("--start", default="minilm_70", help="dense, or an encoder of the zoo with six layers")
    parser.add_argument("--speedup", type=float, default=2.0)
    parser.add_argument("--drop", type=int, default=3, help="heads of each attention; -1 lets prices choose")
    parser.add_argument("--texts", type=int, default=6000, help="training texts; 0 takes all")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=1024, help="of a batch")
    parser.add_argument("--rates", default="5e-4,1.25e-4", help="tried in turn, with commas between")
    parser.add_argument("--trial-steps", type=int, default=30)
    chosen = parser.parse_args(arguments)
    chosen.output.mkdir(parents=True, exist_ok=True)
    rates = tuple(float(one) for one in chosen.rates.split(","))
    drop = None if chosen.drop < 0 else chosen.drop
    plan = Plan(chosen.speedup, drop, chosen.steps, chosen.tokens, rates, chosen.trial_steps)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    base = base_weights()
    teacher = Encoder(base, DEPTHS[6]).to(device).eval().requires_grad_(False)
    start = started(base, chosen.start).to(device)
    data = read(chosen.corpus, teacher, device, chosen.texts)
    say(f"dense {line(data.dense)}")
    told, path = {"dense": data.dense}, chosen.output / "results.json"

    def keep(name: str, student: Encoder, results: dict[str, Any]) -> None:
        path.write_text(json.dumps({**told, **results}, indent=1))
        write_model(student, chosen.output / f"{name}.onnx")

    results = compared(start, data, plan, chosen.output, keep)
    say(f"heads less zeros {results['heads_less_zeros']}")
    path.write_text(json.dumps({**told, **results}, indent=1))


def read(corpus: Path, teacher: Encoder, device: torch.device, texts: int) -> Data:
    """Read the texts, so many of those to train on, and let the teacher embed them."""
    arrays = arrays_of(corpus.read_bytes())
    tests = {name: some for name, some in tests_of(arrays, device).items() if name in TESTS}
    lengths = arrays["sentences_lengths"][:DEV]
    dev = padded(arrays["sentences"][: int(lengths.sum(dtype=np.int64))], lengths, device)
    with torch.autocast(device.type, torch.bfloat16):
        dense, embeddings = measured(teacher, tests, None)
        data = Data(buckets_of(arrays, texts, device), {}, dev, embed(teacher, dev), tests, embeddings, dense)
        remember(teacher, data, device)
    return data


if __name__ == "__main__":
    main()

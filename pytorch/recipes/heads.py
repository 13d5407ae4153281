# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false
"""Zeros alone, and heads with zeros, at one predicted time: `python -m redpebble.pytorch.recipes.heads CORPUS OUT`.

Two students start from the same MiniLM. Prices give both the same time for a text of 128 tokens, and both are distilled
alike: the same texts in the same order, the same steps. Each is measured before and after. `results.json` has the
zeros, the heads that went, the predicted microseconds, cosine, nearest neighbours and recall on the held-out texts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from ...models.compressed_arrays import arrays_of
from ...models.sentences.encoder import HEADS, Encoder, Layer, base_weights
from ...models.sentences.quality import Texts, measured
from ..attentions.head_budget import attention_us
from ..attentions.heads import HeadNames, drop_heads, heads_of, register_attention
from ..batches import Batch, Run, call
from ..layers import prunable_weights
from ..prices import Call, Prices
from ..prune import prune
from ..report import PruneReport
from .sentences import DEPTHS, Bucket, Data, Recipe, buckets_of, line, remember, say, tests_of, train

TESTS: Final = ("sentences", "man_query", "man_answer")
"""Held-out texts that are quick to embed on a CPU."""

TOKENS_PRICED: Final = 128
"""Tokens of the text whose time is predicted, on one thread."""

REST_US: Final = 3500.0
"""Microseconds of norms, embeddings and attentions' scores, about, of a text of 128 tokens on one thread."""


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


def compared(
    base: dict[str, Any], data: Data, speedup: float, drop: int | None, steps: int, tokens: int
) -> dict[str, Any]:
    """Prune, measure, distil and measure both students."""
    texts, results = calibration(data.buckets), dict[str, Any]()
    for name, heads in (("zeros", 0), ("heads", drop)):
        torch.manual_seed(0)
        student = Encoder(base, DEPTHS[6]).to(data.buckets[0].ids.device)
        report, us = pruned(student, texts, speedup, heads)
        say(f"{name}: {report}")
        before = agreement_of(student, data.tests, data.tests_dense)
        told = train(student, data, Recipe(), zeros=0.0, steps=steps, tokens=tokens, deadline=1e9)
        after = agreement_of(student, data.tests, data.tests_dense)
        say(f"  pruned  {line(before)}")
        say(f"  trained {line(after)}")
        results[name] = {
            "zeros": report.sparsity,
            "heads": {one.name: one.dropped for one in heads_of(student, Run(texts, call))},
            "us": us,
            "pruned": before,
            "trained": after,
            "steps": told["steps"],
            "texts": told["sentences"],
            "seconds": told["seconds"],
        }
    return results


def agreement_of(student: Encoder, tests: dict[str, Texts], dense: dict[str, torch.Tensor] | None) -> dict[str, float]:
    """Return the figures of an encoder on the held-out texts."""
    student.eval()
    with torch.autocast(student.words.device.type, torch.bfloat16):
        return measured(student, tests, dense)[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare both and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, help="what `redpebble.models.sentences.corpus` wrote")
    parser.add_argument("output", type=Path, help="folder of results.json")
    parser.add_argument("--speedup", type=float, default=2.0)
    parser.add_argument("--drop", type=int, default=3, help="heads of each attention; -1 lets prices choose")
    parser.add_argument("--texts", type=int, default=3000, help="training texts; 0 takes all")
    parser.add_argument("--steps", type=int, default=85)
    parser.add_argument("--tokens", type=int, default=1024, help="of a batch")
    chosen = parser.parse_args(arguments)
    chosen.output.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    base = base_weights()
    teacher = Encoder(base, DEPTHS[6]).to(device).eval().requires_grad_(False)
    arrays = arrays_of(chosen.corpus.read_bytes())
    tests = {name: texts for name, texts in tests_of(arrays, device).items() if name in TESTS}
    with torch.autocast(device.type, torch.bfloat16):
        dense, embeddings = measured(teacher, tests, None)
        data = Data(
            buckets_of(arrays, chosen.texts, device),
            {},
            tests["sentences"],
            embeddings["sentences"],
            tests,
            embeddings,
            dense,
        )
        remember(teacher, data, device)
    say(f"dense {line(dense)}")
    results = compared(
        base, data, chosen.speedup, None if chosen.drop < 0 else chosen.drop, chosen.steps, chosen.tokens
    )
    (chosen.output / "results.json").write_text(json.dumps({"dense": dense, **results}, indent=1))


if __name__ == "__main__":
    main()

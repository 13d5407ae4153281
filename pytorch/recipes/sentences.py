# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false, reportPrivateImportUsage=false, reportArgumentType=false
# pyright: reportOptionalSubscript=false
# pyright: reportCallIssue=false
"""Distil sparse and shallow MiniLMs: `python -m redpebble.pytorch.recipes.sentences BASE CORPUS OUT`.

Every model sees the same number of sentences. The teacher's states are computed once and kept on the device. Masks are
those of `prune`, by ADMM, and training is `distil`'s. Short pilots at 80 % choose the weights of the losses and the
learning rate, on sentences that are neither trained on nor held out; then each model is trained, measured on the
held-out tests, stored as its nonzeros and measured again as stored. Results are written after each model, so a run that
is cut loses one model at most.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

START: Final = time.perf_counter()
"""The time budget counts from here: loading torch takes part of it."""

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

from ...models.compressed_arrays import arrays_of  # noqa: E402
from ...models.sentences.encoder import Encoder, pooled, read_base  # noqa: E402
from ...models.sentences.quality import Texts, agreement, embed, measured  # noqa: E402
from ...models.sentences.stored import pack, sparsity, unpack  # noqa: E402
from ..batches import Batch, Module  # noqa: E402
from ..distil import distil  # noqa: E402
from ..history import History  # noqa: E402
from ..losses import Answer, Embedding, Similarity, Weighed  # noqa: E402
from ..prune import prune  # noqa: E402

CACHED: Final = (2, 3, 4, 6)
"""Layers of the teacher whose states are kept."""

HIDDEN: Final[dict[int, tuple[tuple[int, int], ...]]] = {
    6: ((2, 2), (4, 4), (6, 6)),
    5: ((2, 2), (3, 4), (5, 6)),
    4: ((1, 2), (2, 3), (4, 6)),
    3: ((1, 2), (2, 4), (3, 6)),
    2: ((1, 3), (2, 6)),
}
"""Layers of a student -> (layer of the student, layer of the teacher at about the same depth)."""

DEPTHS: Final[dict[int, tuple[int, ...]]] = {
    6: (0, 1, 2, 3, 4, 5),
    5: (0, 1, 2, 3, 5),
    4: (0, 2, 3, 5),
    3: (0, 3, 5),
    2: (0, 5),
}
"""Layers of a student -> layers of the base that it starts from."""

DEV: Final = 2000
"""Sentences set apart to choose by."""


@dataclass(frozen=True)
class Recipe:
    """The training of a student; the defaults are the choice of pilots on an H200."""

    hidden: float = 1.0
    """Weight of the states' mean squared error over the teacher's variance."""
    hidden_end: float = 0.1
    """Share of that weight at the end of training; it falls linearly."""
    similarity: float = 0.3
    """Weight of the divergence between the rows of both similarity matrices of a batch (temperature 0.05)."""
    rate: float = 2e-3

    @classmethod
    def plain(cls) -> Recipe:
        """The start of the pilots: the losses of embeddings and of states alone, and a lower rate."""
        return cls(hidden_end=1.0, similarity=0.0, rate=1e-3)


@dataclass(frozen=True)
class Model:
    """A student: layers kept and the share of zeros."""

    name: str
    layers: int
    zeros: float
    archive: str


MODELS: Final = (
    Model("l6_z70", 6, 0.7, "sparse"),
    Model("l3", 3, 0.0, "dense"),
    Model("l3_z70", 3, 0.7, "shallow"),
    Model("l6_z80", 6, 0.8, "sparse"),
    Model("l6_z50", 6, 0.5, "sparse"),
    Model("l2", 2, 0.0, "dense"),
    Model("l6_z90", 6, 0.9, "sparse"),
    Model("l4_z70", 4, 0.7, "shallow"),
    Model("l5_z60", 5, 0.6, "shallow"),
)
"""In the order of training: what is wanted most comes first. `archive` is the file that the stored model goes to."""

FLOATS: Final = ("l6_z70", "l3_z70")
"""Models stored in half floats too."""


@dataclass
class Bucket:
    """Texts of one length, so that no batch is padded: ids [texts, tokens] and what the teacher makes of them."""

    ids: torch.Tensor
    states: dict[int, torch.Tensor] = field(default_factory=dict)
    embeddings: torch.Tensor | None = None


@dataclass
class Data:
    """Everything on the device."""

    buckets: list[Bucket]
    variances: dict[int, float]
    dev: Texts
    dev_dense: torch.Tensor
    tests: dict[str, Texts]
    tests_dense: dict[str, torch.Tensor]
    dense: dict[str, float]

    def batches(self, tokens: int, seed: int) -> Iterator[Batch]:
        """Batches of an epoch, of texts of one length each, with what the teacher makes of them."""
        device = self.buckets[0].ids.device
        generator = torch.Generator().manual_seed(seed)
        parts: list[tuple[Bucket, torch.Tensor]] = []
        for bucket in self.buckets:
            count, length = bucket.ids.shape
            size = max(8, tokens // length)
            order = torch.randperm(count, generator=generator).to(device)
            parts += [(bucket, p) for p in order.split(size) if len(p) >= min(size, count) // 4]
        for i in torch.randperm(len(parts), generator=generator).tolist():
            bucket, rows = parts[i]
            states = {str(k): held[rows] for k, held in bucket.states.items()}
            yield {"ids": bucket.ids[rows], "embeddings": bucket.embeddings[rows], "states": states}


def say(*words: object) -> None:
    """Print a line with the seconds since the start."""
    print(f"[{time.perf_counter() - START:6.1f}]", *words, flush=True)


def padded(ids: np.ndarray, lengths: np.ndarray, device: torch.device) -> Texts:
    """Texts one behind the other -> a padded matrix and lengths."""
    matrix = np.zeros((len(lengths), int(lengths.max())), np.int64)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = ids
    return torch.from_numpy(matrix).to(device), torch.from_numpy(lengths.astype(np.int64)).to(device)


def tests_of(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, Texts]:
    """Return the held-out texts of a corpus by name."""
    return {
        n.removeprefix("test_"): padded(arrays[n], arrays[f"{n}_lengths"], device)
        for n in arrays
        if n.startswith("test_") and not n.endswith("_lengths")
    }


def buckets_of(arrays: Mapping[str, np.ndarray], limit: int, device: torch.device) -> list[Bucket]:
    """Return the training texts of a corpus by length, `limit` of them at random, or all."""
    starts = np.cumsum(arrays["sentences_lengths"], dtype=np.int64)
    flat = np.concatenate([arrays["sentences"][starts[DEV - 1] :], arrays["passages"]])
    lengths = np.concatenate([arrays["sentences_lengths"][DEV:], arrays["passages_lengths"]]).astype(np.int64)
    offsets = np.cumsum(lengths) - lengths
    if limit:
        chosen = np.random.default_rng(0).permutation(len(lengths))[:limit]
        offsets, lengths = offsets[chosen], lengths[chosen]
    buckets = []
    for length in np.unique(lengths):
        rows = flat[offsets[lengths == length][:, None] + np.arange(length)]
        buckets.append(Bucket(torch.from_numpy(rows.astype(np.int64)).to(device)))
    return buckets


def load(corpus: Path, teacher: Encoder, device: torch.device, limit: int) -> Data:
    """Read the corpus and let the teacher embed it."""
    arrays = arrays_of(corpus.read_bytes())
    say("corpus read")
    tests = tests_of(arrays, device)
    if limit:
        tests = {n: (ids[: limit // 20], lengths[: limit // 20]) for n, (ids, lengths) in tests.items()}
    dense, tests_dense = measured(teacher, tests, None)
    starts = np.cumsum(arrays["sentences_lengths"], dtype=np.int64)
    dev = padded(arrays["sentences"][: starts[DEV - 1]], arrays["sentences_lengths"][:DEV], device)
    if limit:
        dev = dev[0][: limit // 20], dev[1][: limit // 20]
    buckets = buckets_of(arrays, limit, device)
    data = Data(buckets, {}, dev, embed(teacher, dev), tests, tests_dense, dense)
    texts, count = (sum(size(one.ids) for one in buckets) for size in (len, torch.numel))
    say(f"{texts} training texts, {count} tokens; dense: {line(dense)}")
    remember(teacher, data, device)
    return data


@torch.no_grad()
def remember(teacher: Encoder, data: Data, device: torch.device) -> None:
    """Keep the teacher's states of all training texts in half floats, as many as the device holds."""
    width = teacher.words.shape[1]
    if device.type == "cuda":
        room = torch.cuda.mem_get_info()[0] - 20e9
        needed = sum(b.ids.numel() for b in data.buckets) * len(CACHED) * width * 2
        if needed > room:
            say(f"only {room / needed:.0%} of the texts fit")
            for bucket in data.buckets:
                bucket.ids = bucket.ids[: max(1, int(len(bucket.ids) * room / needed))].clone()
    torch.set_float32_matmul_precision("high")
    sums = {k: [0.0, 0.0, 0.0] for k in CACHED}
    for bucket in data.buckets:
        count, length = bucket.ids.shape
        bucket.states = {k: torch.empty(count, length, width, dtype=torch.float16, device=device) for k in CACHED}
        bucket.embeddings = torch.empty(count, width, device=device)
        for at in range(0, count, max(8, 65536 // length)):
            part = slice(at, at + max(8, 65536 // length))
            states = teacher(bucket.ids[part])
            bucket.embeddings[part] = pooled(states[-1])
            for k in CACHED:
                bucket.states[k][part] = states[k].half()
        sample = min(count, 64)
        for k in CACHED:
            some = bucket.states[k][:sample].float()
            sums[k][0] += some.numel()
            sums[k][1] += some.sum().item()
            sums[k][2] += some.square().sum().item()
    torch.set_float32_matmul_precision("highest")
    data.variances = {k: s / n - (t / n) ** 2 for k, (n, t, s) in sums.items()}
    say(f"the teacher's states are kept, variances {data.variances}")


def forward(module: Module, batch: Batch) -> dict[str, Any]:
    """Return a student's states of a batch; those of the teacher were kept."""
    if module is not REMEMBERED:
        states = module(batch["ids"])
        return {"last_hidden_state": states[-1], "states": states}
    return {"embeddings": batch["embeddings"], "states": batch["states"]}


REMEMBERED: Final = object()
"""Stands for the teacher."""


@dataclass(frozen=True)
class Layers:
    """Mean squared error of states of layers at about the same depth, over the teacher's variance."""

    variances: dict[int, float]
    end: float
    """Share of the loss at the end of the training; it falls linearly."""

    def __call__(self, student: Answer, teacher: Answer) -> torch.Tensor:
        states = student.output["states"]
        pairs = HIDDEN[len(states) - 1]
        errors = [
            functional.mse_loss(states[mine].float(), teacher.output["states"][str(its)].float()) / self.variances[its]
            for mine, its in pairs
        ]
        return torch.stack(errors).mean() * (1 + (self.end - 1) * student.share)


DENSE_FIRST: Final = 0.3
"""Share of the training in which a shallow student learns to be shallow, before it is pruned."""

CALIBRATION: Final = 96
"""Texts of each length that masks are found by."""


def train(
    student: Encoder,
    data: Data,
    recipe: Recipe,
    *,
    zeros: float,
    steps: int,
    tokens: int,
    deadline: float,
    points: int = 0,
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Distil a student in place -> steps, sentences, seconds, and the dev figures at `points` moments.

    With a `checkpoint` the training goes on where it stopped; that of a shallow student with zeros has none.
    """
    is_shallow = len(student.layers) < 6
    first = int(steps * DENSE_FIRST) if zeros and is_shallow else 0
    parts = [_distilled(student, data, recipe, first, tokens, deadline, 0)] if first else []
    if zeros:
        texts = [{"ids": bucket.ids[:CALIBRATION]} for bucket in data.buckets]
        prune(student, texts, sparsity=zeros, structure="equal", method="admm")
    parts.append(_distilled(student, data, recipe, steps - first, tokens, deadline, points, checkpoint))
    student.eval()
    curve = [{"step": p.step, "seconds": p.seconds, "loss": p.loss, **p.quality} for p in parts[-1].points if p.quality]
    return {
        "steps": sum(one.steps for one in parts),
        "sentences": sum(one.samples for one in parts),
        "seconds": sum(one.seconds for one in parts),
        "loss": parts[-1].loss,
        "curve": curve,
    }


def _distilled(
    student: Encoder,
    data: Data,
    recipe: Recipe,
    steps: int,
    tokens: int,
    deadline: float,
    points: int,
    checkpoint: Path | None = None,
) -> History:
    losses: list[Weighed] = [Embedding(), (Layers(data.variances, recipe.hidden_end), recipe.hidden)]
    if recipe.similarity:
        losses.append((Similarity(), recipe.similarity))

    def evaluate(module: Module) -> dict[str, float]:
        return agreement(data.dev_dense, embed(module, data.dev), ranks=False)

    return distil(
        student,
        REMEMBERED,
        lambda epoch: data.batches(tokens, seed=1 + epoch),
        losses=losses,
        steps=steps,
        seconds=max(1.0, deadline - (time.perf_counter() - START)),
        rate=recipe.rate,
        forward=forward,
        evaluate=evaluate if points else None,
        every=max(1, steps // points) if points else None,
        checkpoint=checkpoint,
        progress=False,
    )


def score(figures: Mapping[str, float]) -> float:
    """The figure that decides between trials."""
    return figures["cos"] + figures["nn"] / 100 + figures["top5"]


def line(report: dict[str, float]) -> str:
    """The figures of a model on one line."""
    return " ".join(f"{k} {v:.3f}" if abs(v) <= 1 else f"{k} {v:.1f}" for k, v in report.items())


class Run:
    """A run within a budget of seconds."""

    def __init__(self, base: dict[str, np.ndarray], data: Data, device: torch.device, output: Path) -> None:
        self.base, self.data, self.device, self.output = base, data, device, output
        self.results: dict[str, Any] = {"dense": data.dense, "pilots": [], "models": []}

    def student(self, layers: int) -> Encoder:
        """A student that starts from layers of the base."""
        return Encoder(self.base, DEPTHS[layers]).to(self.device)

    def write(self) -> None:
        """Write the results so far; a reader never sees half of them."""
        part = self.output / "results.part"
        part.write_text(json.dumps(self.results, indent=1))
        os.replace(part, self.output / "results.json")

    def seconds_per_step(self, layers: int, recipe: Recipe, tokens: int, steps: int = 25) -> float:
        """The faster of two measurements: the first one meets lengths of text that the device has not seen yet."""
        student = self.student(layers)
        told = [
            train(student, self.data, recipe, zeros=0.0, steps=count, tokens=tokens, deadline=1e9)
            for count in (5, steps, steps)
        ]
        return min(one["seconds"] for one in told[1:]) / steps

    def pilot(self, recipe: Recipe, steps: int, tokens: int) -> float:
        """A short training at 80 % -> cosine + overlaps of neighbours on the dev sentences."""
        student = self.student(6)
        told = train(student, self.data, recipe, zeros=0.8, steps=steps, tokens=tokens, deadline=1e9)
        figures = agreement(self.data.dev_dense, embed(student, self.data.dev))
        told |= {"recipe": asdict(recipe), "dev": figures}
        self.results["pilots"].append(told)
        self.write()
        say(f"pilot {recipe}: {told['seconds']:.1f} s, loss {told['loss']:.4f}, {line(figures)}")
        return score(figures)

    def chosen_recipe(self, steps: int, tokens: int) -> Recipe:
        """Each question in turn, with the best answers so far."""
        best = Recipe.plain()
        score = self.pilot(best, steps, tokens)
        for changes in (
            [{"similarity": 0.3}, {"similarity": 1.0}],
            [{"hidden_end": 0.1}],
            [{"rate": 2e-3}],
        ):
            for recipe in [replace(best, **c) for c in changes]:
                reached = self.pilot(recipe, steps, tokens)
                if reached > score:
                    best, score = recipe, reached
        return best

    def model(self, model: Model, recipe: Recipe, steps: int, tokens: int, deadline: float) -> float:
        """Train, measure, store, and measure what is stored -> seconds of training."""
        student = self.student(model.layers)
        told = train(
            student, self.data, recipe, zeros=model.zeros, steps=steps, tokens=tokens, deadline=deadline, points=8
        )
        trained, _ = measured(student, self.data.tests, self.data.tests_dense)
        packed = pack(student)
        reread = unpack(packed, self.base).to(self.device).eval()
        stored, _ = measured(reread, self.data.tests, self.data.tests_dense)
        with zipfile.ZipFile(self.output / f"{model.archive}.zip", "a") as archive:
            archive.writestr(f"{model.name}.npz.xz", packed)
        if model.name in FLOATS:
            with zipfile.ZipFile(self.output / "floats.zip", "a") as archive:
                archive.writestr(f"{model.name}.npz.xz", pack(student, precision=16))
        told |= asdict(model) | {"recipe": asdict(recipe), "bytes": len(packed), "zeros_found": sparsity(student)}
        told |= {"trained": trained, "stored": stored}
        self.results["models"].append(told)
        self.write()
        say(f"{model.name}: {told['steps']} steps, {told['sentences']} sentences, {told['seconds']:.1f} s")
        say(f"  trained {line(trained)}")
        say(f"  stored  {line(stored)}, {len(packed) / 1e6:.2f} MB")
        return told["seconds"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train all models within the budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path, help="what `payload` wrote")
    parser.add_argument("corpus", type=Path, help="what `corpus` wrote")
    parser.add_argument("output", type=Path, help="folder of results.json and of the stored models")
    parser.add_argument("--seconds", type=float, default=535, help="of everything, loading included")
    parser.add_argument("--pilot-seconds", type=float, default=10, help="of one of five pilots; 0 makes none")
    parser.add_argument(
        "--limit", type=int, default=0, help="training texts at most, for a trial; a twentieth of it of each test"
    )
    parser.add_argument("--tokens", type=int, default=0, help="of a batch; 0 measures which is fastest")
    parser.add_argument("--models", default="", help="names, with commas between; all without")
    chosen = parser.parse_args(arguments)
    chosen.output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    say(f"torch {torch.__version__} on {torch.cuda.get_device_name() if device.type == 'cuda' else 'cpu'}")
    base = read_base(chosen.base)
    teacher = Encoder(base, DEPTHS[6]).to(device).eval().requires_grad_(False)
    run = Run(base, load(chosen.corpus, teacher, device, chosen.limit), device, chosen.output)
    del teacher
    tokens = chosen.tokens or fastest_batch(run)
    run.results |= {"device": str(device), "torch": torch.__version__, "tokens": tokens, "seconds": chosen.seconds}
    recipe = Recipe()
    if chosen.pilot_seconds:
        each = run.seconds_per_step(6, replace(recipe, similarity=1.0), tokens)
        recipe = run.chosen_recipe(max(10, int(chosen.pilot_seconds / each)), tokens)
    models = [m for m in MODELS if not chosen.models or m.name in chosen.models.split(",")]
    costs = {n: run.seconds_per_step(n, recipe, tokens) for n in {m.layers for m in models}}
    # Beside the steps, each model takes seconds to be measured and stored, and finding masks costs a little.
    left = chosen.seconds - (time.perf_counter() - START)
    aside = 7.0 if device.type == "cuda" else 0.1 * left / len(models)
    steps = max(10, int(0.93 * (left - aside * len(models)) / sum(costs[m.layers] for m in models)))
    say(f"recipe {recipe}; {steps} steps of {tokens} tokens each; seconds a step {costs}")
    run.results |= {"steps": steps, "seconds_per_step": costs}
    run.write()
    pace = 1.0
    for model in models:
        left = chosen.seconds - (time.perf_counter() - START) - aside
        fitting = min(steps, int(left / (pace * costs[model.layers])))
        if fitting < steps / 3:
            say(f"{model.name}: no time left")
            continue
        try:
            seconds = run.model(model, recipe, fitting, tokens, chosen.seconds - aside)
            pace = max(pace, seconds / (fitting * costs[model.layers]))
        except Exception:
            say(f"{model.name} failed:\n{traceback.format_exc()}")
    say("done")


def fastest_batch(run: Run) -> int:
    """The smallest batch, in tokens, that reaches nine tenths of the best throughput."""
    sizes = (8192, 16384, 32768) if run.device.type == "cuda" else (1024,)
    rates = {t: t / run.seconds_per_step(6, Recipe(), t) for t in sizes}
    say(f"tokens/s by batch: { ({t: round(r) for t, r in rates.items()}) }")
    return min(t for t in sizes if rates[t] >= 0.9 * max(rates.values()))


if __name__ == "__main__":
    main()

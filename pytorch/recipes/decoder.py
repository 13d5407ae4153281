# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false, reportPrivateImportUsage=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
"""Distil sparse SmolLM2s of four bits: `python -m redpebble.pytorch.recipes.decoder BASE TEXTS OUT`.

Every model learns the dense one's distribution of the next token on the same number of tokens, with its zeros and its
rounding to four bits in the loop. Masks are Wanda's. Some train all weights, others a difference of low rank, which is
stored in less than 4 MB. Short pilots choose the learning rates, on a text that is neither trained on nor held out.
Perplexities are those of windows of 512 tokens. Results are written after each model, so a run that is cut loses one
model at most.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

BEGUN: Final = time.perf_counter()
"""The time budget counts from here: loading torch takes part of it."""

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from ...models.compressed_arrays import arrays_of  # noqa: E402
from ...models.language import stored  # noqa: E402
from ...models.language.base_weights import base_of  # noqa: E402
from ...models.language.llama import Llama  # noqa: E402
from ..distil import distil  # noqa: E402
from ..low_rank import GAIN_STEP, LowRank, codes_of, gain_codes, low_rank  # noqa: E402
from ..prune import prune  # noqa: E402
from ..rounded_weights import is_computed, round_weights, rounded  # noqa: E402
from ..sparsifiers import Sparsifier  # noqa: E402
from ..structures import Sparsity, Structure  # noqa: E402

Tokenizer = Any
"""A tokenizer of the package tokenizers."""

LENGTH: Final = 512
"""Tokens of a window."""

DEV: Final = 64
"""Windows set apart to choose by."""

CALIBRATION: Final = 64
"""Windows whose inputs of layers masks are chosen by."""

RANK: Final = 28
"""Rank of the differences: what 4 MB hold."""

PROMPTS: Final = (
    "What is the capital of France?",
    "Give me three tips for staying healthy.",
    "Write one sentence about the sea.",
    "What is 7 plus 5?",
)


def say(text: str) -> None:
    """Print with the seconds since the start."""
    print(f"[{time.perf_counter() - BEGUN:6.1f}] {text}", flush=True)


@dataclass(frozen=True)
class Model:
    """A student: its zeros, whether in two of four, and the rank of what is trained, 0 for all weights."""

    name: str
    zeros: float
    rank: int = 0
    is_of_four: bool = False
    bits: int = 4


MODELS: Final = (
    Model("z50_low_rank", 0.5, RANK),
    Model("z50", 0.5),
    Model("dense", 0.0),
    Model("z24_low_rank", 0.5, RANK, is_of_four=True),
    Model("z30_low_rank", 0.3, RANK),
    Model("z24", 0.5, is_of_four=True),
    Model("z70", 0.7),
)
"""In the order of training: what is wanted most comes first."""

RATES: Final = {False: (2e-4, 5e-4, 1e-3), True: (1e-3, 3e-3, 6e-3)}
"""Learning rates that pilots try, of all weights and of low rank."""


class Data:
    """Token windows on the device."""

    def __init__(self, path: Path, device: torch.device, limit: int) -> None:
        arrays = arrays_of(path.read_bytes())
        train = np.concatenate([ids for name, ids in arrays.items() if name.startswith("train_")])
        windows = _windows(train)[np.random.default_rng(5).permutation(len(train) // LENGTH)]
        windows = windows[:limit] if limit else windows
        dev = min(DEV, len(windows) // 8)
        self.train, self.dev = (torch.from_numpy(one).to(device) for one in (windows[dev:], windows[:dev]))
        self.tests = {
            name.removeprefix("test_"): torch.from_numpy(_windows(ids)[: max(1, limit // 20) if limit else None]).to(
                device
            )
            for name, ids in arrays.items()
            if name.startswith("test_")
        }

    def batches(self, windows: int, seed: int) -> Callable[[int], Iterator[Tensor]]:
        """A function of the epoch that returns its batches."""

        def epoch(number: int) -> Iterator[Tensor]:
            random = torch.Generator().manual_seed(seed + number)
            order = torch.randperm(len(self.train), generator=random).to(self.train.device)
            for at in range(0, max(1, len(order) - windows + 1), windows):
                yield self.train[order[at : at + windows]]

        return epoch


def _windows(ids: np.ndarray) -> np.ndarray:
    return ids[: len(ids) // LENGTH * LENGTH].reshape(-1, LENGTH).astype(np.int64)


@torch.no_grad()
def perplexity(model: nn.Module, windows: Tensor, at_once: int = 8) -> float:
    """exp of the mean loss of all tokens but the first one of each window; in float32."""
    total, count = 0.0, 0
    for at in range(0, len(windows), at_once):
        ids = windows[at : at + at_once]
        logits = model(ids)[:, :-1].float()
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")
        total, count = total + float(loss), count + ids[:, 1:].numel()
    return float(np.exp(total / count))


@torch.no_grad()
def agreement(model: nn.Module, teacher: nn.Module, windows: Tensor, at_once: int = 8) -> dict[str, float]:
    """Mean KL from the teacher's distributions, and the share of tokens whose likeliest next one is the same."""
    divergence, same, count = 0.0, 0, 0
    for at in range(0, len(windows), at_once):
        ours, theirs = (one(windows[at : at + at_once]).float().log_softmax(-1) for one in (model, teacher))
        divergence += float((theirs.exp() * (theirs - ours)).sum())
        same += int((ours.argmax(-1) == theirs.argmax(-1)).sum())
        count += ours.shape[0] * ours.shape[1]
    return {"kl": divergence / count, "same": same / count}


@torch.no_grad()
def answers(model: nn.Module, tokenizer: Tokenizer, device: torch.device, most: int = 40) -> dict[str, str]:
    """The model's answers to the prompts, greedily."""
    from ...models.language.texts import SYSTEM

    found: dict[str, str] = {}
    for prompt in PROMPTS:
        turns = (("system", SYSTEM), ("user", prompt))
        text = "".join(f"<|im_start|>{role}\n{said}<|im_end|>\n" for role, said in turns) + "<|im_start|>assistant\n"
        ids = list(tokenizer.encode(text, add_special_tokens=False).ids)
        start = len(ids)
        for _ in range(most):
            last = int(model.lm_head(model.model(torch.tensor([ids], device=device))[0, -1]).argmax())
            if last in (0, 2):
                break
            ids.append(last)
        found[prompt] = tokenizer.decode(ids[start:])
    return found


def stored_mask(is_of_four: bool) -> Structure:
    """Masks as an archive finds them again: of equal scores the first ones stay."""

    def choose(scores: Tensor, density: float) -> Tensor:
        rows = scores.view(-1, 4) if is_of_four else scores
        kept = 2 if is_of_four else max(1, round(density * scores.shape[1]))
        order = rows.sort(dim=1, descending=True, stable=True).indices[:, :kept]
        return torch.zeros_like(rows, dtype=torch.bool).scatter_(1, order, True).view_as(scores)

    return Structure(choose, 0.5 if is_of_four else None)


def stored_wanda(seen: list[Tensor]) -> Sparsifier:
    """Wanda by mean squares without the lower half of their bits, as they are stored; `seen` gets them."""

    def solve(weight: Tensor, squares: Tensor, sparsity: Sparsity) -> Tensor:
        cut = torch.from_numpy(stored.from_upper_halves(stored.upper_halves(squares.cpu().numpy()))).to(weight.device)
        seen.append(cut)
        return weight * sparsity.mask(weight.square() * cut)

    return Sparsifier(solve, "norms")


def student_of(teacher: nn.Module, model: Model, windows: Sequence[Tensor]) -> nn.Module:
    """A student as it is before training: pruned, and rounded from now on; word embeddings are frozen."""
    student = copy.deepcopy(teacher).requires_grad_(True)
    student.lm_head.weight.requires_grad_(False)
    if model.zeros:
        goal, squares = None if model.is_of_four else model.zeros, list[Tensor]()
        method = stored_wanda(squares)
        report = prune(student, windows, sparsity=goal, structure=stored_mask(model.is_of_four), method=method)
        student.squares = {one.name: found for one, found in zip(report.layers, squares, strict=True)}
    if model.rank:
        low_rank(student, model.rank)
    if model.bits < 16:
        round_weights(student, model.bits)
        with torch.no_grad():
            # words are rounded once, as the int4 file of the dense model has them
            student.lm_head.weight.copy_(rounded(student.lm_head.weight, model.bits))
    return student


def archive_of(student: nn.Module, model: Model) -> stored.Stored:
    """The archive of a student of low rank."""
    arrays: dict[str, np.ndarray] = {}
    for name, one in student.named_modules():
        if isinstance(one, nn.RMSNorm):
            arrays[f"{name}.norm"] = one.weight.detach().cpu().numpy().astype(np.float16)
        if not is_computed(one):
            continue
        difference = one.parametrizations.weight[0]
        assert isinstance(difference, LowRank)
        for side, axis in (("left", 0), ("right", 1)):
            codes = codes_of(getattr(difference, side).detach(), axis)
            arrays[f"{name}.{side}"] = codes.codes.cpu().numpy().astype(np.int8)
            arrays[f"{name}.{side}_steps"] = codes.steps.cpu().numpy().astype(np.float16)
        arrays[f"{name}.gain"] = gain_codes(difference.gain.detach()).cpu().numpy().astype(np.int8)
        if stored.leader_of(name) == name:
            arrays[f"{name}.squares"] = stored.upper_halves(student.squares[name].cpu().numpy())
    return stored.Stored(1 - model.zeros, model.is_of_four, GAIN_STEP, arrays)


@torch.no_grad()
def finished(student: nn.Module, teacher: nn.Module) -> nn.Module:
    """A decoder of the teacher's kind with the weights that the student computes."""
    copied = copy.deepcopy(teacher)
    for name, one in student.named_modules():
        if isinstance(one, nn.Linear | nn.RMSNorm | nn.Embedding):
            copied.get_submodule(name).weight.copy_(one.weight)
    return copied


def sparsity_of(student: nn.Module) -> float:
    """Share of the linear layers' weights that is 0."""
    with torch.no_grad():
        weights = [
            one.weight for name, one in student.named_modules() if isinstance(one, nn.Linear) and "layers" in name
        ]
        return float(sum((one == 0).sum() for one in weights) / sum(one.numel() for one in weights))


class Training:
    """A run within a budget of seconds."""

    def __init__(
        self, teacher: nn.Module, base: dict[str, np.ndarray], data: Data, output: Path, tokenizer: Tokenizer
    ) -> None:
        self.teacher, self.base, self.data, self.output, self.tokenizer = teacher, base, data, output, tokenizer
        self.device = data.train.device
        self.calibration = list(data.train[:CALIBRATION].split(8))
        self.results: dict[str, Any] = {"pilots": [], "models": [], "rounded": []}
        self.windows = 0

    def write(self) -> None:
        """Write the results so far; a reader never sees half of them."""
        part = self.output / "results.part"
        part.write_text(json.dumps(self.results, indent=1))
        os.replace(part, self.output / "results.json")

    def measured(self, model: nn.Module) -> dict[str, float]:
        """Perplexities on the held-out texts, and how far the model is from the teacher on the first of them."""
        told = {name: perplexity(model, windows) for name, windows in self.data.tests.items()}
        return told | agreement(model, self.teacher, next(iter(self.data.tests.values()))[:24])

    def train(
        self, student: nn.Module, rate: float, steps: int, seconds: float | None, points: int = 0
    ) -> dict[str, Any]:
        """Distil a student in place."""
        history = distil(
            student,
            self.teacher,
            self.data.batches(self.windows, seed=1),
            losses=["logits"],
            steps=steps,
            seconds=seconds,
            rate=rate,
            evaluate=(lambda one: -perplexity(one, self.data.dev)) if points else None,
            every=max(1, steps // points) if points else None,
            progress=False,
        )
        curve = [
            {"step": p.step, "seconds": p.seconds, "loss": p.loss, **p.quality} for p in history.points if p.quality
        ]
        tokens = history.steps * self.windows * LENGTH
        return {"steps": history.steps, "tokens": tokens, "seconds": history.seconds, "rate": rate, "curve": curve}

    def pace(self, model: Model, windows: int, steps: int) -> float:
        """Seconds of a step."""
        self.windows = windows
        student = student_of(self.teacher, model, self.calibration[:1])
        self.train(student, 1e-6, 2, None)
        self._wait()
        return min(self.train(student, 1e-6, steps, None)["seconds"] for _ in range(2)) / steps

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def pilot(self, model: Model, rate: float, steps: int) -> float:
        """A short training -> perplexity on the text set apart."""
        student = student_of(self.teacher, model, self.calibration)
        told = self.train(student, rate, steps, None)
        found = perplexity(finished(student, self.teacher), self.data.dev)
        self.results["pilots"].append({"model": model.name, "dev": found, **told})
        self.write()
        say(f"pilot {model.name} at {rate:g}: {told['seconds']:.1f} s, perplexity {found:.3f}")
        return found if np.isfinite(found) else float("inf")

    def model(self, model: Model, rate: float, steps: int, seconds: float) -> None:
        """Train, measure, store, and measure what is stored."""
        student = student_of(self.teacher, model, self.calibration)
        before = self.measured(finished(student, self.teacher))
        say(f"{model.name} before: {line(before)}")
        told = self.train(student, rate, steps, seconds, points=5)
        whole = finished(student, self.teacher)
        after = self.measured(whole)
        told |= asdict(model) | {"before": before, "after": after, "zeros_found": sparsity_of(whole)}
        say(f"{model.name}: {told['steps']} steps, {told['seconds']:.1f} s, {line(after)}")
        if model.rank:
            packed = stored.pack(archive_of(student, model))
            (self.output / f"{model.name}.npz.xz").write_bytes(packed)
            told["bytes"] = len(packed)
            say(f"{model.name}: stored in {len(packed) / 1e6:.2f} MB")
        told["answers"] = answers(whole, self.tokenizer, self.device)
        self.results["models"].append(told)
        self.write()
        if model.rank:
            again = reread(packed, self.base, self.teacher)
            told["stored"] = self.measured(again)
            say(f"{model.name} as stored: {line(told['stored'])}")
            self.write()


def reread(packed: bytes, base: dict[str, np.ndarray], teacher: nn.Module) -> nn.Module:
    """A student from its archive and the base."""
    student = copy.deepcopy(teacher)
    device = student.lm_head.weight.device
    found = base | stored.weights_of(stored.read(packed), base)
    with torch.no_grad():
        for name, array in found.items():
            one = torch.from_numpy(array).to(device)
            student.get_parameter(name).copy_(rounded(one) if one.dim() == 2 else one)
    return student.eval()


def line(report: dict[str, float]) -> str:
    """The figures of a model on one line."""
    return ", ".join(f"{name} {value:.4g}" for name, value in report.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """Train all models within the budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path, help="folder that redpebble.models.language.base_weights wrote")
    parser.add_argument("texts", type=Path, help="what redpebble.models.language.texts wrote")
    parser.add_argument("output", type=Path, help="folder of results.json and of the stored models")
    parser.add_argument("--seconds", type=float, default=500, help="of everything, loading included")
    parser.add_argument("--pilot-seconds", type=float, default=9, help="of one of six pilots; 0 makes none")
    parser.add_argument(
        "--limit", type=int, default=0, help="windows at most, for a trial; a twentieth of it of each test"
    )
    parser.add_argument("--layers", type=int, default=30, help="layers of the model, for a trial")
    parser.add_argument("--windows", type=int, default=0, help="of a batch; 0 measures which is fastest")
    parser.add_argument("--steps", type=int, default=0, help="of each model; 0 takes what the budget lets")
    parser.add_argument("--models", default="", help="names, with commas between; all without")
    chosen = parser.parse_args(arguments)
    chosen.output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    say(f"torch {torch.__version__} on {torch.cuda.get_device_name() if device.type == 'cuda' else 'cpu'}")
    config, base = base_of(chosen.base, chosen.layers)
    say("the base is read")
    teacher = Llama(config, base).to(device).eval().requires_grad_(False)
    tokenizer = import_module("tokenizers").Tokenizer.from_file(str(chosen.base / "tokenizer.json"))
    run = Training(teacher, base, Data(chosen.texts, device, chosen.limit), chosen.output, tokenizer)
    say(f"{len(run.data.train)} windows to train on")
    run.results |= {"device": str(device), "torch": torch.__version__, "seconds": chosen.seconds}
    run.results["teacher"] = run.measured(teacher) | {"answers": answers(teacher, tokenizer, device)}
    say(f"dense: {line({name: one for name, one in run.results['teacher'].items() if name != 'answers'})}")
    for model in (Model("dense", 0.0), Model("z50_floats", 0.5, bits=16)):
        found = run.measured(finished(student_of(teacher, model, run.calibration), teacher))
        run.results["rounded"].append(asdict(model) | found)
        say(f"{model.name} untrained: {line(found)}")
    run.write()
    train_all(run, chosen)
    say("done")


def train_all(run: Training, chosen: argparse.Namespace) -> None:
    """Pilots, then models, as many as the budget lets."""
    models = [one for one in MODELS if not chosen.models or one.name in chosen.models.split(",")]
    costs = {windows: run.pace(MODELS[0], windows, 4) for windows in ([chosen.windows] if chosen.windows else [16, 32])}
    windows = min(costs, key=lambda one: costs[one] / one * (1.0 if one == max(costs) else 0.85))
    cost, run.windows = costs[windows], windows
    run.results |= {"windows": windows, "costs": costs}
    say(f"seconds a step: {costs}; {windows} windows a batch, {windows * LENGTH / cost:.0f} tokens/s")
    rates: dict[bool, float] = {True: 3e-3, False: 5e-4}
    if chosen.pilot_seconds:
        steps = max(2, int(chosen.pilot_seconds / cost))
        for model in (MODELS[0], MODELS[1]):
            tried = {rate: run.pilot(model, rate, steps) for rate in RATES[bool(model.rank)]}
            rates[bool(model.rank)] = min(tried, key=lambda one: tried[one])
    aside = 9.0 if run.device.type == "cuda" else 0.02 * chosen.seconds
    whole = min(4, len(models))
    left = chosen.seconds - (time.perf_counter() - BEGUN)
    steps = chosen.steps or max(2, int(0.97 * (left - aside * whole) / whole / cost))
    say(f"rates {rates}; {steps} steps each")
    for model in models:
        left = chosen.seconds - (time.perf_counter() - BEGUN) - aside
        if left < 0.4 * steps * cost:
            say(f"{model.name}: no time left")
            continue
        try:
            run.model(model, rates[bool(model.rank)], steps, left)
        except Exception:
            say(f"{model.name} failed:\n{traceback.format_exc()}")
        if run.device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

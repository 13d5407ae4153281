# pyright: basic, reportMissingImports=false
"""Sentence encoders of the zoo beside their rivals: milliseconds, quality and bytes, from ONNX files alone.

`python -m redpebble.bench.sentence_encoders_bench models FOLDER` writes the encoders of the zoo, the dense one,
and those of eight bits (`_int8`: onnxruntime's quantize_dynamic, 7-bit weights, as advised without VNNI; `_pebble8`:
`redpebble.optimize` with samples). `speed FOLDER` times them in one process, in turn, one thread; `quality FOLDER`
compares embeddings by onnxruntime on the held-out texts of CORPUS (`models/sentences`). Both add to measured.json.
`docstrings` compares them once more, in torch, on texts of other sources that are on any machine: docstrings of Python
packages.
"""

from __future__ import annotations

import ast
import io
import json
import lzma
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import onnxruntime
import typer
from onnxruntime.quantization import QuantType, quantize_dynamic

import redpebble

from ..models import zoo
from ..models.minilm import base_encoder
from ..models.sentence_encoders import (
    DENSE_ENCODERS,
    SENTENCE_ENCODERS,
    Torch,
    embedding_model,
    put_layers,
    stored_encoder,
)
from ..models.sentences.corpus import tokens
from ..tools.console.console import console
from ..verification.measuring import Budget, interleave

app = typer.Typer(help=__doc__, add_completion=False)

Feeds = dict[str, np.ndarray]
Folder = Annotated[Path, typer.Argument(help="Where the ONNX files are.")]
Corpus = Annotated[Path, typer.Option(help="What models/sentences/corpus wrote.")]

RIVALS: Final = ("dense", *DENSE_ENCODERS)
"""Dense encoders that onnxruntime runs, as floats and in eight bits."""

CALL_TOKENS: Final = 128
SAMPLE_TEXTS: Final = 64
"""Training sentences that the scales of our eight bits come from."""


def sparse_models() -> list[str]:
    """Names of the encoders with zeros."""
    return [name for name in SENTENCE_ENCODERS if name not in RIVALS]


@app.command()
def models(folder: Folder, corpus: Corpus = Path("corpus.npz.xz"), only: str = "", *, eight_bits: bool = True) -> None:
    """Write the ONNX files that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in only.split(",") if only else ["dense", *SENTENCE_ENCODERS]:
        path = folder / f"{name}.onnx"
        if not path.exists():
            model = embedding_model(*base_encoder(name)) if name == "dense" else zoo.build(name)
            zoo.save(model, path)
            console.print(str(path))
        eight = folder / f"{name}_int8.onnx"
        if name in RIVALS and not eight.exists():
            quantize_dynamic(path, eight, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)  # pyright: ignore[reportCallIssue]
            console.print(str(eight))
        ours = folder / f"{name}_pebble8.onnx"
        if name not in RIVALS and eight_bits and not ours.exists():
            optimized = redpebble.optimize(path, rows=CALL_TOKENS, samples=_samples(corpus))
            optimized.save(ours)
            console.print(f"{ours}: {optimized.quantized}")


def _samples(corpus: Path) -> Feeds:
    arrays = _texts(corpus, "sentences", limit=40 * SAMPLE_TEXTS)
    chosen = [ids for ids in arrays if len(ids) >= 16][:SAMPLE_TEXTS]
    return _feeds([ids[:16] for ids in chosen])


@app.command()
def speed(folder: Folder, sizes: str = "1x128,8x32", seconds: float = 60.0) -> None:
    """Time every file: floats with zeros in our sessions, all others in onnxruntime's."""
    sessions = {path.stem: _session(path) for path in sorted(folder.glob("*.onnx"))}
    measured = _measured(folder)
    for size in sizes.split(","):
        batch, length = (int(one) for one in size.split("x"))
        feeds = _feeds(list(np.random.default_rng(0).integers(1000, 20000, (batch, length))))
        calls = {name: partial(session.run, None, feeds) for name, session in sessions.items()}
        for name, timing in interleave(calls, Budget(seconds, least_rounds=5)).items():
            figures = {"median_ms": timing.median_us / 1e3, "min_ms": timing.min_us / 1e3, "rounds": timing.rounds}
            measured.setdefault(name, {})[size] = figures
            console.print(f"{name:22} {size} {figures}", highlight=False, soft_wrap=True)
        _write(folder, measured)


def _session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    name = path.stem
    if name in RIVALS or name.endswith("_int8"):
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    if name.endswith("_pebble8"):
        return redpebble.session(path, options)
    return redpebble.session(path, options, rows=CALL_TOKENS)


@app.command()
def quality(folder: Folder, corpus: Corpus = Path("corpus.npz.xz"), only: str = "", tests: str = "man") -> None:
    """Compare each file's embeddings with the dense encoder's: cosine, neighbours, recall."""
    console.print("embedding by the dense encoder")
    groups = ["sentences", *(f"{test}_{part}" for test in tests.split(",") if test for part in ("query", "answer"))]
    texts = {group: _texts(corpus, f"test_{group}") for group in groups}
    kept, measured = folder / "dense_embeddings.npz", _measured(folder)
    names = only.split(",") if only else sorted(path.stem for path in folder.glob("*.onnx"))
    if not kept.exists():
        np.savez(
            kept, allow_pickle=False, **{group: _embed(folder / "dense.onnx", some) for group, some in texts.items()}
        )
    dense = dict(np.load(kept))
    for name in names:
        start = time.perf_counter()
        found = {group: _embed(folder / f"{name}.onnx", some) for group, some in texts.items()}
        figures = agreement(dense["sentences"], found["sentences"])
        for test in tests.split(","):
            if test:
                figures[f"{test}_r1"] = recall(found[f"{test}_query"], found[f"{test}_answer"])
        measured = _measured(folder)
        measured.setdefault(name, {})["quality"] = figures
        measured[name]["bytes"] = (folder / f"{name}.onnx").stat().st_size
        _write(folder, measured)
        console.print(f"{name}: {figures}, {time.perf_counter() - start:.0f} s", highlight=False, soft_wrap=True)


@app.command()
def docstrings(packages: str = "numpy,onnx,torch", count: int = 2000) -> None:
    """Compare the zoo's encoders with the dense one on first sentences of docstrings, of so many functions."""
    texts = _first_sentences(packages.split(","))
    chosen = [texts[index] for index in np.random.default_rng(0).permutation(len(texts))[:count]]
    ids = [tokens(words, LONGEST_DOCSTRING) for words in zip(*chosen, strict=True)]
    sentences, names = (np.split(flat, np.cumsum(lengths)[:-1]) for flat, lengths in ids)
    whole = None
    for name in ("dense", *SENTENCE_ENCODERS):
        torch, encoder = base_encoder(name)
        if name != "dense":
            put_layers(torch, encoder, stored_encoder(name))
        found = [_embed_by(torch, encoder, some) for some in (sentences, names)]
        whole = found[0] if whole is None else whole
        figures = agreement(whole, found[0]) | {"name_r1": recall(found[1][:500], found[0][:500])}
        console.print(f"{name}: {figures}", highlight=False, soft_wrap=True)


LONGEST_DOCSTRING: Final = 64
"""Tokens of a sentence that are read."""


def _first_sentences(packages: list[str]) -> list[tuple[str, str]]:
    """Return first sentences of docstrings, each once, and the names of what they describe, as words."""
    found = dict[str, str]()
    for package in packages:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            for path in sorted(Path(folder).rglob("*.py")):
                try:
                    tree = ast.parse(path.read_text())
                except (SyntaxError, UnicodeDecodeError):
                    continue
                for node in ast.walk(tree):
                    if isinstance(node, ast.FunctionDef | ast.ClassDef) and (text := ast.get_docstring(node)):
                        sentence = " ".join(text.split("\n\n")[0].split()).split(". ")[0]
                        if 5 <= len(sentence.split()) <= 40 and sentence[0].isalpha() and sentence.isascii():
                            found.setdefault(sentence, node.name.strip("_").replace("_", " "))
    return list(found.items())


def _embed_by(torch: Torch, encoder: Torch, texts: list[np.ndarray]) -> np.ndarray:
    lengths, found = np.array([len(ids) for ids in texts]), np.zeros((len(texts), 384), np.float32)
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        with torch.no_grad():
            states = encoder(torch.from_numpy(np.stack([texts[index] for index in same]).astype(np.int64)))
            found[same] = torch.nn.functional.normalize(states.last_hidden_state.mean(1), dim=1).numpy()
    return found


def agreement(dense: np.ndarray, found: np.ndarray) -> dict[str, float]:
    """Mean cosine, percent of texts with the nearest neighbour of the dense embeddings, overlap of the five nearest."""
    ours, theirs = (embeddings @ embeddings.T - 3 * np.eye(len(embeddings)) for embeddings in (found, dense))
    nearest, wanted = (np.argsort(-scores, axis=1)[:, :5] for scores in (ours, theirs))
    shared = (nearest[:, :, None] == wanted[:, None, :]).any(2).mean()
    same = 100 * (nearest[:, 0] == wanted[:, 0]).mean()
    return {"cos": float((dense * found).sum(1).mean()), "nn": float(same), "top5": float(shared)}


def recall(queries: np.ndarray, answers: np.ndarray) -> float:
    """Percent of queries whose own answer is the nearest."""
    return 100 * float((np.argmax(queries @ answers.T, axis=1) == np.arange(len(queries))).mean())


def _embed(path: Path, texts: list[np.ndarray], *, tokens: int = 512) -> np.ndarray:
    """Embeddings of texts, which run in batches of one length."""
    session = _session(path)
    lengths = np.array([len(ids) for ids in texts])
    found = np.zeros((len(texts), 384), np.float32)
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        for part in np.array_split(same, -(-len(same) * length // tokens)):
            found[part] = np.asarray(session.run(None, _feeds([texts[i] for i in part]))[0])
    return found


def _feeds(texts: list[np.ndarray]) -> Feeds:
    ids = np.stack(texts).astype(np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def _texts(corpus: Path, name: str, *, limit: int = 0) -> list[np.ndarray]:
    raw = corpus.read_bytes()
    with np.load(io.BytesIO(lzma.decompress(raw) if corpus.suffix == ".xz" else raw)) as archive:
        lengths = archive[f"{name}_lengths"].astype(np.int64)
        flat = archive[name]
    lengths = lengths[:limit] if limit else lengths
    return np.split(flat[: lengths.sum()], np.cumsum(lengths)[:-1])


def _measured(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / "measured.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _write(folder: Path, measured: dict[str, dict[str, Any]]) -> None:
    (folder / "measured.json").write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    app()

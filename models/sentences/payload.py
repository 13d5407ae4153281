"""The base as one file, with a corpus's words: `python -m redpebble.models.sentences.payload CORPUS BASE`."""

from __future__ import annotations

import argparse
import io
import lzma
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .encoder import write_base


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("base", type=Path)
    chosen = parser.parse_args(arguments)
    with np.load(io.BytesIO(lzma.decompress(chosen.corpus.read_bytes()))) as archive:
        used = [np.unique(archive[n]) for n in archive.files if not n.endswith("_lengths")]
    words = np.unique(np.concatenate(used))
    write_base(chosen.base, words)
    print(f"{chosen.base}: {len(words)} words, {chosen.base.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

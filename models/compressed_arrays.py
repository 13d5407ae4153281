"""Arrays by name in one compressed file, .npz.xz: what is trained, and what it is trained on."""

from __future__ import annotations

import io
import lzma
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def compressed_arrays(
    arrays: Mapping[str, NDArray[Any]], *, preset: int | None = None, filters: Sequence[Mapping[str, Any]] | None = None
) -> bytes:
    """Return the bytes of a file; `preset` and `filters` are those of `lzma.compress`."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return lzma.compress(buffer.getvalue(), preset=preset, filters=filters)


def arrays_of(data: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file's bytes."""
    with np.load(io.BytesIO(lzma.decompress(data))) as archive:
        return {name: archive[name] for name in archive.files}

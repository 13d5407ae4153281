"""Pictures of matrices as PNG, inside of a page."""

import struct
import zlib
from base64 import b64encode

import numpy as np
from numpy.typing import NDArray


def dot_picture(rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int], size: int = 360) -> str:
    """Return a data URI of a PNG of `size` pixels square: darker where more of the entries (row, column) lie."""
    cells = tuple(min(size, max(1, count)) for count in shape)
    counts = np.zeros(cells)
    np.add.at(
        counts,
        tuple(at * cell // max(1, count) for at, cell, count in zip((rows, columns), cells, shape, strict=True)),
        1.0,
    )
    share = np.sqrt(counts / max(1.0, float(np.quantile(counts[counts > 0], 0.98)) if counts.any() else 1.0))
    grey = (255 - np.minimum(share, 1.0) * 235).astype(np.uint8)
    grey[counts == 0] = 255
    picks = [np.arange(size) * cell // size for cell in cells]
    return f"data:image/png;base64,{b64encode(_png(grey[np.ix_(*picks)])).decode()}"


def _png(grey: NDArray[np.uint8]) -> bytes:
    """Return an 8-bit grey image [height, width] as PNG."""
    height, width = grey.shape
    lines = b"".join(b"\x00" + row.tobytes() for row in grey)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")

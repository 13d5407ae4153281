"""Pictures of matrices are dark where entries lie."""

import struct
import zlib
from base64 import b64decode

import numpy as np

from redpebble.tools.explain.page.orders import dot_picture


def test_a_picture_is_dark_where_the_entries_are_and_white_elsewhere() -> None:
    uri = dot_picture(np.array([0, 1, 1]), np.array([1, 0, 0]), (2, 2), size=10)
    assert uri.startswith("data:image/png;base64,")
    data = b64decode(uri.partition(",")[2])
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT") + 4
    rows = zlib.decompress(data[start : data.index(b"IEND") - 8])
    pixels = np.frombuffer(rows, dtype=np.uint8).reshape(height, width + 1)[:, 1:]
    assert pixels.shape == (10, 10)
    assert np.all(pixels[:5, :5] == 255)
    assert np.all(pixels[5:, 5:] == 255)
    assert np.all(pixels[5:, :5] <= pixels[0, 9])
    assert pixels[0, 9] < 255

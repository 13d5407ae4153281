"""Random steps of stored decoders: numbers of texts, lengths, pasts, padding, buffers that are longer than the text."""

import json
from pathlib import Path
from typing import Final

import numpy as np

import redpebble
from redpebble.models.exports.stored import stored_export, stored_names
from tests.end_to_end.test_decoders import EXACT, OF_FOUR_BITS, ROUNDED, WINDOWED, Call, assert_agrees, room_of
from tests.fuzzing.fuzzer import Fuzzer, one_of

CALLS: Final = 4
"""Steps that a session takes."""


def draw(seed: int, folder: Path) -> None:
    """A decoder, the seed of its weights, and steps."""
    rng = np.random.default_rng(seed)
    name = one_of(rng, [name for name in stored_names() if name.endswith(".genai")])
    calls = list[Call]()
    for _ in range(CALLS):
        batch, past = one_of(rng, (1, 1, 2, 3, 4)), one_of(rng, (0, 0, 1, 17, int(rng.integers(1, 150))))
        # several tokens behind a past are taken of one text alone
        length = 1 if batch > 1 and past else int(rng.integers(1, 70))
        padding = int(rng.integers(0, max(1, past if past else length)))
        padded = padding if batch > 1 and (past or length > 1) else 0
        calls.append(Call(batch, length, past, padded, bool(rng.integers(2))))
    room = room_of(name) if name in WINDOWED else one_of(rng, (None, None, int(rng.integers(1, 40))))
    settings = {"name": name, "weights": int(rng.integers(100)), "calls": calls, "room": room}
    (folder / "steps.json").write_text(json.dumps(settings))


def check(folder: Path) -> str:
    """A session computes what onnxruntime does."""
    settings = json.loads((folder / "steps.json").read_text())
    proto = stored_export(settings["name"], seed=settings["weights"])
    calls = tuple(Call(*numbers) for numbers in settings["calls"])
    tolerance = ROUNDED if settings["name"] in OF_FOUR_BITS else EXACT
    assert_agrees(proto, redpebble.session(proto), calls, settings["room"], tolerance)
    return settings["name"].removesuffix(".genai")


DECODERS = Fuzzer("decoders", draw, check)

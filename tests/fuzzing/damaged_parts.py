"""Damaged parts of a network, sealed again or not, run by ranks: right, or one line and exit code 2."""

import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx_ir as ir

from redpebble.distributed.parts.part_file import MAGIC
from redpebble.distributed.parts.plan_file import PLAN_NAME
from redpebble.lowering.llvm.values import ALIGNMENT
from redpebble.models.zoo import build
from tests.distributed.launching import REDPEBBLE, Case, mpiexec, write_case
from tests.fuzzing.damage import damaged_bytes
from tests.fuzzing.fuzzer import Fuzzer, one_of
from tests.fuzzing.planted_faults import PLANTED

Json = Any
"""What the json module reads and writes."""

SECONDS = 200.0
CERTAIN = 4
"""One seed in so many changes an index of rows that are sent to one that no buffer has, which must be refused."""

NO_INDEX = (-1, -(10**6), 10**9)
WORTHLESS: tuple[Json, ...] = (
    None,
    "",
    "x",
    [],
    {},
    True,
    -1,
    0,
    1,
    2,
    7,
    63,
    10**9,
    -(10**6),
    2**63,
    1.5,
    [0],
    [[0, 0]],
    "input",
)


def draw(seed: int, folder: Path) -> None:
    """Parts with right inputs and outputs, some damage, and what was done."""
    rng, certain = np.random.default_rng(seed), seed % CERTAIN == 0
    ranks, width = 2 if certain else one_of(rng, (1, 2, 2, 2)), one_of(rng, (8, 20, 33))
    kind, depth = one_of(rng, ("rows", "rows", "rows", "layers", "batch", "nodes")), int(rng.integers(1, 4))
    if certain:
        kind, depth = "rows", 2
    batch = one_of(rng, (1, 7, 65))
    if kind == "nodes":
        layer, widths = one_of(rng, ("gcn", "sage", "gin", "gat")), (4, *(width // 4 * 4 for _ in range(depth)))
        model = build(f"graph_network(kind={layer!r}, nodes={12 * batch}, widths={widths})")
        batch = 1
    else:
        model = build(f"ffnn(depth={depth}, width={width}, density=0.5)")
    assert isinstance(model, ir.Model)
    write_case(folder / "case", model, Case(kind, ranks, batches=(batch,)))
    arrays = np.load(folder / "case" / "feeds.npz")
    np.save(folder / "x.npy", arrays[f"in0.{batch}"])
    np.save(folder / "right.npy", arrays[f"out0.{batch}"])
    parts = folder / "case" / "parts"
    change = damage_rows if certain else damage
    how = change(parts, rng) if certain or rng.random() < 0.95 else "nothing"
    (folder / "settings.json").write_text(json.dumps({"ranks": ranks, "kind": kind, "how": how}))


def damage_rows(parts: Path, rng: np.random.Generator) -> str:
    """Make an index of the rows that a part sends or receives one that no buffer has, and seal the part again."""
    plan_path = parts / PLAN_NAME
    plan: Json = json.loads(plan_path.read_text())
    entry = one_of(rng, plan["parts"])
    path = parts / entry["file"]
    changed, how = with_numbers(path.read_bytes(), rng, sent_alone=True)
    path.write_bytes(changed)
    entry["sha256"] = hashlib.sha256(changed).hexdigest()
    plan_path.write_text(json.dumps(plan))
    return f"sealed rows, {how}"


def damage(parts: Path, rng: np.random.Generator) -> str:
    """Damage a part or the plan; the words say which and how."""
    plan_path = parts / PLAN_NAME
    plan: Json = json.loads(plan_path.read_text())
    if rng.random() < 0.15:
        how = damage_json(plan, rng)
        plan_path.write_text(json.dumps(plan))
        return f"plan, {how}"
    entry = one_of(rng, plan["parts"])
    path = parts / entry["file"]
    content = path.read_bytes()
    match int(rng.integers(8)):
        case 0:
            changed, how = damaged_bytes(content, rng), "bytes"
        case 1 | 2 | 3:
            changed, how = with_header(content, rng)
        case _:
            changed, how = with_numbers(content, rng)
    path.write_bytes(changed)
    if content == changed:
        return "nothing"
    if rng.random() < 0.1:
        return f"unsealed, {how}"
    entry["sha256"] = hashlib.sha256(changed).hexdigest()
    plan_path.write_text(json.dumps(plan))
    return f"sealed, {how}"


def damage_json(content: Json, rng: np.random.Generator) -> str:
    """Change one entry of what JSON holds, or of what is inside."""
    holders = [holder for holder in _holders(content) if len(holder)]
    holder = one_of(rng, holders)
    keys: list[Any] = [*holder] if isinstance(holder, dict) else [*range(len(holder))]
    key = one_of(rng, keys)
    if rng.random() < 0.15:
        del holder[key]
        return f"{key} deleted"
    before = cast("object", holder[key])
    if isinstance(before, int) and rng.random() < 0.5:
        holder[key] = before + one_of(rng, (-1, 1, 5))
    else:
        holder[key] = one_of(rng, WORTHLESS)
    return f"{key} becomes {holder[key]!r}"


def _holders(content: Json) -> list[Json]:
    """The lists and dictionaries in what JSON holds."""
    if isinstance(content, dict):
        inside = list(cast("dict[str, Json]", content).values())
    elif isinstance(content, list):
        inside = cast("list[Json]", content)
    else:
        return []
    return [content, *(holder for one in inside for holder in _holders(one))]


def with_header(content: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """A part with its header changed, mostly in what says which steps are done on which buffers."""
    start, header, arrays = _taken_apart(content)
    word = one_of(rng, ("steps", "steps", "steps", "buffers", "arrays", "text", ""))
    if word == "text":
        text = damaged_bytes(header["text"].encode(), rng) if rng.random() < 0.3 else _edited(header["text"], rng)
        header["text"], how = text.decode(errors="replace") if isinstance(text, bytes) else text, "text"
    else:
        inside = header[word] if word and header[word] else header
        how = f"{word} {damage_json(inside, rng)}"
    return _put_together(start, header, arrays), how


def _edited(text: str, rng: np.random.Generator) -> str:
    """The text with a number of it changed."""
    places = [index for index, letter in enumerate(text) if letter.isdigit()]
    place = one_of(rng, places)
    return text[:place] + one_of(rng, ("0", "1", "7", "99", "1000000", "-1")) + text[place + 1 :]


def with_numbers(content: bytes, rng: np.random.Generator, *, sent_alone: bool = False) -> tuple[bytes, str]:
    """A part with an entry of one of its arrays changed; `sent_alone` makes an index of rows one that none has."""
    start, header, arrays = _taken_apart(content)
    changed, offset = bytearray(arrays), 0
    spans = dict[int, tuple[int, np.dtype[Any], int]]()
    for number, (name, shape) in enumerate(header["arrays"]):
        dtype: np.dtype[Any] = np.dtype(name)
        if count := math.prod(shape):
            spans[number] = offset, dtype, count
        offset += count * dtype.itemsize + -(count * dtype.itemsize) % ALIGNMENT
    if not spans:
        return content, "nothing"
    sent = [number for word, *rest in header["steps"] if word != "call" for _, number in rest[2]]
    offset, dtype, count = spans[one_of(rng, sent if sent_alone or (sent and rng.random() < 0.7) else [*spans])]
    array = np.frombuffer(changed, dtype, count, offset)
    place = int(rng.integers(count))
    value = one_of(rng, NO_INDEX if sent_alone else (0, 1, 5, 10**9, *NO_INDEX))
    with np.errstate(over="ignore"):
        array[place] = np.array(value).astype(dtype)
    return _put_together(start, header, bytes(changed)), f"entry {place} of {count} {dtype} becomes {value}"


def _taken_apart(content: bytes) -> tuple[bytes, Json, bytes]:
    """What is before the length of the header, the header, and the arrays."""
    start = len(MAGIC) + 8
    length = int.from_bytes(content[len(MAGIC) : start], "little")
    return content[: len(MAGIC)], json.loads(content[start : start + length]), content[start + length :]


def _put_together(start: bytes, header: Json, arrays: bytes) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-(len(start) + 8 + len(text)) % ALIGNMENT)
    return start + len(text).to_bytes(8, "little") + text + arrays


def check(folder: Path) -> str:
    """All ranks end, with right outputs or one line; sealed damage may mean another network, and so other outputs."""
    settings = json.loads((folder / "settings.json").read_text())
    sealed = settings["how"].startswith(("sealed", "plan"))
    command = [sys.executable, "-m", "tests.fuzzing.planted_faults", *PLANTED] if PLANTED else [REDPEBBLE]
    words = ("run", folder / "case" / "parts", "--input", folder / "x.npy", "--output", folder / "y.npy")
    done = mpiexec(settings["ranks"], *command, *words, "--patience", "30", seconds=SECONDS)
    said = f"{settings}: {done.stderr[-300:]}"
    assert done.returncode in (0, 2), f"exit code {done.returncode}, {said}"
    assert "Traceback" not in done.stderr, said
    assert not [*folder.glob(".*.part")], "an unfinished output was left behind"
    what = f"{settings['how'].partition(',')[0]}"
    if done.returncode == 0:
        found, right = np.load(folder / "y.npy"), np.load(folder / "right.npy")
        assert not settings["how"].startswith("sealed rows"), f"an index that no buffer has was accepted, {said}"
        same = found.shape == right.shape and np.allclose(found, right, 1e-4, 1e-5)
        assert same or sealed, f"other outputs, {said}"
        assert not settings["how"].startswith("unsealed"), f"damage was accepted, {said}"
        return f"{what} {'right' if same else 'other outputs'}"
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, f"not one line: {said}"
    assert settings["how"] != "nothing", said
    assert not (folder / "y.npy").exists(), "an output was left behind"
    return f"{what} refused"


PARTS = Fuzzer("parts", draw, check)

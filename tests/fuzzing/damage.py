"""Damage to files: of their bytes, and of what a protobuf message says."""

import json
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from redpebble.runtime.store.json_cache import Json
from tests.fuzzing.fuzzer import one_of

NUMBERS = (0, 1, 2, 3, 7, -1, -2, 127, 255, 10**6, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
TEXTS = (b"", b"x", b"y", b"\x00", b"../../etc/passwd", b"/dev/zero", b"\xff\xfe", b"a" * 5000, b"MatMul", b"If")


def damaged_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Bytes with some flipped, cut off, repeated, zeroed or put in."""
    if not content:
        return rng.bytes(10)
    place, length = int(rng.integers(len(content))), int(rng.integers(1, 64))
    match int(rng.integers(6)):
        case 0 | 1:
            changed = bytearray(content)
            for _ in range(one_of(rng, (1, 1, 1, 8))):
                changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
            return bytes(changed)
        case 2:
            return content[:place]
        case 3:
            return content[:place] + rng.bytes(length) + content[place:]
        case 4:
            return content[:place] + bytes(length) + content[place + length :]
        case _:
            return content[:place] + content[place : place + length] * 2 + content[place + length :]


def damage_message(message: Message, rng: np.random.Generator) -> str:
    """Change one field of a message or of one inside it; the words say which and how."""
    inside = one_of(rng, [*messages_in(message)])
    known = cast("Sequence[FieldDescriptor]", inside.DESCRIPTOR.fields)
    present = [field for field, _ in inside.ListFields()]
    field = one_of(rng, present if present and rng.random() < 0.8 else known)
    name = f"{inside.DESCRIPTOR.name}.{field.name}"
    how = _damage_many(inside, field, rng) if field.is_repeated else _damage_one(inside, field, rng)
    return f"{name} {how}"


def messages_in(message: Message) -> Iterator[Message]:
    """The message and all inside it, however deep."""
    yield message
    for field, content in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for one in content if field.is_repeated else [content]:
                yield from messages_in(one)


def _damage_one(message: Message, field: FieldDescriptor, rng: np.random.Generator) -> str:
    if field.type == FieldDescriptor.TYPE_MESSAGE or rng.random() < 0.3:
        message.ClearField(field.name)
        return "cleared"
    value = _value(field, rng, getattr(message, field.name))
    try:
        setattr(message, field.name, value)
    except (ValueError, TypeError):  # outside of the field's range
        message.ClearField(field.name)
    return f"set to {value!r:.40}"


def _damage_many(message: Message, field: FieldDescriptor, rng: np.random.Generator) -> str:
    entries = getattr(message, field.name)
    if not len(entries):
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            entries.add()
            return "has an empty entry"
        return _append(entries, _value(field, rng, None))
    place = int(rng.integers(len(entries)))
    match int(rng.integers(4)):
        case 0:
            del entries[place]
            return f"{place} deleted"
        case 1:
            entries.append(entries[place])
            return f"{place} repeated"
        case 2:
            other = int(rng.integers(len(entries)))
            kept = [*entries]
            kept[place], kept[other] = kept[other], kept[place]
            copies = [_copy(one) for one in kept]
            del entries[:]
            entries.extend(copies)
            return f"{place} and {other} swapped"
        case _ if field.type != FieldDescriptor.TYPE_MESSAGE:
            before = entries[place]
            del entries[place]
            return _append(entries, _value(field, rng, before))
        case _:
            entries[place].Clear()
            return f"{place} cleared"


def _copy(value: object) -> object:
    if isinstance(value, Message):
        copy = type(value)()
        copy.CopyFrom(value)
        return copy
    return value


def _append(entries: object, value: object) -> str:
    try:
        entries.append(value)  # pyright: ignore
    except (ValueError, TypeError):
        return "unchanged"
    return f"appended {value!r:.40}"


def _value(field: FieldDescriptor, rng: np.random.Generator, before: object) -> object:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return damaged_bytes(before, rng) if isinstance(before, bytes) else one_of(rng, TEXTS)
    if field.type == FieldDescriptor.TYPE_STRING:
        return one_of(rng, TEXTS).decode(errors="replace")
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return one_of(rng, (0.0, -1.0, 1e30, 1e-40, float("nan"), float("inf")))
    return one_of(rng, NUMBERS)


def damaged_model(content: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """The bytes of a model, damaged as bytes or as what they say, and how."""
    if rng.random() < 0.3:
        return damaged_bytes(content, rng), "bytes"
    model = onnx.ModelProto.FromString(content)
    how = [damage_message(model, rng) for _ in range(one_of(rng, (1, 1, 2, 3)))]
    return model.SerializeToString(), ", ".join(how)


def damaged_json(content: bytes, rng: np.random.Generator) -> bytes:
    """The bytes of a JSON file of which one value is another one, or gone."""
    document: Json = json.loads(content)
    places = [*_places_in(document)]
    if rng.random() < 0.7:  # most places are in lists, of layers that were measured
        places = [place for place in places if isinstance(place[1], str)]
    inside, key = one_of(rng, places)
    others: tuple[Json, ...] = (
        None,
        True,
        -1,
        0,
        8,
        1 << 20,
        1 << 40,
        8.0,
        0.01,
        1e300,
        10**400,
        float("nan"),
        "x",
        "-0",
        [],
        {},
        [[1]],
        {"x": 1},
    )
    if isinstance(inside, dict) and rng.random() < 0.2:
        del inside[key]
    else:
        inside[key] = one_of(rng, others)
    return json.dumps(document).encode()


def _places_in(value: Json) -> Iterator[tuple[Json, str | int]]:
    """All places of a document that hold a value: what they are in, and their key or number there."""
    keys: Sequence[str | int] = ()
    if isinstance(value, dict):
        keys = [*cast("dict[str, Json]", value)]
    elif isinstance(value, list):
        keys = range(len(cast("list[Json]", value)))
    for key in keys:
        yield value, key
        yield from _places_in(cast("Json", value)[key])

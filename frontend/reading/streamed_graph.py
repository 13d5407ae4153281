"""The weight graph of a file that is not read: its nodes are, one by one, and its weights stay where they lie.

To read a model takes several times as long as to look at its weights once, and several times its memory. Not even the
package `onnx` is loaded, which takes longer than the look.

Messages of protobuf that are passed over are never copied, nor read from the file.
"""

import mmap
from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from ...foundation.regular_files import open_regular
from .model_file import OVERRIDABLE_SINCE
from .weight_graph import BLOCK, Constant, GraphNode, Values, WeightGraph

Data = bytes | mmap.mmap
"""A message, or a file that holds one."""

Span = tuple[int, int]
"""Offsets of a message between which bytes lie: the first one, and the one behind the last."""

VARINT: Final = 0
EIGHT_BYTES: Final = 1
SPAN: Final = 2
FOUR_BYTES: Final = 5
"""Forms of a field, the lowest three bits of its key."""


class Message:
    """The fields of a message in a span of the data, by the numbers that its definition gives them."""

    __slots__ = ("_data", "_found")

    def __init__(self, data: Data, span: Span) -> None:
        """Read the keys of all fields.

        Raises:
            ValueError: it is no message.
        """
        self._data = data
        self._found: dict[int, list[int | Span]] = {}
        for number, value in _fields(data, span):
            self._found.setdefault(number, []).append(value)

    def spans(self, number: int) -> list[Span]:
        """Return the spans of the fields of a number."""
        return [value for value in self._found.get(number, ()) if isinstance(value, tuple)]

    def messages(self, number: int) -> Iterator["Message"]:
        """Yield the fields of a number that are messages themselves."""
        return (Message(self._data, span) for span in self.spans(number))

    def number(self, number: int) -> int:
        """Return the last integer of a number, 0 where there is none."""
        return next((value for value in self._found.get(number, ())[::-1] if isinstance(value, int)), 0)

    def numbers(self, number: int) -> Iterator[int]:
        """Yield the integers of a number, be they packed or not."""
        for value in self._found.get(number, ()):
            if isinstance(value, int):
                yield value
                continue
            at, end = value
            while at < end:
                found, at = _varint(self._data, at, end)
                yield found

    def texts(self, number: int) -> tuple[str, ...]:
        """Return the texts of a number."""
        return tuple([self._data[start:end].decode() for start, end in self.spans(number)])

    def text(self, number: int) -> str:
        """Return the last text of a number, empty where there is none."""
        return "".join(self.texts(number)[-1:])


def _fields(data: Data, span: Span) -> Iterator[tuple[int, int | Span]]:
    at, end = span
    while at < end:
        key, at = _varint(data, at, end)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(data, at, end)
            yield key >> 3, value
            continue
        if kind == SPAN:
            size, at = _varint(data, at, end)
        elif kind in (EIGHT_BYTES, FOUR_BYTES):
            size = 8 if kind == EIGHT_BYTES else 4
        else:
            raise ValueError(f"expected wire type 0, 1, 2 or 5, got {kind}")
        if at + size > end:
            raise ValueError(f"a field ends {at + size - end} bytes behind its message")
        yield key >> 3, (at, at + size)
        at += size


def _varint(data: Data, at: int, end: int) -> tuple[int, int]:
    """Return an integer of seven bits a byte, the lowest first, and where it ends."""
    found = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return found | byte << shift, at
        found |= (byte & 0x7F) << shift
        shift += 7
    raise ValueError("an integer is cut short")


FLOAT32: Final = 1
"""The element type of most weights, as onnx.proto numbers it."""

STORED: Final[Mapping[int, np.dtype[np.generic]]] = {
    FLOAT32: np.dtype("<f4"),
    2: np.dtype("u1"),  # UINT8
    3: np.dtype("i1"),  # INT8
    6: np.dtype("<i4"),  # INT32
    7: np.dtype("<i8"),  # INT64
    9: np.dtype("?"),  # BOOL
    10: np.dtype("<u2"),  # FLOAT16
    11: np.dtype("<f8"),  # DOUBLE
    16: np.dtype("<u2"),  # BFLOAT16
}
"""Element types whose raw bytes are values of numpy, or the bits of floats of 16."""

IR_VERSION, GRAPH, FUNCTIONS = 1, 7, 25
"""Fields of a model."""

NODE, INITIALIZER, INPUT, SPARSE_INITIALIZER = 1, 5, 11, 15
"""Fields of a graph."""

READ, YIELDED, OPERATOR, ATTRIBUTE, DOMAIN = 1, 2, 4, 5, 7
"""Fields of a node."""

KEY, INTEGER, TENSOR, INNER_GRAPH, INNER_GRAPHS, SPARSE_TENSOR = 1, 3, 5, 6, 11, 22
"""Fields of an attribute."""

DIMS, ELEMENT_TYPE, FLOATS, NAME, RAW, EXTERNAL, LOCATION = 1, 2, 4, 8, 9, 13, 14
"""Fields of a tensor."""

VALUE_NAME, ENTRY_KEY, ENTRY_VALUE = 1, 1, 2
"""The field of an input that is its name, and those of an entry that says where values lie."""

WITH_ATTRIBUTES: Final = frozenset({"Cast", "Constant", "If", "Loop", "Scan", "SequenceMap"})
"""Operators of ONNX whose attributes say what becomes of constants, or hold graphs."""


def streamed_graph(source: bytes | Path) -> WeightGraph:
    """Return the graph of the model that a file, or bytes, hold; its constants hold on to them until they are gone.

    Raises:
        OSError: a file cannot be read.
        ValueError: it is no model, or of a form that is not read here.
    """
    if isinstance(source, bytes):
        return _Graph(source, None).whole()
    return _Graph(_mapped(source), source.parent).whole()


class _Graph:
    """A graph as far as it was looked at, of a message, in whose folder its other files lie."""

    def __init__(self, data: Data, folder: Path | None) -> None:
        self._data, self._folder = data, folder
        self._nodes: list[GraphNode] = []
        self._constants: dict[Hashable, Constant] = {}
        self._defined: set[str] = set()
        self._files: dict[Path, mmap.mmap] = {}
        self._is_complete = True

    def whole(self) -> WeightGraph:
        """Return the graph of the model that the message is."""
        model = Message(self._data, (0, len(self._data)))
        graphs = list(model.messages(GRAPH))
        if len(graphs) != 1:
            raise ValueError(f"expected 1 graph, got {len(graphs)}")
        replaceable = model.number(IR_VERSION) >= OVERRIDABLE_SINCE
        inputs = {value.text(VALUE_NAME) for value in graphs[0].messages(INPUT)} if replaceable else set[str]()
        self._add_graph(graphs[0], inputs)
        return WeightGraph(self._nodes, self._constants, self._is_complete and not model.spans(FUNCTIONS))

    def _add_graph(self, graph: Message, replaced: set[str]) -> None:
        """Add nodes and initializers of a graph, without those that a call may replace."""
        self._is_complete &= not graph.spans(SPARSE_INITIALIZER)
        for span in graph.spans(INITIALIZER):
            name, constant = self._tensor(span)
            if name not in replaced:
                self._keep(name, constant)
        for node in graph.messages(NODE):
            self._add(node)

    def _keep(self, name: str, constant: Constant) -> None:
        self._define(name)
        self._constants[name] = constant

    def _define(self, name: str) -> None:
        # graphs inside of nodes may call another value the same: then one name would not do for both
        self._is_complete &= not name or name not in self._defined
        self._defined.add(name)

    def _add(self, node: Message) -> None:
        """Add a node, and what it holds: a constant, or graphs."""
        domain, operator = node.text(DOMAIN), node.text(OPERATOR)
        domain = "" if domain == "ai.onnx" else domain
        read, yielded, cast = node.texts(READ), node.texts(YIELDED), 0
        is_constant = False
        for attribute in node.messages(ATTRIBUTE) if domain or operator in WITH_ATTRIBUTES else ():
            if operator == "Cast" and attribute.text(KEY) == "to":
                cast = attribute.number(INTEGER)
            tensors = attribute.spans(TENSOR)
            if operator == "Constant" and not domain and tensors and yielded:
                is_constant = True
                self._keep(yielded[0], self._tensor(tensors[-1])[1])
            self._is_complete &= not attribute.spans(SPARSE_TENSOR)
            for number in (INNER_GRAPH, INNER_GRAPHS):
                for graph in attribute.messages(number):
                    self._add_graph(graph, set())
        if not is_constant:
            for name in yielded:
                self._define(name)
        self._nodes.append(GraphNode(domain, operator, read, yielded, cast))

    def _tensor(self, span: Span) -> tuple[str, Constant]:
        """Return the name of a tensor, and its values where they lie."""
        tensor = Message(self._data, span)
        name, shape, kind = tensor.text(NAME), tuple(tensor.numbers(DIMS)), tensor.number(ELEMENT_TYPE)
        raw, floats = tensor.spans(RAW), tensor.spans(FLOATS)
        if tensor.number(LOCATION) or tensor.spans(EXTERNAL):
            return name, self._external(tensor, shape, kind)
        if raw or (kind == FLOAT32 and len(floats) == 1):
            return name, _stored(shape, kind, self._data, *(raw or floats)[-1])
        return name, Constant(shape, partial(_unpacked_blocks, self._data[span[0] : span[1]]))

    def _external(self, tensor: Message, shape: tuple[int, ...], kind: int) -> Constant:
        """Return values that lie in a file of the model's folder, which may be a link to another."""
        where = {entry.text(ENTRY_KEY): entry.text(ENTRY_VALUE) for entry in tensor.messages(EXTERNAL)}
        location = Path(where["location"])
        if self._folder is None or location.is_absolute() or ".." in location.parts:
            raise ValueError(f"expected values in the model's folder, got file {where['location']!r}")
        path = self._folder / location
        if path not in self._files:
            self._files[path] = _mapped(path)
        data, start = self._files[path], int(where.get("offset", 0))
        return _stored(shape, kind, data, start, start + int(where.get("length", len(data) - start)))


def _mapped(path: Path) -> mmap.mmap:
    with open_regular(path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _stored(shape: tuple[int, ...], kind: int, data: Data, start: int, end: int) -> Constant:
    """Return a constant whose values are bytes of the data from `start` to before `end`.

    Raises:
        ValueError: its shape needs more or fewer.
    """
    dtype = STORED.get(kind)
    if dtype is None:
        return Constant(shape, _unknown_blocks)
    if prod(shape) * dtype.itemsize != end - start or not 0 <= start <= end <= len(data):
        raise ValueError(f"bytes {start} to {end} for shape {shape} of {dtype}")
    return Constant(shape, partial(_stored_blocks, dtype, data, start, end))


def _stored_blocks(dtype: np.dtype[np.generic], data: Data, start: int, end: int) -> Iterator[Values]:
    step = BLOCK * dtype.itemsize
    for first in range(start, end, step):
        # a copy, as values in a file begin anywhere
        yield np.frombuffer(data[first : min(first + step, end)], dtype)


def _unpacked_blocks(tensor: bytes) -> Iterator[Values]:
    """Yield the values of a tensor that holds them in another way than as bytes."""
    from onnx import TensorProto, numpy_helper

    from .weight_graph import array_blocks

    return array_blocks(numpy_helper.to_array(TensorProto.FromString(tensor)))


def _unknown_blocks() -> Iterator[Values]:
    raise ValueError("values of a type that is not read here")

"""Builder of LLVM IR: loops, addresses, and one function for each distinct piece of work in a module."""

import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, get_type_hints

from llvmlite import ir

from ..cpu_target import CpuTarget
from .values import ALIGNMENT as ALIGNMENT
from .values import BYTE, FLOAT, I64, VOID, Floats, Number, Value, i64
from .values import FLOAT_BYTES as FLOAT_BYTES
from .values import I32 as I32
from .values import POINTER as POINTER
from .vectors import Lanes

Body = Callable[[ir.IRBuilder, Sequence[ir.Argument]], None]


def opaque(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Return an integer or address as a value of which LLVM knows nothing; no instruction comes of it.

    Counters of loops are: LLVM's loop strength reduction, which looks for cheaper addresses, would take half of the
    time that code takes to be made, and finds none where kernels have put their addresses as they want them.
    """
    return builder.asm(ir.FunctionType(value.type, [value.type]), "", "=r,0", [value], False)


@contextmanager
def counted_loop(builder: ir.IRBuilder, stop: ir.Value, step: int = 1) -> Generator[ir.Value]:
    """Emit a loop over 0, step, ... while below `stop`; yields the index, with the builder inside the loop's body."""
    before = builder.block
    header = builder.append_basic_block("loop")
    body = builder.append_basic_block("body")
    after = builder.append_basic_block("after")
    builder.branch(header)
    builder.position_at_end(header)
    index = builder.phi(I64, "i")
    index.add_incoming(i64(0), before)
    builder.cbranch(builder.icmp_signed("<", index, stop), body, after)
    builder.position_at_end(body)
    yield index
    index.add_incoming(opaque(builder, builder.add(index, i64(step))), builder.block)
    builder.branch(header)
    builder.position_at_end(after)


def reduce_loop(
    builder: ir.IRBuilder,
    stop: ir.Value,
    initial: Sequence[ir.Value],
    body: Callable[[ir.Value, Sequence[ir.Value]], Sequence[ir.Value]],
    *,
    start: ir.Value | None = None,
) -> list[ir.Value]:
    """Emit a loop over 0 (or `start`), 1, ... below `stop` that carries values; `body` returns the next ones."""
    before = builder.block
    header = builder.append_basic_block("reduce")
    inside = builder.append_basic_block("body")
    after = builder.append_basic_block("after")
    builder.branch(header)
    builder.position_at_end(header)
    index = builder.phi(I64, "i")
    index.add_incoming(i64(0) if start is None else start, before)
    carried = [builder.phi(value.type) for value in initial]
    for phi, value in zip(carried, initial, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", index, stop), inside, after)
    builder.position_at_end(inside)
    following = body(index, carried)
    index.add_incoming(opaque(builder, builder.add(index, i64(1))), builder.block)
    for phi, value in zip(carried, following, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(header)
    builder.position_at_end(after)
    return list(carried)


def float_at(builder: ir.IRBuilder, pointer: ir.Value, index: ir.Value) -> ir.Value:
    """Return the address of the float at `index` after `pointer`."""
    return pointer if is_zero(index) else builder.gep(pointer, [index], source_etype=FLOAT)


def byte_at(builder: ir.IRBuilder, pointer: ir.Value, offset: ir.Value) -> ir.Value:
    """Return the address `offset` bytes after `pointer`."""
    return pointer if is_zero(offset) else builder.gep(pointer, [offset], source_etype=BYTE)


def is_zero(value: ir.Value) -> bool:
    """Return whether an index is known to be zero: to write its address once more takes longer than to ask."""
    return isinstance(value, ir.Constant) and value.constant == 0


class Cell(NamedTuple):
    """A feature of a column of a tile, in feature-major buffers [features, width]."""

    feature: Number
    width: int
    column: int

    def of(self, buffer: Floats) -> Floats:
        """Return its address in a buffer."""
        return buffer.at(self.feature * self.width + self.column)


@dataclass
class Code:
    """The module under construction; a function is emitted once for each key, however often it is asked for."""

    target: CpuTarget
    module: ir.Module
    functions: dict[str, ir.Function] = field(default_factory=dict[str, ir.Function])

    def function(self, key: str, arguments: Sequence[ir.Type], body: Body, *, exported: bool = False) -> ir.Function:
        """Return the function `key`; `body` fills it when it is new. Other modules see it when it is `exported`."""
        known = self.functions.get(key)
        if known is not None:
            return known
        function = ir.Function(self.module, ir.FunctionType(VOID, arguments), key)
        function.linkage = "external" if exported else "internal"
        function.attributes.add("nounwind")
        self.functions[key] = function
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        body(builder, function.args)
        builder.ret_void()
        return function

    def kernel(
        self, key: str, *, exported: bool = False, rest: int = 0
    ) -> Callable[[Callable[..., None]], ir.Function]:
        """Return a decorator: a function whose parameters are kinds of values becomes the function `key` of the module.

        `def body(x: Floats, rows: Number) -> None` has arguments of these types by these names; a parameter that is a
        named tuple of values stands for an argument each, `*arrays` for `rest` of them.
        """

        def define(body: Callable[..., None]) -> ir.Function:
            parameters = Parameters.of(body, rest)

            def fill(builder: ir.IRBuilder, arguments: Sequence[ir.Argument]) -> None:
                body(*parameters.received(builder, arguments))

            return self.function(key, parameters.types, fill, exported=exported)

        return define

    def column_lanes(self, width: int) -> int:
        """Return the floats in a vector of batch columns of a tile that is `width` columns wide."""
        return min(self.target.lanes, width)

    def lanes(self, place: ir.IRBuilder | Value, width: int | None = None) -> Lanes:
        """Return the vector operations at a place, of the target's width unless another one is asked for."""
        builder = place.builder if isinstance(place, Value) else place
        return Lanes(builder, self.target, self.target.lanes if width is None else width)


class Parameters(NamedTuple):
    """The kinds of the parameters of a function, values or named tuples of such."""

    kinds: list[type[object]]

    @classmethod
    def of(cls, body: Callable[..., object], rest: int = 0) -> "Parameters":
        """Return those that a function is annotated with, but for those with a default; `*rest` stands for some."""
        kinds: list[type[object]] = []
        for parameter in inspect.signature(body).parameters.values():
            if parameter.default is parameter.empty:
                kinds += [parameter.annotation] * (rest if parameter.kind is parameter.VAR_POSITIONAL else 1)
        return cls(kinds)

    @property
    def types(self) -> list[ir.Type]:
        """The types of the arguments, of which a named tuple takes some."""
        return [part.argument_type for kind in self.kinds for part in _parts(kind)]

    def received(self, builder: ir.IRBuilder, arguments: Sequence[ir.Argument]) -> list[object]:
        """Return the parameters, made of the arguments."""
        rest = iter(arguments)
        return [_received(kind, builder, rest) for kind in self.kinds]


def _parts(kind: type[object]) -> list[type[Value]]:
    return [kind] if issubclass(kind, Value) else [part for field in _fields(kind) for part in _parts(field)]


def _fields(record: type[object]) -> list[type[object]]:
    return list(get_type_hints(record).values())


def _received(kind: type[object], builder: ir.IRBuilder, arguments: Iterator[ir.Argument]) -> object:
    if issubclass(kind, Value):
        return kind(builder, next(arguments))
    return kind(*(_received(field, builder, arguments) for field in _fields(kind)))


class ColumnChunk(NamedTuple):
    """Batch columns of a tile that one loop works on, as whole vectors."""

    first: int
    vectors: int


def column_chunks(width: int, lanes: int, most: int) -> list[ColumnChunk]:
    """Return `width` batch columns cut into chunks of at most `most` vectors of `lanes` columns."""
    vectors = width // lanes
    return [ColumnChunk(first * lanes, min(most, vectors - first)) for first in range(0, vectors, most)]

"""Builder of LLVM IR: loops, addresses, and one function for each distinct piece of work in a module."""

import inspect
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from llvmlite import ir

from ..cpu_target import CpuTarget
from .values import ALIGNMENT as ALIGNMENT
from .values import BYTE, FLOAT, I64, VOID, Value, i64
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

    feature: ir.Value
    width: int
    column: int

    def address(self, builder: ir.IRBuilder, buffer: ir.Value) -> ir.Value:
        """Return its address in a buffer."""
        index = builder.add(builder.mul(self.feature, i64(self.width)), i64(self.column))
        return float_at(builder, buffer, index)


def entry_of(builder: ir.IRBuilder, table: ir.Value, index: int, entry: ir.Type) -> ir.Value:
    """Return entry `index` of a table of pointers or 64-bit sizes."""
    address = builder.gep(table, [i64(index)], source_etype=entry)
    return builder.load(address, typ=entry)


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

        `def body(x: Floats, rows: Number) -> None` has arguments of these types by these names; `*arrays` are `rest`.
        """

        def define(body: Callable[..., None]) -> ir.Function:
            kinds = kinds_of(body, rest)

            def fill(builder: ir.IRBuilder, arguments: Sequence[ir.Argument]) -> None:
                body(*(kind(builder, argument) for kind, argument in zip(kinds, arguments, strict=True)))

            return self.function(key, [kind.argument_type for kind in kinds], fill, exported=exported)

        return define

    def column_lanes(self, width: int) -> int:
        """Return the floats in a vector of batch columns of a tile that is `width` columns wide."""
        return min(self.target.lanes, width)

    def lanes(self, place: ir.IRBuilder | Value, width: int | None = None) -> Lanes:
        """Return the vector operations at a place, of the target's width unless another one is asked for."""
        builder = place.builder if isinstance(place, Value) else place
        return Lanes(builder, self.target, self.target.lanes if width is None else width)


def kinds_of(body: Callable[..., object], rest: int = 0) -> list[type[Value]]:
    """Return the kinds of the parameters of a function, those with a default left out; `*rest` stands for some."""
    kinds: list[type[Value]] = []
    for parameter in inspect.signature(body).parameters.values():
        if parameter.default is not parameter.empty:
            continue
        kind = parameter.annotation
        assert isinstance(kind, type)
        assert issubclass(kind, Value)
        kinds += [kind] * (rest if parameter.kind is parameter.VAR_POSITIONAL else 1)
    return kinds


class ColumnChunk(NamedTuple):
    """Batch columns of a tile that one loop works on, as whole vectors."""

    first: int
    vectors: int


def column_chunks(width: int, lanes: int, most: int) -> list[ColumnChunk]:
    """Return `width` batch columns cut into chunks of at most `most` vectors of `lanes` columns."""
    vectors = width // lanes
    return [ColumnChunk(first * lanes, min(most, vectors - first)) for first in range(0, vectors, most)]

"""Modules of LLVM IR under construction: one function for each distinct piece of work."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, get_type_hints

from llvmlite import ir

from ..cpu_target import CpuTarget
from .values import VOID, Floats, Number, Value
from .vectors import Lanes

Result = TypeVar("Result")


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

    def kernel(
        self, key: str, *, exported: bool = False, rest: int = 0
    ) -> Callable[[Callable[..., None]], ir.Function]:
        """Return a decorator: a function whose parameters are kinds of values becomes the function `key` of the module.

        `def body(x: Floats, rows: Number) -> None` has arguments of these types by these names; a parameter that is a
        named tuple of values stands for an argument each, `*arrays` for `rest` of them, which others may follow.
        A body is run when its key is new; other modules see the function when it is `exported`.
        """
        return lambda body: self.function(key, Parameters.of(body, rest), body, exported=exported)

    def function(
        self, key: str, parameters: "Parameters", body: Callable[..., None], *, exported: bool = False
    ) -> ir.Function:
        """Return the function of a key, which a body with these parameters fills where it is new."""
        known = self.functions.get(key)
        if known is not None:
            return known
        function = ir.Function(self.module, ir.FunctionType(VOID, parameters.types), key)
        function.linkage = "external" if exported else "internal"
        function.attributes.add("nounwind")
        self.functions[key] = function
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        parameters.call(body, builder, function.args)
        builder.ret_void()
        return function

    def column_lanes(self, width: int) -> int:
        """Return the floats in a vector of batch columns of a tile that is `width` columns wide."""
        return min(self.target.lanes, width)

    def lanes(self, place: Value, width: int | None = None) -> Lanes:
        """Return the vector operations at a place, of the target's width unless another one is asked for."""
        return Lanes(place.builder, self.target.lanes if width is None else width, self.target)


class Parameters(NamedTuple):
    """The kinds of the parameters of a function, values or named tuples of such."""

    kinds: list[type[object]]
    names: Sequence[str] = ()
    """Names of the last parameters, where they follow `*rest`."""

    @classmethod
    def of(cls, body: Callable[..., object], rest: int = 0) -> "Parameters":
        """Return the annotated parameters of a function, those with a default left out; `*rest` stands for several."""
        kinds: list[type[object]] = []
        names: list[str] = []
        for parameter in inspect.signature(body).parameters.values():
            if parameter.default is parameter.empty:
                kinds += [parameter.annotation] * (rest if parameter.kind is parameter.VAR_POSITIONAL else 1)
                names += [parameter.name] if parameter.kind is parameter.KEYWORD_ONLY else []
        return cls(kinds, names)

    @property
    def types(self) -> list[ir.Type]:
        """The types of the arguments, of which a named tuple takes some."""
        return [part.argument_type for kind in self.kinds for part in _parts(kind)]

    def call(self, body: Callable[..., Result], builder: ir.IRBuilder, arguments: Sequence[ir.Argument]) -> Result:
        """Call a function with its parameters, made of the arguments."""
        left = iter(arguments)
        values = [_received(kind, builder, left) for kind in self.kinds]
        first = len(values) - len(self.names)
        return body(*values[:first], **dict(zip(self.names, values[first:], strict=True)))


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

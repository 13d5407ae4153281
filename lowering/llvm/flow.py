"""Control flow of kernels: loops, loops that carry values, branches, choices between values, calls.

Whatever is carried, merged or chosen is a value of `values`, an `ir.Value` (a vector, a float), or any tuple, list or
named tuple of such, nested as one likes: what comes out has the form of what goes in.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar, cast, overload

from llvmlite import ir

from .values import ALIGNMENT, I64, POINTER, Argument, Number, Pointer, Truth, Value, i64, leaves, operands

State = TypeVar("State")
P = TypeVar("P", bound=Pointer[Any])


def rebuilt(state: State, values: Iterator[ir.Value]) -> State:
    """Return a state of the form of another one with other values."""
    if isinstance(state, Value):
        return cast("State", type(state)(state.builder, next(values)))
    if isinstance(state, ir.Value):
        return cast("State", next(values))
    parts = [rebuilt(part, values) for part in cast("Sequence[object]", state)]
    make = cast("Callable[[list[object]], State]", getattr(type(state), "_make", type(state)))
    return make(parts)


def _opaque(number: Number) -> Number:
    """Return a number of which LLVM knows nothing; no instruction comes of it.

    Counters of loops are: LLVM's loop strength reduction, which looks for cheaper addresses, would take half of the
    time that code takes to be made, and finds none where kernels have put their addresses as they want them.
    """
    kind = ir.FunctionType(I64, [I64])
    return Number(number.builder, number.builder.asm(kind, "", "=r,0", [number.value], False))


@contextmanager
def loop(stop: Number, step: int = 1) -> Generator[Number]:
    """Emit a loop over 0, step, ... below `stop`; yields the index."""
    flow = Blocks(stop.builder, "loop", "body", "after")
    before = flow.enter("loop")
    index = flow.merged({before: stop.constant(0)})
    flow.branch(index < stop, "body", "after")
    flow.at("body")
    yield index
    flow.come_back(index, _opaque(index + step))
    flow.go("loop")
    flow.at("after")


def fold(stop: Number, state: State, step: Callable[[Number, State], State], *, start: Number | int = 0) -> State:
    """Emit a loop over 0 (or `start`), 1, ... below `stop` that carries a state: `step` returns the next one."""
    flow = Blocks(stop.builder, "reduce", "body", "after")
    first = stop.constant(start) if isinstance(start, int) else start
    before = flow.enter("reduce")
    index, carried = flow.merged({before: (first, state)})
    flow.branch(index < stop, "body", "after")
    flow.at("body")
    following = step(index, carried)
    flow.come_back((index, carried), (_opaque(index + 1), following))
    flow.go("reduce")
    flow.at("after")
    return carried


@contextmanager
def when(condition: Truth, *, likely: bool | None = None) -> Generator[None]:
    """Emit what is done where a condition holds."""
    with condition.builder.if_then(condition.value, likely=likely):
        yield


def branch(
    condition: Truth, then: Callable[[], None], otherwise: Callable[[], None], *, likely: bool | None = None
) -> None:
    """Emit one of two effects."""
    with condition.builder.if_else(condition.value, likely) as (yes, no):
        with yes:
            then()
        with no:
            otherwise()


def either(condition: Truth, then: Callable[[], State], otherwise: Callable[[], State]) -> State:
    """Emit one of two ways to a state."""
    builder = condition.builder
    with builder.if_else(condition.value) as (yes, no):
        with yes:
            first, first_end = then(), builder.block
        with no:
            second, second_end = otherwise(), builder.block
    return merged(builder, {first_end: first, second_end: second})


def updated(condition: Truth, state: State, update: Callable[[], State], *, likely: bool | None = None) -> State:
    """Emit an update of a state where a condition holds."""
    builder = condition.builder
    before = builder.block
    with builder.if_then(condition.value, likely=likely):
        new, inside = update(), builder.block
    return merged(builder, {inside: new, before: state})


def merged(builder: ir.IRBuilder, incoming: dict[ir.Block, State]) -> State:
    """Return the state that comes from the block before, given that of each."""
    columns = zip(*(leaves(state) for state in incoming.values()), strict=True)
    phis: list[ir.Value] = []
    for values in columns:
        phi = builder.phi(values[0].type)
        for block, value in zip(incoming, values, strict=True):
            phi.add_incoming(value, block)
        phis.append(phi)
    return rebuilt(next(iter(incoming.values())), iter(phis))


class Blocks:
    """Blocks of a flow that is no loop or branch of this module, by name; they stand in the order of the names.

    Other blocks that a `switch` goes to stand where the code goes on in them.
    """

    def __init__(self, builder: ir.IRBuilder, *names: str) -> None:
        self.builder = builder
        self.blocks = {name: builder.append_basic_block(name) for name in names}
        self._placed = set(names)

    def at(self, name: str) -> None:
        """Go on in a block."""
        if name not in self._placed:
            self.builder.function.blocks.append(self.blocks[name])
            self._placed.add(name)
        self.builder.position_at_end(self.blocks[name])

    def go(self, name: str) -> ir.Block:
        """Go to a block; return the block before."""
        self.builder.branch(self.blocks[name])
        return self.builder.block

    def enter(self, name: str) -> ir.Block:
        """Go to a block, and on in it; return the block before."""
        before = self.go(name)
        self.at(name)
        return before

    def branch(self, condition: Truth, then: str, otherwise: str) -> None:
        """Go to one of two blocks."""
        self.builder.cbranch(condition.value, self.blocks[then], self.blocks[otherwise])

    def switch(self, number: Number, cases: Mapping[str, Iterable[int]], otherwise: str | None = None) -> None:
        """Go to the block of a number; to another one where it has none, or nowhere, as it always has one."""
        others = self._nowhere() if otherwise is None else self._block(otherwise)
        switch = self.builder.switch(number.value, others)
        for name, numbers in cases.items():
            for one in numbers:
                switch.add_case(ir.Constant(number.value.type, one), self._block(name))

    def _block(self, name: str) -> ir.Block:
        if name not in self.blocks:
            self.blocks[name] = ir.Block(self.builder.function, name)
        return self.blocks[name]

    def _nowhere(self) -> ir.Block:
        block = self.builder.append_basic_block("never")
        with self.builder.goto_block(block):
            self.builder.unreachable()
        return block

    def merged(self, incoming: dict[ir.Block, State]) -> State:
        """Return the state that comes from blocks before; there may be more blocks that `come_back`."""
        return merged(self.builder, incoming)

    def come_back(self, state: State, following: State) -> None:
        """Give a merged state the values that it has after the block at hand."""
        for phi, value in zip(leaves(state), leaves(following), strict=True):
            assert isinstance(phi, ir.PhiInstr)
            phi.add_incoming(value, self.builder.block)


@overload
def select(condition: Truth, then: Number, otherwise: Number | int) -> Number: ...
@overload
def select(condition: Truth, then: int, otherwise: Number | int) -> Number: ...
@overload
def select(condition: Truth, then: State, otherwise: State) -> State: ...
def select(condition: Truth, then: object, otherwise: object) -> object:
    """Return one of two states, both of which are computed; an integer of Python is a number."""
    builder = condition.builder
    then, otherwise = (_number(builder, one) if isinstance(one, int) else one for one in (then, otherwise))
    pairs = zip(leaves(then), leaves(otherwise), strict=True)
    return rebuilt(then, iter([builder.select(condition.value, *pair) for pair in pairs]))


def _number(builder: ir.IRBuilder, number: int) -> Number:
    return Number(builder, i64(number))


def choose(number: Number, cases: Iterable[tuple[str, Iterable[int], Callable[[], None]]]) -> None:
    """Emit the case of a number, of all that have a name, some numbers and an effect; nothing for other numbers."""
    known = list(cases)
    flow = Blocks(number.builder, "done")
    flow.switch(number, {name: numbers for name, numbers, _ in known}, "done")
    for name, _, effect in known:
        flow.at(name)
        effect()
        flow.go("done")
    flow.at("done")


def call(function: ir.Function, *arguments: Argument) -> None:
    """Emit a call."""
    _builder(arguments).call(function, operands(arguments))


def _builder(arguments: Iterable[Argument]) -> ir.IRBuilder:
    """Return the builder that a value among arguments knows."""
    for argument in arguments:
        if isinstance(argument, Value):
            return argument.builder
        if isinstance(argument, Sequence):
            return _builder(argument)
    raise ValueError("no argument knows a builder")


def allocated(
    place: Value, kind: type[P], count: int, *, times: Number | None = None, once: bool = False, align: int = ALIGNMENT
) -> P:
    """Return `count` elements on the stack, or so many `times`, from a multiple of `align` bytes on.

    They are the same ones each time the place is passed where they are to be allocated `once`.
    """
    builder, elements = place.builder, ir.ArrayType(kind.element, count)
    with builder.goto_entry_block() if once else nullcontext():
        memory = builder.alloca(elements, None if times is None else times.value)
    memory.align = align
    # llvmlite would give it the typed pointer of old
    memory.type = POINTER
    return kind(builder, memory)

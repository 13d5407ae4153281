"""Emitting functions on memory of 64-bit words: tables, loops, atomic counters, calls by name and by address.

A function that can fail returns a status, null where all is well; whoever gets one that is not null passes it on.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from llvmlite import ir

from ..llvm.builder import BYTE, I64, POINTER, VOID, counted_loop, i64

NULL = ir.Constant(POINTER, None)


class FunctionAt(ir.Value):
    """The function behind an address, as llvmlite wants what is called."""

    def __init__(self, address: ir.Value, function_type: ir.FunctionType) -> None:
        self.address = address
        self.function_type = function_type
        self.type = POINTER

    def get_reference(self) -> str:
        """Return how instructions mention it."""
        return self.address.get_reference()


class AddressOf(ir.Value):
    """A function as a value; llvmlite would give it the typed pointer of old."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.type = POINTER

    def get_reference(self) -> str:
        """Return how instructions mention it."""
        return self.function.get_reference()


@dataclass
class WordCode:
    """A module under construction, its functions by name."""

    module: ir.Module
    functions: dict[str, ir.Function] = field(default_factory=dict[str, ir.Function])

    def begin(self, name: str, returns: ir.Type, arguments: Sequence[ir.Type], *, exported: bool) -> ir.IRBuilder:
        """Return the builder of a new function, in its first block."""
        function = ir.Function(self.module, ir.FunctionType(returns, arguments), name)
        function.linkage = "external" if exported else "internal"
        function.attributes.add("nounwind")
        self.functions[name] = function
        return ir.IRBuilder(function.append_basic_block("entry"))

    def body(self, name: str, returns: ir.Type, arguments: Sequence[ir.Type], *, exported: bool = False) -> "Body":
        """Begin a function."""
        builder = self.begin(name, returns, arguments, exported=exported)
        return Body(self, builder, builder.function.args)

    def declare(self, name: str, returns: ir.Type, arguments: Sequence[ir.Type]) -> None:
        """Declare a function of another module, such as the C library."""
        self.functions[name] = ir.Function(self.module, ir.FunctionType(returns, arguments), name)


@dataclass(frozen=True)
class Body:
    """A function on its way: memory is seen as 64-bit words, and pointers are words."""

    code: WordCode
    builder: ir.IRBuilder
    args: tuple[ir.Argument, ...]

    def at(self, pointer: ir.Value, index: int | ir.Value) -> ir.Value:
        """Return the address of a word."""
        return self.builder.gep(pointer, [i64(index) if isinstance(index, int) else index], source_etype=I64)

    def behind(self, pointer: ir.Value, offset: ir.Value) -> ir.Value:
        """Return the address some bytes behind another one."""
        return self.builder.gep(pointer, [offset], source_etype=BYTE)

    def number(self, pointer: ir.Value, index: int | ir.Value = 0) -> ir.Value:
        """Return a word as a number."""
        return self.builder.load(self.at(pointer, index), typ=I64)

    def pointer(self, pointer: ir.Value, index: int | ir.Value = 0) -> ir.Value:
        """Return a word as an address."""
        return self.builder.load(self.at(pointer, index), typ=POINTER)

    def put(self, pointer: ir.Value, index: int | ir.Value, value: ir.Value) -> None:
        """Write a word."""
        self.builder.store(value, self.at(pointer, index))

    def current(self, pointer: ir.Value, index: int) -> ir.Value:
        """Return a word that other threads write; what they wrote before it is seen as well."""
        return self.builder.load_atomic(self.at(pointer, index), "acquire", 8, typ=I64)

    def add(self, pointer: ir.Value, index: int, number: ir.Value, ordering: str = "acq_rel") -> ir.Value:
        """Add to a word that other threads write; return what it was."""
        return self.builder.atomic_rmw("add", self.at(pointer, index), number, ordering)

    def swap(self, pointer: ir.Value, index: int, value: ir.Value, ordering: str = "acq_rel") -> ir.Value:
        """Write a word that other threads read; return what it was."""
        return self.builder.atomic_rmw("xchg", self.at(pointer, index), value, ordering)

    def replace(self, pointer: ir.Value, index: int, old: ir.Value, new: ir.Value) -> ir.Value:
        """Write a word that other threads write, if it is `old`; return whether it was."""
        outcome = self.builder.cmpxchg(self.at(pointer, index), old, new, "acq_rel", "acquire")
        return self.builder.extract_value(outcome, 1)

    def words(self, count: int) -> ir.Value:
        """Return room on the stack, the same each time the place is passed."""
        with self.builder.goto_entry_block():
            return self.builder.alloca(POINTER, count)

    def fresh_words(self, count: ir.Value) -> ir.Value:
        """Return new room on the stack, of a size that only the call knows."""
        return self.builder.alloca(POINTER, count)

    @contextmanager
    def when(self, condition: ir.Value, *, likely: bool = False) -> Generator[None]:
        """Emit what happens under a condition."""
        with self.builder.if_then(condition, likely=likely):
            yield

    @contextmanager
    def each(self, count: ir.Value) -> Generator[ir.Value]:
        """Emit a loop over the numbers below `count`."""
        with counted_loop(self.builder, count) as index:
            yield index

    def wait_until(self, is_true: Callable[[], ir.Value], patience: int | None = None) -> None:
        """Emit a wait until a condition holds, or for no more than `patience` looks."""
        builder, looks = self.builder, self.words(1)
        self.put(looks, 0, i64(0))
        look, again, done = (builder.append_basic_block(name) for name in ("look", "again", "done"))
        builder.branch(look)
        builder.position_at_end(look)
        holds = is_true()
        if patience is not None:
            holds = builder.or_(holds, builder.icmp_signed(">=", self.number(looks), i64(patience)))
        builder.cbranch(holds, done, again)
        builder.position_at_end(again)
        self.call("relax", self.number(looks))
        self.put(looks, 0, builder.add(self.number(looks), i64(1)))
        builder.branch(look)
        builder.position_at_end(done)

    def call_at(self, address: ir.Value, returns: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
        """Call the function behind an address."""
        kind = ir.FunctionType(returns, [argument.type for argument in arguments])
        return self.builder.call(FunctionAt(address, kind), arguments)

    def call(self, name: str, *arguments: ir.Value) -> ir.Value:
        """Call a function of the module."""
        return self.builder.call(self.code.functions[name], arguments)

    def address_of(self, name: str) -> ir.Value:
        """Return the address of a function of the module."""
        return AddressOf(self.code.functions[name])

    def is_null(self, value: ir.Value) -> ir.Value:
        """Return whether an address is null."""
        return self.builder.icmp_unsigned("==", value, NULL)

    def smaller(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Return the smaller of two numbers."""
        return self.builder.select(self.builder.icmp_signed("<", left, right), left, right)

    def larger(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Return the larger of two numbers."""
        return self.builder.select(self.builder.icmp_signed(">", left, right), left, right)

    def pass_on(self, status: ir.Value) -> None:
        """Return a status that is not null."""
        with self.when(self.builder.icmp_unsigned("!=", status, NULL)):
            self.builder.ret(status)

    def run_function(self, address: ir.Value, arguments: Sequence[ir.Value]) -> None:
        """Call a function that returns nothing."""
        self.call_at(address, VOID, arguments)

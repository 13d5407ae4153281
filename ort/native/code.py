"""Emitting the functions of the operator library: words in memory, calls into onnxruntime, errors in words.

A function that can fail returns a status, null where all is well; whoever gets one that is not null passes it on.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from llvmlite import ir

from redpebble.lowering.llvm.builder import I32, I64, POINTER, VOID, counted_loop, i64
from redpebble.ort.native.api import INVALID_ARGUMENT, Slot

NULL = ir.Constant(POINTER, None)
BYTE = ir.IntType(8)

MESSAGE_BYTES: Final = 512

Piece = str | ir.Value
"""Of a message: words, a number (i64), or the address of a text."""


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
class OrtCode:
    """The library under construction."""

    module: ir.Module
    functions: dict[str, ir.Function] = field(default_factory=dict[str, ir.Function])
    texts: dict[str, ir.GlobalVariable] = field(default_factory=dict[str, ir.GlobalVariable])

    def body(self, name: str, returns: ir.Type, arguments: Sequence[ir.Type], *, exported: bool = False) -> "Body":
        """Begin a function."""
        function = ir.Function(self.module, ir.FunctionType(returns, arguments), name)
        function.linkage = "external" if exported else "internal"
        function.attributes.add("nounwind")
        self.functions[name] = function
        return Body(self, ir.IRBuilder(function.append_basic_block("entry")), function.args)

    def variable(self, name: str, words: int, initial: int = 0) -> ir.GlobalVariable:
        """Return a variable of some words that other modules see; all hold `initial`."""
        kind = ir.ArrayType(I64, words)
        variable = ir.GlobalVariable(self.module, kind, name)
        variable.initializer = ir.Constant(kind, [initial] * words)
        variable.align = 8
        variable.type = POINTER
        return variable

    def external(self, name: str) -> ir.GlobalVariable:
        """Return a table that another part of the library holds."""
        variable = ir.GlobalVariable(self.module, I64, name)
        variable.linkage, variable.storage_class = "external", "hidden"
        variable.type = POINTER
        return variable

    def text(self, words: str) -> ir.Value:
        """Return the address of a text that ends with a zero."""
        known = self.texts.get(words)
        if known is not None:
            return known
        content = bytearray(words.encode() + b"\0")
        text = ir.GlobalVariable(self.module, ir.ArrayType(BYTE, len(content)), f"text{len(self.texts)}")
        text.initializer = ir.Constant(ir.ArrayType(BYTE, len(content)), content)
        text.linkage, text.global_constant = "internal", True
        text.type = POINTER
        self.texts[words] = text
        return text


@dataclass(frozen=True)
class Body:
    """A function on its way: memory is seen as 64-bit words, and pointers are words."""

    code: OrtCode
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

    def call_at(self, address: ir.Value, returns: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
        """Call the function behind an address."""
        kind = ir.FunctionType(returns, [argument.type for argument in arguments])
        return self.builder.call(FunctionAt(address, kind), arguments)

    def call(self, name: str, *arguments: ir.Value) -> ir.Value:
        """Call a function of the library."""
        return self.builder.call(self.code.functions[name], arguments)

    def ort(self, api: ir.Value, slot: Slot, *arguments: ir.Value) -> ir.Value:
        """Call onnxruntime; return the status."""
        return self.call_at(self.pointer(api, int(slot)), POINTER, arguments)

    def release(self, api: ir.Value, slot: Slot, value: ir.Value) -> None:
        """Give a thing back to onnxruntime."""
        self.call_at(self.pointer(api, int(slot)), VOID, [value])

    def is_null(self, value: ir.Value) -> ir.Value:
        """Return whether an address is null."""
        return self.builder.icmp_unsigned("==", value, NULL)

    def pass_on(self, status: ir.Value) -> None:
        """Return a status that is not null."""
        with self.when(self.builder.icmp_unsigned("!=", status, NULL)):
            self.builder.ret(status)

    def attempt(self, api: ir.Value, slot: Slot, *arguments: ir.Value) -> None:
        """Call onnxruntime; pass on what it complains about."""
        self.pass_on(self.ort(api, slot, *arguments))

    def fail_when(self, condition: ir.Value, api: ir.Value, *pieces: Piece) -> None:
        """Return a status with a message where `condition` holds."""
        with self.when(condition):
            self.builder.ret(self.status(api, *pieces))

    def status(self, api: ir.Value, *pieces: Piece) -> ir.Value:
        """Return a status with a message."""
        text, cursor = self.words(MESSAGE_BYTES // 8), self.words(2)
        self.put(cursor, 0, text)
        self.put(cursor, 1, self.behind(text, i64(MESSAGE_BYTES - 1)))
        for piece in pieces:
            if isinstance(piece, str):
                self.call("append_text", cursor, self.code.text(piece))
            elif piece.type == I64:
                self.call("append_number", cursor, piece)
            else:
                self.call("append_text", cursor, piece)
        self.builder.store(ir.Constant(BYTE, 0), self.pointer(cursor, 0))
        return self.ort(api, Slot.CreateStatus, ir.Constant(I32, INVALID_ARGUMENT), text)


def emit_messages(code: OrtCode) -> None:
    """Emit `append_text (cursor, text)` and `append_number (cursor, i64)`; a cursor is where to write and the end."""
    _emit_append_text(code)
    _emit_append_number(code)


def _emit_append_text(code: OrtCode) -> None:
    body = code.body("append_text", VOID, [POINTER, POINTER])
    builder, (cursor, text) = body.builder, body.args
    start, end = body.pointer(cursor, 0), body.pointer(cursor, 1)
    loop, more, done = (builder.append_basic_block(name) for name in ("loop", "more", "done"))
    entry = builder.block
    builder.branch(loop)
    builder.position_at_end(loop)
    count = builder.phi(I64)
    count.add_incoming(i64(0), entry)
    place = body.behind(start, count)
    letter = builder.load(body.behind(text, count), typ=BYTE)
    is_end = builder.icmp_unsigned("==", letter, ir.Constant(BYTE, 0))
    builder.cbranch(builder.or_(is_end, builder.icmp_unsigned("==", place, end)), done, more)
    builder.position_at_end(more)
    builder.store(letter, place)
    count.add_incoming(builder.add(count, i64(1)), more)
    builder.branch(loop)
    builder.position_at_end(done)
    body.put(cursor, 0, place)
    builder.ret_void()


def _emit_append_number(code: OrtCode) -> None:
    """Write the digits from the last one on into 32 bytes, then append them."""
    body = code.body("append_number", VOID, [POINTER, I64])
    builder, (cursor, value) = body.builder, body.args
    digits = body.words(4)
    last = body.behind(digits, i64(31))
    builder.store(ir.Constant(BYTE, 0), last)
    negative = builder.icmp_signed("<", value, i64(0))
    size = builder.select(negative, builder.neg(value), value)
    loop, done = builder.append_basic_block("loop"), builder.append_basic_block("done")
    entry = builder.block
    builder.branch(loop)
    builder.position_at_end(loop)
    rest, before = builder.phi(I64), builder.phi(POINTER)
    rest.add_incoming(size, entry)
    before.add_incoming(last, entry)
    place = body.behind(before, i64(-1))
    digit = builder.trunc(builder.urem(rest, i64(10)), BYTE)
    builder.store(builder.add(digit, ir.Constant(BYTE, ord("0"))), place)
    fewer = builder.udiv(rest, i64(10))
    rest.add_incoming(fewer, loop)
    before.add_incoming(place, loop)
    builder.cbranch(builder.icmp_unsigned("==", fewer, i64(0)), done, loop)
    builder.position_at_end(done)
    with body.when(negative):
        body.call("append_text", cursor, code.text("-"))
    body.call("append_text", cursor, place)
    builder.ret_void()

"""Emitting the functions of the operator library: calls into onnxruntime, errors in words, variables and texts."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from llvmlite import ir

from ...lowering.calls.words import NULL, Body, WordCode
from ...lowering.llvm.builder import BYTE, I32, I64, POINTER, VOID, i64
from .api import INVALID_ARGUMENT, Slot

MESSAGE_BYTES: Final = 512

MessagePart = str | ir.Value
"""Words, a number (i64), or the address of a text."""


@dataclass
class OrtCode(WordCode):
    """The library under construction."""

    texts: dict[str, ir.GlobalVariable] = field(default_factory=dict[str, ir.GlobalVariable])

    def body(self, name: str, returns: ir.Type, arguments: Sequence[ir.Type], *, exported: bool = False) -> "OrtBody":
        """Begin a function."""
        builder = self.begin(name, returns, arguments, exported=exported)
        return OrtBody(self, builder, builder.function.args)

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
class OrtBody(Body):
    """A function on its way that can call onnxruntime."""

    code: OrtCode

    @contextmanager
    def each_shape(self, count: ir.Value, shapes: ir.Value) -> Generator[tuple[ir.Value, ir.Value]]:
        """Emit a loop over the shapes of a table; yields the number and the address of each."""
        shape = self.words(1)
        self.put(shape, 0, shapes)
        with self.each(count) as index:
            here = self.pointer(shape)
            yield index, here
            self.put(shape, 0, self.at(here, self.builder.add(self.number(here), i64(1))))

    def ort(self, api: ir.Value, slot: Slot, *arguments: ir.Value) -> ir.Value:
        """Call onnxruntime; return the status."""
        return self.call_at(self.pointer(api, int(slot)), POINTER, arguments)

    def release(self, api: ir.Value, slot: Slot, value: ir.Value) -> None:
        """Give a thing back to onnxruntime."""
        self.call_at(self.pointer(api, int(slot)), VOID, [value])

    def attempt(self, api: ir.Value, slot: Slot, *arguments: ir.Value) -> None:
        """Call onnxruntime; pass on what it complains about."""
        self.pass_on(self.ort(api, slot, *arguments))

    def fail_when(self, condition: ir.Value, api: ir.Value, *parts: MessagePart) -> None:
        """Return a status with a message where `condition` holds."""
        with self.when(condition):
            self.builder.ret(self.status(api, *parts))

    def status(self, api: ir.Value, *parts: MessagePart) -> ir.Value:
        """Return a status with a message."""
        text, cursor = self.words(MESSAGE_BYTES // 8), self.words(2)
        self.put(cursor, 0, text)
        self.put(cursor, 1, self.behind(text, i64(MESSAGE_BYTES - 1)))
        for part in parts:
            if isinstance(part, str):
                self.call("append_text", cursor, self.code.text(part))
            elif part.type == I64:
                self.call("append_number", cursor, part)
            else:
                self.call("append_text", cursor, part)
        self.builder.store(ir.Constant(BYTE, 0), self.pointer(cursor, 0))
        return self.ort(api, Slot.CreateStatus, ir.Constant(I32, INVALID_ARGUMENT), text)


def emit_call_behind(code: OrtCode, variable: str, word: int) -> None:
    """Emit `call_behind ()`: call what the host has put into a word, once.

    An interrupt that came while Python code was called from here can be raised only when that has returned.
    """
    body = code.body("call_behind", VOID, [])
    host = code.module.get_global(variable)
    function = body.pointer(host, word)
    with body.when(body.builder.not_(body.is_null(function))):
        body.put(host, word, NULL)
        body.call_at(function, VOID, [])
    body.builder.ret_void()


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
    address = body.behind(start, count)
    letter = builder.load(body.behind(text, count), typ=BYTE)
    is_end = builder.icmp_unsigned("==", letter, ir.Constant(BYTE, 0))
    builder.cbranch(builder.or_(is_end, builder.icmp_unsigned("==", address, end)), done, more)
    builder.position_at_end(more)
    builder.store(letter, address)
    count.add_incoming(builder.add(count, i64(1)), more)
    builder.branch(loop)
    builder.position_at_end(done)
    body.put(cursor, 0, address)
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
    address = body.behind(before, i64(-1))
    digit = builder.trunc(builder.urem(rest, i64(10)), BYTE)
    builder.store(builder.add(digit, ir.Constant(BYTE, ord("0"))), address)
    fewer = builder.udiv(rest, i64(10))
    rest.add_incoming(fewer, loop)
    before.add_incoming(address, loop)
    builder.cbranch(builder.icmp_unsigned("==", fewer, i64(0)), done, loop)
    builder.position_at_end(done)
    with body.when(negative):
        body.call("append_text", cursor, code.text("-"))
    body.call("append_text", cursor, address)
    builder.ret_void()

"""Emitting the functions of the operator library: calls into onnxruntime, errors in words, variables and texts."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from llvmlite import ir
from typing_extensions import override

from ...lowering.architectures import Architecture, architecture_of, host_name
from ...lowering.calls.words import Argument, WordCode, Words, rarely
from ...lowering.llvm.flow import Blocks, loop, select
from ...lowering.llvm.values import BYTE, I32, I64, POINTER, Bytes, Number, Truth, i64
from .api import INVALID_ARGUMENT, Slot

MESSAGE_BYTES: Final = 512

MessagePart = str | Number | Words
"""Words, a number, or the address of a text."""


class Api(Words):
    """The address of onnxruntime's functions."""

    __slots__ = ()

    def ask(self, slot: Slot, *arguments: Argument) -> Words:
        """Call onnxruntime; return the status."""
        return self.to(slot).address_of(*arguments)

    def attempt(self, slot: Slot, *arguments: Argument) -> None:
        """Call onnxruntime; pass on what it complains about."""
        self.ask(slot, *arguments).pass_on()

    def release(self, slot: Slot, value: Words) -> None:
        """Give a thing back to onnxruntime."""
        self.to(slot).call(value)


ASK_LINUX: Final = "ask_linux"
CALL_ARGUMENTS: Final = 4


class _MachineCode(ir.Function):
    """A function of words that is machine code, which returns before what LLVM adds to it."""

    def __init__(self, module: ir.Module, code: bytes, name: str) -> None:
        super().__init__(module, ir.FunctionType(I64, [I64] * (1 + CALL_ARGUMENTS)), name)
        self.linkage = "internal"
        self._code = ir.Constant(ir.ArrayType(BYTE, len(code)), bytearray(code))
        ir.IRBuilder(self.append_basic_block("entry")).unreachable()

    @override
    def descr_prototype(self, buf: list[str]) -> None:
        super().descr_prototype(buf)
        buf[-1] = f"{buf[-1].rstrip()} prologue {self._code}\n"


@dataclass
class OrtCode(WordCode):
    """The library under construction."""

    architecture: Architecture = field(default_factory=lambda: architecture_of(host_name()))
    texts: dict[str, ir.GlobalVariable] = field(default_factory=dict[str, ir.GlobalVariable])

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

    def system_call(self, name: str, *arguments: ir.Value) -> Number:
        """Call Linux, for the library has no C library; arguments are words and addresses."""
        calls = self.architecture.system_calls
        assert calls is not None
        known = self.functions.get(ASK_LINUX)
        if known is None:
            known = self.functions[ASK_LINUX] = _MachineCode(self.module, calls.code, ASK_LINUX)
        given = [self.builder.ptrtoint(one, I64) if one.type == POINTER else one for one in arguments]
        rest = [i64(0)] * (CALL_ARGUMENTS - len(given))
        return Number(self.builder, self.builder.call(known, [i64(calls.numbers[name]), *given, *rest]))

    def text(self, words: str) -> Words:
        """Return the address of a text that ends with a zero."""
        known = self.texts.get(words)
        if known is None:
            content = bytearray(words.encode() + b"\0")
            known = ir.GlobalVariable(self.module, ir.ArrayType(BYTE, len(content)), f"text{len(self.texts)}")
            known.initializer = ir.Constant(ir.ArrayType(BYTE, len(content)), content)
            known.linkage, known.global_constant = "internal", True
            known.type = POINTER
            self.texts[words] = known
        return Words(self.builder, known)

    def table(self, name: str) -> Words:
        """Return the address of a variable or of another part's table."""
        return Words(self.builder, self.module.get_global(name))

    @contextmanager
    def each_shape(self, count: Number, shapes: Words) -> Generator[tuple[Number, Words]]:
        """Emit a loop over the shapes of a table; yields the number and the address of each."""
        shape = self.words()
        shape[0] = shapes
        with loop(count) as index:
            here = shape.to()
            yield index, here
            shape[0] = here.at(here[0] + 1)

    def fail_when(self, condition: Truth, api: Api, *parts: MessagePart) -> None:
        """Return a status with a message where `condition` holds."""
        with rarely(condition):
            self.leave(self.status(api, *parts))

    def status(self, api: Api, *parts: MessagePart) -> Words:
        """Return a status with a message."""
        text, cursor = self.words(MESSAGE_BYTES // 8), self.words(2)
        cursor[0] = text
        cursor[1] = text.after(MESSAGE_BYTES - 1)
        for part in parts:
            if isinstance(part, Number):
                self.call("append_number", cursor, part)
            else:
                self.call("append_text", cursor, self.text(part) if isinstance(part, str) else part)
        cursor.to().cast(Bytes)[0] = 0
        return api.ask(Slot.CreateStatus, ir.Constant(I32, INVALID_ARGUMENT), text)


def emit_call_behind(code: OrtCode, variable: str, word: int) -> None:
    """Emit `call_behind ()`: call what the host has put into a word, once.

    An interrupt that came while Python code was called from here can be raised only when that has returned.
    """

    @code.function()
    def call_behind() -> None:
        host = code.table(variable)
        function = host.to(word)
        with rarely(~function.is_null()):
            host[word] = code.null
            function.call()


def emit_messages(code: OrtCode) -> None:
    """Emit `append_text (cursor, text)` and `append_number (cursor, i64)`; a cursor is where to write and the end."""
    _emit_append_text(code)
    _emit_append_number(code)


def _emit_append_text(code: OrtCode) -> None:
    @code.function()
    def append_text(cursor: Words, text: Bytes) -> None:
        start, end = cursor.to(0), cursor.to(1)
        flow = Blocks(code.builder, "loop", "more", "done")
        count = flow.merged({flow.enter("loop"): code.constant(0)})
        address = start.after(count)
        letter = text.after(count).narrow(0)
        is_end = letter == 0
        flow.branch(is_end | address.is_same(end), "done", "more")
        flow.at("more")
        address.cast(Bytes)[0] = letter
        flow.come_back(count, count + 1)
        flow.enter("loop")
        flow.at("done")
        cursor[0] = address


def _emit_append_number(code: OrtCode) -> None:
    """Write the digits from the last one on into 32 bytes, then append them."""

    @code.function()
    def append_number(cursor: Words, value: Number) -> None:
        last = code.words(4).after(31).cast(Bytes)
        last[0] = 0
        is_negative = value < 0
        size = select(is_negative, -value, value)
        flow = Blocks(code.builder, "loop", "done")
        state = flow.merged({flow.enter("loop"): (size, last)})
        rest, before = state
        address = before.after(-1)
        digit = (rest % 10).narrow(BYTE)
        address[0] = digit + ord("0")
        fewer = rest // 10
        flow.come_back(state, (fewer, address))
        flow.branch(fewer == 0, "done", "loop")
        flow.at("done")
        with rarely(is_negative):
            code.call("append_text", cursor, code.text("-"))
        code.call("append_text", cursor, address)

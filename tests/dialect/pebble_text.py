"""Modules from text and back, with every dialect that stock `xdsl-opt` knows."""

from functools import cache
from io import StringIO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.universe import Universe


@cache
def context() -> Context:
    known = Context()
    for name, dialect in Universe.get_multiverse().all_dialects.items():
        known.register_dialect(name, dialect)
    return known


def parse(text: str) -> ModuleOp:
    module = Parser(context(), text).parse_module()
    module.verify()
    return module


def parse_attribute(text: str) -> Attribute:
    return Parser(context(), text).parse_attribute()


def text_of(module: ModuleOp, *, generic: bool = False) -> str:
    stream = StringIO()
    Printer(stream, print_generic_format=generic).print_op(module)
    return stream.getvalue()

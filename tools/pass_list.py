"""Passes and pipelines with what they do and their options, as `redpebble-opt --list-passes` shows them."""

import ast
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from importlib import import_module
from itertools import pairwise
from textwrap import wrap
from typing import Any, Final, NamedTuple

from xdsl.passes import ModulePass

from ..driver.named_pipelines import NamedPipeline
from ..universe import REDPEBBLE_UNIVERSE

COLUMNS: Final = 100
"""Columns to which a description is wrapped."""


def pass_list() -> str:
    """Return a paragraph for each pass, then one for each pipeline: its name, what it does, its options."""
    loaded = [load() for load in REDPEBBLE_UNIVERSE.all_passes.values()]
    passes = [one for one in loaded if not issubclass(one, NamedPipeline)]
    pipelines = [one for one in loaded if issubclass(one, NamedPipeline)]
    titled = (("Passes", passes), ("Pipelines", pipelines))
    return "\n".join(line for title, kinds in titled for line in (f"{title}:", *_paragraphs(kinds)))


class PassOption(NamedTuple):
    """An option: its spelling, its default (or `required`), and its description."""

    name: str
    default: str
    text: str


def told_options(kind: type[ModulePass]) -> list[PassOption]:
    """Return the options of a pass."""
    told = dict(_told_fields(kind))
    return [
        PassOption(field.name.replace("_", "-"), _default(field), told.get(field.name, "")) for field in fields(kind)
    ]


def summary(kind: type[ModulePass]) -> str:
    """Return one sentence about a pass: the first of its module's docstring, or what a pipeline runs."""
    if issubclass(kind, NamedPipeline):
        names = ", ".join(one.name for one in kind().passes())
        return f"{(inspect.getdoc(kind) or '').rstrip('.')}: {names}."
    story = inspect.getdoc(import_module(kind.__module__)) or ""
    return " ".join(story.partition("\n\n")[0].split())


def _paragraphs(kinds: Sequence[type[ModulePass]]) -> Iterator[str]:
    for kind in sorted(kinds, key=lambda one: one.name):
        yield f"  {kind.name}"
        yield from _indented(summary(kind), 6)
        for name, default, text in told_options(kind):
            yield from _indented(f"{name} ({default}): {text}".rstrip(": "), 8)


def _indented(text: str, columns: int) -> list[str]:
    indents = " " * columns, " " * (columns + 2)
    return wrap(text, COLUMNS, initial_indent=indents[0], subsequent_indent=indents[1], break_on_hyphens=False)


def _default(field: Field[Any]) -> str:
    return "required" if field.default is MISSING else f"default `{field.default}`"


def _told_fields(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class and the strings that stand below them."""
    if not fields(kind):
        return
    (tree,) = ast.parse(inspect.getsource(kind)).body
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    for statement, below in pairwise(body):
        match statement, below:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                yield name, " ".join(text.split())
            case _:
                pass

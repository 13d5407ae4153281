"""An op, or a value, takes the place of another one: its uses, its names in the model, and its name in the text."""

from collections.abc import Iterable

from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.provenance import copy_provenance, take_value_names


def take_names(op: Operation, source: Operation) -> None:
    """Let an op stand for the node and the values of another one, and be printed with its names."""
    copy_provenance(source, op)
    for value, name in zip(op.results, source.results, strict=True):
        value.name_hint = name.name_hint


def replace(op: Operation, *made: Operation) -> None:
    """Put new ops in the place of an op; the last one takes its names, and yields what it yielded."""
    take_names(made[-1], op)
    Rewriter.replace_op(op, made)


def absorb(reader: Operation, taker: Operation) -> None:
    """Erase an op whose results another one yields by now; that takes the names of the values, and keeps its node."""
    take_value_names(reader, taker)
    Rewriter.replace_op(reader, [], taker.results)


def pass_on(values: Iterable[SSAValue], results: Iterable[SSAValue]) -> None:
    """Let all that reads some values read results instead, which are printed with their names."""
    for value, result in zip(values, results, strict=True):
        result.name_hint = value.name_hint
        value.replace_all_uses_with(result)

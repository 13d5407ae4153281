"""Modules from text, passes run on them, and what the modules compute."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.cf import Cf
from xdsl.dialects.func import Func
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.passes import ModulePass

from redpebble.dialect.pebble import Pebble
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.passes.runner import run_passes

Kind = TypeVar("Kind", bound=Operation)


def context() -> Context:
    known = Context()
    for dialect in (Builtin, Cf, Func, Pebble):
        known.load_dialect(dialect)
    return known


def parse(text: str) -> ModuleOp:
    module = Parser(context(), text).parse_module()
    module.verify()
    return module


def run(module: ModuleOp, *passes: ModulePass) -> ModuleOp:
    """Run passes under the pipeline's checks on a copy of the module."""
    copy = module.clone()
    run_passes(context(), copy, passes)
    return copy


def only(module: ModuleOp, kind: type[Kind]) -> Kind:
    """The one op of a kind in a module."""
    (found,) = all_of(module, kind)
    return found


def all_of(module: ModuleOp, kind: type[Kind]) -> list[Kind]:
    return [op for op in module.walk() if isinstance(op, kind)]


def assert_same_function(before: ModuleOp, after: ModuleOp, feeds: Sequence[Mapping[str, NDArray[Any]]]) -> None:
    """Both modules give the same results; constants are rounded to single precision, the rest is double."""
    for feed in feeds:
        for expected, found in zip(interpret(before, feed), interpret(after, feed), strict=True):
            assert found.shape == expected.shape
            largest = float(np.max(np.abs(expected), initial=1.0, where=np.isfinite(expected)))
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * largest)

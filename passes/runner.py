"""Run passes one after the other, and hold each to the contract: the module verifies, definitions stand before uses."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import DiagnosticException, PassFailedException

from redpebble.dialect.pebble import Pebble
from redpebble.passes.analysis.dominance import check_def_before_use

DIALECTS = (Builtin, Func, Pebble)
"""The dialects of a module of ours."""

MANY_OPS: Final = 4000


def context() -> Context:
    """Return an xDSL context that knows them."""
    known = Context()
    for dialect in DIALECTS:
        known.load_dialect(dialect)
    return known


def run_passes(
    ctx: Context,
    module: ModuleOp,
    passes: Sequence[ModulePass],
    on_pass: Callable[[ModulePass, ModuleOp], None] | None = None,
) -> None:
    """Apply `passes` to `module` in order; `on_pass` gets each pass and the module it left, known to be sound.

    A module of very many ops is checked at the end alone: to check it takes longer than most passes do.

    Raises:
        PassFailedException: a pass refuses the module or leaves it broken; names the pass and those that ran before.
    """
    done: list[str] = []
    is_large = sum(1 for _ in islice(module.walk(), MANY_OPS)) == MANY_OPS
    for current in passes:
        try:
            current.apply(ctx, module)
            if not is_large or on_pass is not None or current is passes[-1]:
                module.verify()
                check_def_before_use(module)
        except DiagnosticException as error:
            raise PassFailedException(_failure(current.name, error, done)) from error
        done.append(current.name)
        if on_pass is not None:
            on_pass(current, module)


def _failure(name: str, error: DiagnosticException, done: Sequence[str]) -> str:
    """Return one line: the pass, what went wrong, and what ran before."""
    # xDSL wraps a verifier's message into a listing of the module; the cause holds the message alone
    cause = error.__cause__ if isinstance(error.__cause__, DiagnosticException) else error
    reason = str(cause).strip().removeprefix(f"{name}: ")
    return f"{name}: {reason} (after {', '.join(done) or 'no other pass'})"

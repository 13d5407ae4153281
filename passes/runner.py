"""Run passes one after the other, and hold each to the contract: the module verifies, definitions stand before uses."""

from collections.abc import Callable, Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import DiagnosticException, PassFailedException

from ..dialect.pebble import Pebble
from .changed_ops import VerifiedOps

DIALECTS = (Builtin, Func, Pebble)
"""The dialects of a module of ours."""


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

    The module is sound as it comes; behind each pass the ops that it changed are verified.

    Raises:
        PassFailedException: a pass refuses the module or leaves it broken; names the pass and the one that ran before.
    """
    before = "no other pass"
    verified = VerifiedOps(module)
    for current in passes:
        try:
            current.apply(ctx, module)
            verified.verify_changed()
        except DiagnosticException as error:
            raise PassFailedException(_failure(current.name, error, before)) from error
        before = current.name
        if on_pass is not None:
            on_pass(current, module)


def _failure(name: str, error: DiagnosticException, before: str) -> str:
    """Return one line: the pass, what went wrong, and which pass ran before."""
    # xDSL wraps a verifier's message into a listing of the module; the cause holds the message alone
    cause = error.__cause__ if isinstance(error.__cause__, DiagnosticException) else error
    reason = str(cause).strip().removeprefix(f"{name}: ")
    return f"{name}: {reason} (after {before})"

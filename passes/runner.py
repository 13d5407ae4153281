"""Run passes one after the other, and hold each to the contract: the module verifies, definitions stand before uses."""

from collections.abc import Callable, Sequence
from typing import Final

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import DiagnosticException, PassFailedException

from ..dialect.pebble import Pebble
from .analysis.dominance import check_def_before_use

# Ops that a pass changed, which are verified after it: to verify all of them takes longer than most passes do.


class VerifiedOps:
    """The ops of a sound module as they were verified."""

    def __init__(self, module: ModuleOp) -> None:
        self._module = module
        # what is known is held, so that none of the addresses comes to be that of another object
        self._known = {tuple(map(id, facts)): facts for facts in map(_facts, module.walk())}

    @property
    def count(self) -> int:
        """The number of ops."""
        return len(self._known)

    def verify_changed(self) -> None:
        """Verify the ops that are not as they were, and those around them; each value is defined before its uses.

        Raises:
            VerifyException: an op is not sound, or uses a value that is not defined yet.
        """
        before, known = self._known, dict[tuple[int, ...], tuple[object, ...]]()
        changed: list[Operation] = []
        around: list[Operation] = []
        for op in self._module.walk():
            facts = _facts(op)
            addresses = tuple(map(id, facts))
            known[addresses] = facts
            if op.regions:
                around.append(op)
            elif addresses not in before:
                changed.append(op)
        self._known = known
        if before.keys() == known.keys():
            return
        for op in (*changed, *around):
            op.verify(verify_nested_ops=False)
        for block in (block for op in around for region in op.regions for block in region.blocks):
            if block.is_empty:
                block.verify()
        check_def_before_use(self._module)


def _facts(op: Operation) -> tuple[object, ...]:
    """Return what the verification of one op reads: the op, its neighbours, operands, types and attributes."""
    operands, properties, attributes = op.operands, op.properties, op.attributes
    return (
        op,
        op.parent,
        op.prev_op,
        op.next_op,
        *operands,
        *[operand.type for operand in operands],
        *[result.type for result in op.results],
        *properties,
        *properties.values(),
        *attributes,
        *attributes.values(),
    )


DIALECTS = (Builtin, Func, Pebble)
"""The dialects of a module of ours."""


def context() -> Context:
    """Return an xDSL context that knows them."""
    known = Context()
    for dialect in DIALECTS:
        known.load_dialect(dialect)
    return known


MOST_OFTEN_VERIFIED: Final = 500
"""Ops of a module that is verified behind each pass; a larger one is verified behind the last pass alone."""


def run_passes(
    ctx: Context,
    module: ModuleOp,
    passes: Sequence[ModulePass],
    on_pass: Callable[[ModulePass, ModuleOp], None] | None = None,
) -> None:
    """Apply `passes` to `module` in order; `on_pass` gets each pass and the module it left, known to be sound.

    The module is sound as it comes; behind each pass the ops that it changed are verified, of a large module those that
    all passes changed: a fifth of the time of a thousand layers went there.

    Raises:
        PassFailedException: a pass refuses the module or leaves it broken; names the pass and the one that ran before.
    """
    before = "no other pass"
    verified = VerifiedOps(module)
    is_large = on_pass is None and verified.count > MOST_OFTEN_VERIFIED
    for current in passes:
        try:
            current.apply(ctx, module)
            if not is_large or current is passes[-1]:
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

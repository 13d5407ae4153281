"""Ops that a pass changed, which are verified after it: to verify all of them takes longer than most passes do."""

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from .analysis.dominance import check_def_before_use


class VerifiedOps:
    """The ops of a sound module as they were verified."""

    def __init__(self, module: ModuleOp) -> None:
        self._module = module
        # what is known is held, so that none of the addresses comes to be that of another object
        self._known = {tuple(map(id, facts)): facts for facts in map(_facts, module.walk())}

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

"""Ops that a pass changed, which are verified after it: to verify all of them takes longer than most passes do."""

from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from redpebble.passes.analysis.dominance import check_def_before_use


class _Held(NamedTuple):
    """Facts that the verification of one op reads: the op, its neighbours, operands, types and attributes."""

    parts: tuple[object, ...]
    """Held, so that none of the addresses by which they are told apart comes to be that of another object."""

    @property
    def part_ids(self) -> tuple[int, ...]:
        return tuple(map(id, self.parts))


class VerifiedOps:
    """The ops of a sound module as they were verified."""

    def __init__(self, module: ModuleOp) -> None:
        self._module = module
        self._known = {held.part_ids: held for held in map(_held, module.walk())}

    def verify_changed(self) -> None:
        """Verify the ops that are not as they were, and those around them; each value is defined before its uses.

        Raises:
            VerifyException: an op is not sound, or uses a value that is not defined yet.
        """
        before, known = self._known, dict[tuple[int, ...], _Held]()
        changed: list[Operation] = []
        around: list[Operation] = []
        for op in self._module.walk():
            held = _held(op)
            known[held.part_ids] = held
            if op.regions:
                around.append(op)
            elif held.part_ids not in before:
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


def _held(op: Operation) -> _Held:
    operands, results = op.operands, op.results
    attributes = op.attributes
    return _Held(
        (
            op,
            op.parent,
            op.prev_op,
            op.next_op,
            *operands,
            *(operand.type for operand in operands),
            *(result.type for result in results),
            *op.properties,
            *op.properties.values(),
            *attributes,
            *attributes.values(),
        )
    )

"""Every value is defined before it is used: xDSL's verifier does not check it, so passes that move ops do."""

from collections.abc import Generator
from contextlib import contextmanager
from graphlib import CycleError

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.irdl.dominance import DominanceInfo
from xdsl.utils.exceptions import PassFailedException, VerifyException


@contextmanager
def moving_ops(name: str, module: ModuleOp) -> Generator[list[FuncOp]]:
    """Give the functions of `module` to a pass that moves their ops; check afterwards that it left them in order.

    Raises:
        PassFailedException: they are not, or the pass found that they cannot be.
    """
    try:
        yield [found for found in module.walk() if isinstance(found, FuncOp) and found.body.blocks]
        check_def_before_use(module)
    except (CycleError, VerifyException) as error:
        raise PassFailedException(f"{name}: {error}") from error


def check_def_before_use(module: Operation) -> None:
    """Check that inside `module` every operand is defined on every path to its use.

    Raises:
        VerifyException: an op uses a value that is not defined yet, or that is not visible where it is used.
    """
    for region in module.regions:
        _check_region(region, set())


def _check_region(region: Region, visible: set[SSAValue]) -> None:
    """Check the ops of a region, in which the values in `visible` are; they are the same afterwards."""
    dominance = DominanceInfo(region)
    defined: dict[Block, list[SSAValue]] = {
        block: [*block.args, *(result for op in block.ops for result in op.results)] for block in region.blocks
    }
    for block in region.blocks:
        before = [
            value for other in region.blocks if dominance.strictly_dominates(other, block) for value in defined[other]
        ]
        visible.update(before, block.args)
        for op in block.ops:
            _check_operands(op, visible)
            for nested in op.regions:
                _check_region(nested, visible)
            visible.update(op.results)
        visible.difference_update(before, defined[block])


def _check_operands(op: Operation, visible: set[SSAValue]) -> None:
    for index, operand in enumerate(op.operands):
        if operand not in visible:
            owner = operand.owner.name if isinstance(operand.owner, Operation) else "a block argument"
            raise VerifyException(f"operand {index} of {op.name} is used before {owner} defines it")

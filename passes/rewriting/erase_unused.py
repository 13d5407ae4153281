"""Ops whose results nothing uses go, in one walk from the last op to the first."""

from xdsl.ir import Region
from xdsl.transforms.dead_code_elimination import is_trivially_dead


def erase_unused(region: Region) -> None:
    """Erase the ops of a region that have no effect, and whose results nothing uses but ops that go as well."""
    for block in reversed(region.blocks):
        for op in reversed([*block.ops]):
            if is_trivially_dead(op):
                block.erase_op(op)
                continue
            for inner in op.regions:
                erase_unused(inner)

"""Ops whose results nothing uses go, in one walk from the last op to the first."""

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Region
from xdsl.transforms.dead_code_elimination import is_trivially_dead


def drop_weights(module: ModuleOp) -> None:
    """Drop the weights of a module of no use: ops refer to each other in circles, in which weights would stay long."""
    for op in module.walk():
        op.attributes.clear()
        op.properties.clear()


def erase_unused(region: Region) -> None:
    """Erase the ops of a region that have no effect, and whose results nothing uses but ops that go as well."""
    for block in reversed(region.blocks):
        for op in reversed([*block.ops]):
            if is_trivially_dead(op):
                block.erase_op(op)
                op.properties.clear()  # weights, which would stay as long as the op does
                continue
            for inner in op.regions:
                erase_unused(inner)

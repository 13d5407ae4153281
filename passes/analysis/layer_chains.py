"""Linear layers that read each other's outputs as they are: the chains that a partition of neurons is searched for."""

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, OpResult, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import ReshapeOp
from ...dialect.ops.tile import TileOp
from ...dialect.provenance import node_name
from ...dialect.tensors import shape_of
from ...sparse.csr import CscMatrix
from ...theory.partition.partition import LayerPattern, dense_pattern
from .weights import Weight, weight_of


def layer_chains(module: ModuleOp) -> tuple[tuple[LinearOp, ...], ...]:
    """Return all linear layers in their order, cut where one does not read just what the one before it computes."""
    chains: list[list[LinearOp]] = []
    for op in module.walk():
        if not isinstance(op, LinearOp):
            continue
        if chains and source_of(op.x) is chains[-1][-1].result:
            chains[-1].append(op)
        else:
            chains.append([op])
    return tuple(tuple(chain) for chain in chains)


def source_of(value: SSAValue) -> SSAValue:
    """Return the value that is computed or given, of which `value` is another name or shape."""
    while (behind := _behind(value)) is not None:
        value = behind
    return value


def _behind(value: SSAValue) -> SSAValue | None:
    """Return what a value is another name of, going out of a tile, into one, or through a reshape that keeps rows."""
    owner = value.owner
    if isinstance(value, BlockArgument):
        tile = owner.parent_op()
        return tile.inputs[value.index] if isinstance(tile, TileOp) else None
    if isinstance(owner, TileOp) and isinstance(value, OpResult):
        return owner.yielded[value.index]
    if isinstance(owner, ReshapeOp) and shape_of(owner.x)[-1:] == shape_of(value)[-1:]:
        return owner.x
    return None


def pattern_of(layer: LinearOp) -> LayerPattern:
    """Return the connections of a layer; the zeros of a dense weight are some, because 0 * NaN is NaN.

    Raises:
        VerifyException: the weight is no constant.
    """
    weight = weight_of(layer.weight)
    if weight is None:
        raise VerifyException(f"the weight of layer {node_name(layer) or layer.name!r} is no constant")
    return pattern_of_weight(weight)


def pattern_of_weight(weight: Weight) -> LayerPattern:
    """Return the connections of a weight."""
    if isinstance(weight, CscMatrix):
        return weight.pattern
    return dense_pattern(*weight.shape)


def patterns_of(layers: Sequence[LinearOp]) -> tuple[LayerPattern, ...]:
    """Return the connections of layers.

    Raises:
        VerifyException: a weight is no constant.
    """
    return tuple(pattern_of(layer) for layer in layers)

"""Ends of sparse networks that stay with the runtime: what it computes in less time, where leaving it costs no more."""

from collections.abc import Callable, Collection, MutableMapping, Sequence
from typing import Final

from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.activations import OF_FEW_INSTRUCTIONS, ActivationAttr
from ...dialect.ops.elementwise import ActivateOp, BinaryOp
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, Resample2dOp
from ...dialect.ops.layers import LinearOp
from ...dialect.provenance import VALUES, take_value_names
from ...dialect.symbolic_sizes import SymbolicShape
from ...kernels.activation_prices import activation_us, runtime_activation_us
from ...kernels.dense_work import OVERHEADS
from ...kernels.machine import DEFAULT_PRICES, Machine
from ..analysis.rowwise import dynamic_operands
from ..images.image_layers import ImageShares, dense_us, network_us, reads_or_yields_codes

CERTAIN: Final = 1.15
"""Time of an activation over onnxruntime's from which on it is longer for certain."""

Activated = LinearOp | Conv2dOp | Depthwise2dOp
"""Layers that an activation can be taken from."""


def node_us(machine: Machine) -> float:
    """Return the microseconds of one more node."""
    return OVERHEADS.get(machine.prices, OVERHEADS[DEFAULT_PRICES]).node


def dear_ends(ops: Sequence[Operation], is_dear: Callable[[Operation, Sequence[Operation]], bool]) -> set[Operation]:
    """Return what ops lose at their ends, one after the other, as long as one `is_dear` beside those that are left."""
    left = list(ops)
    while (end := next((op for op in left if _is_end(op, left) and is_dear(op, left)), None)) is not None:
        left.remove(end)
    return {*ops} - {*left}


def is_dear_image(op: Operation, ops: Sequence[Operation], shares: ImageShares) -> bool:
    """Return whether a network of images takes longer with an op at its end than without it, and the runtime's node."""
    if not isinstance(op, ActivateOp | BinaryOp | Pool2dOp | Resample2dOp) or reads_or_yields_codes(op):
        return False
    without = network_us([one for one in ops if one is not op], shares)
    return without + dense_us([op], shares) + node_us(shares.machine) < network_us(ops, shares)


def is_dear_activation(activation: ActivationAttr | None, values: int, machine: Machine) -> bool:
    """Return whether an activation of so many values at an end takes longer here than as a node of the runtime."""
    if activation is None or activation.kind in {*OF_FEW_INSTRUCTIONS, "quantize"}:
        return False
    kind = activation.kind
    ours, theirs = activation_us(kind, machine), runtime_activation_us(kind, machine)
    return ours > CERTAIN * theirs and values * (ours - theirs) > node_us(machine)


def split_ends(
    ops: Sequence[Operation], is_dear: Callable[[Activated], bool], shapes: MutableMapping[SSAValue, SymbolicShape]
) -> list[ActivateOp]:
    """Take from layers at the end of `ops` the activations that are dear, in place: they stand nowhere yet.

    The shapes of their results are added to `shapes`.
    """
    made: list[ActivateOp] = []
    for op in ops:
        if not isinstance(op, Activated) or op.activation is None or not _ends(op, ops) or not is_dear(op):
            continue
        activate = ActivateOp(op.result, op.activation)
        op.result.replace_uses_with_if(activate.result, lambda use, made=activate: use.operation is not made)
        op.activation = None
        take_value_names(op, activate)
        # what it yields now has no name in the model
        op.attributes.pop(VALUES, None)
        op.result.name_hint = None
        shapes[activate.result] = shapes[op.result]
        made.append(activate)
    return made


def _is_end(op: Operation, ops: Collection[Operation]) -> bool:
    return len(ops) > 1 and (_ends(op, ops) or all(value.owner not in ops for value in dynamic_operands(op)))


def _ends(op: Operation, ops: Collection[Operation]) -> bool:
    """Return whether nothing among `ops` reads what an op yields."""
    return all(use.operation not in ops for result in op.results for use in result.uses)

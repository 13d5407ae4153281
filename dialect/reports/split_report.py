"""Layers that were split into groups, read from the IR: the lines of a report."""

from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import ModuleOp

from ..ops.grouped_layers import GroupedLayersOp
from ..tensors import shape_of


@dataclass(frozen=True)
class SplitReport:
    """Layers in groups: the name of the first, how many there are, their weights in all groups, how and why."""

    name: str
    layers: int
    weights: int
    """Zeros included, as a dense engine multiplies by them."""
    reason: str


def split_reports(module: ModuleOp) -> tuple[SplitReport, ...]:
    """Return a line for each op of layers in groups of `module`, in the order of execution."""
    found = [op for op in module.walk() if isinstance(op, GroupedLayersOp)]
    return tuple(_report(op, index) for index, op in enumerate(found))


def _report(op: GroupedLayersOp, index: int) -> SplitReport:
    weights = sum(prod(shape_of(layer.weight)) for layer in op.layers)
    return SplitReport(op.layers[0].name or f"split_{index}", len(op.layers), weights, op.reason.data)

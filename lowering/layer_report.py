"""What was chosen for each linear layer, read from the IR: the lines of every report."""

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, StringAttr

from redpebble.dialect.constants import SparseConstantOp, constant_array
from redpebble.dialect.layers import LinearOp
from redpebble.dialect.provenance import ORDER, node_name
from redpebble.dialect.tensors import shape_of
from redpebble.dialect.times import TimesAttr


@dataclass(frozen=True)
class LayerReport:
    """One linear layer: its neurons, its connections, how its weight is stored, which kernel runs it and why."""

    name: str
    inputs: int
    outputs: int
    connections: int
    density: float
    format: str
    kernel: str
    reason: str
    predicted_us: Mapping[str, float]
    """Of a tile, by its width in batch columns as a decimal number, with the kernel for that width."""
    measured_us: Mapping[str, float]
    """The same by the clock, where the kernels were tuned."""
    fewest_reads: int | None
    """Of any order of the connections, in values for a batch of one; likewise the others."""
    most_reads: int | None
    fewest_writes: int | None
    most_writes: int | None
    structure: str
    """What was found in its connections, a line for each fact; empty where that is nothing."""


def layer_reports(module: ModuleOp) -> tuple[LayerReport, ...]:
    """Return a line for each linear layer of `module`, in the order of execution."""
    layers = [op for op in module.walk() if isinstance(op, LinearOp)]
    return tuple(_report(op, index) for index, op in enumerate(layers))


def _report(op: LinearOp, index: int) -> LayerReport:
    inputs, outputs = shape_of(op.weight)
    if isinstance(op.weight.owner, SparseConstantOp):
        connections, format_name = len(op.weight.owner.values), "csc"
    else:
        array = constant_array(op.weight)
        connections, format_name = (inputs * outputs if array is None else int((array != 0).sum())), "dense"
    return LayerReport(
        name=node_name(op) or f"linear_{index}",
        inputs=inputs,
        outputs=outputs,
        connections=connections,
        density=connections / (inputs * outputs) if inputs * outputs else 0.0,
        format=format_name,
        kernel=", ".join(_kernel_words(op)),
        reason="; ".join(_reasons(op)),
        predicted_us=_times(op.kernel.predicted) if op.kernel is not None else {},
        measured_us=_times(op.kernel.measured) if op.kernel is not None else {},
        fewest_reads=op.io_bounds.fewest_reads.data if op.io_bounds is not None else None,
        most_reads=op.io_bounds.most_reads.data if op.io_bounds is not None else None,
        fewest_writes=op.io_bounds.fewest_writes.data if op.io_bounds is not None else None,
        most_writes=op.io_bounds.most_writes.data if op.io_bounds is not None else None,
        structure="\n".join(_structure(op)),
    )


def _reasons(op: LinearOp) -> list[str]:
    """Return why the kernels were chosen, and what the order of the neurons does for the layer."""
    reasons = [] if op.kernel is None else [op.kernel.reason.data]
    order = op.attributes.get(ORDER)
    return [*reasons, f"order {order.data}"] if isinstance(order, StringAttr) else reasons


def _structure(op: LinearOp) -> list[str]:
    """Return a sentence for the panels of a weight, and one for each fact about it."""
    weight = op.weight.owner
    if not isinstance(weight, SparseConstantOp):
        return []
    panels = [weight.panels.sentence] if weight.panels is not None else []
    return panels + [fact.sentence for fact in weight.facts or ()]


def _times(times: TimesAttr) -> dict[str, float]:
    return {str(width): time for width, time in times.by_width.items()}


def _kernel_words(op: LinearOp) -> list[str]:
    """Return the families chosen, each but an only one with the tile width from which it is used."""
    if op.kernel is None:
        return []
    choices = op.kernel.choices
    return [family if len(choices) == 1 else f"{family} from {width}" for width, family in choices.items()]

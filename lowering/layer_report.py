"""What was chosen for each linear layer, read from the IR: the lines of every report."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from xdsl.dialects.builtin import ModuleOp, StringAttr

from redpebble.dialect.constants import SparseConstantOp, constant_array
from redpebble.dialect.depth_first import LayerGroupAttr
from redpebble.dialect.layer_chain import chain_of
from redpebble.dialect.layers import LinearOp
from redpebble.dialect.provenance import ORDER, node_name
from redpebble.dialect.tensors import shape_of
from redpebble.dialect.tile import TileOp
from redpebble.dialect.times import TimesAttr

CONNECTION_BYTES: Final = 6
"""That are read for a connection of a sparse layer, about: a weight, and where its input is."""


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
    predicted_bytes: Mapping[str, float]
    """That a tile reads and writes, by its width: the weights once, and the values; of layers that run depth first
    together, only values that come from beyond the second-level cache, or go there."""


@dataclass(frozen=True)
class _Together:
    """What is known of a layer that runs depth first with others: its group, and its share of their connections."""

    group: LayerGroupAttr
    width: int
    """From which on they do."""
    share: float

    def part(self, numbers: TimesAttr, unit: float = 1.0) -> dict[str, float]:
        """Return the layer's part of numbers of the group."""
        return {width: unit * self.share * number for width, number in _times(numbers).items()}

    @property
    def reason(self) -> str:
        """Why the layers run together."""
        group = self.group
        return f"layers {group.first.data} to {group.last.data} depth first: {group.reason.data}"


def layer_reports(module: ModuleOp) -> tuple[LayerReport, ...]:
    """Return a line for each linear layer of `module`, in the order of execution.

    Times of layers that run depth first together are parts of those of their group, by connections.
    """
    layers = [op for op in module.walk() if isinstance(op, LinearOp)]
    groups: dict[LinearOp, _Together] = {}
    for tile in module.walk():
        if isinstance(tile, TileOp):
            groups |= _groups(tile)
    return tuple(_report(op, index, groups.get(op)) for index, op in enumerate(layers))


def _groups(tile: TileOp) -> dict[LinearOp, _Together]:
    layers, found = chain_of(tile.body.block), dict[LinearOp, _Together]()
    if tile.depth_first is None:
        return found
    for group in tile.depth_first.groups:
        members = [layers[number] for number in group.layers]
        counts = [_connections(layer) for layer in members]
        for layer, count in zip(members, counts, strict=True):
            found[layer] = _Together(group, tile.depth_first.width.data, count / max(1, sum(counts)))
    return found


def _connections(op: LinearOp) -> int:
    if isinstance(op.weight.owner, SparseConstantOp):
        return len(op.weight.owner.values)
    array, (inputs, outputs) = constant_array(op.weight), shape_of(op.weight)
    return inputs * outputs if array is None else int((array != 0).sum())


def _report(op: LinearOp, index: int, together: _Together | None) -> LayerReport:
    inputs, outputs = shape_of(op.weight)
    connections, sparse = _connections(op), isinstance(op.weight.owner, SparseConstantOp)
    format_name = "csc" if sparse else "dense"
    predicted = _times(op.kernel.predicted) if op.kernel is not None else {}
    measured = _times(op.kernel.measured) if op.kernel is not None else {}
    weights = CONNECTION_BYTES * connections if sparse else 4 * inputs * outputs
    moved = {width: weights + 4.0 * int(width) * (inputs + outputs) for width in predicted}
    words = _kernel_words(op)
    if together is not None:
        group = together.group
        words = [*(words if len(words) != 1 else [f"{words[0]} from 1"]), f"depth_first from {together.width}"]
        predicted |= together.part(group.predicted)
        measured |= together.part(group.measured)
        moved |= {width: weights + values for width, values in together.part(group.kilobytes, 1e3).items()}
    return LayerReport(
        name=node_name(op) or f"linear_{index}",
        inputs=inputs,
        outputs=outputs,
        connections=connections,
        density=connections / (inputs * outputs) if inputs * outputs else 0.0,
        format=format_name,
        kernel=", ".join(words),
        reason="; ".join([*_reasons(op), *([] if together is None else [together.reason])]),
        predicted_us=predicted,
        measured_us=measured,
        fewest_reads=op.io_bounds.fewest_reads.data if op.io_bounds is not None else None,
        most_reads=op.io_bounds.most_reads.data if op.io_bounds is not None else None,
        fewest_writes=op.io_bounds.fewest_writes.data if op.io_bounds is not None else None,
        most_writes=op.io_bounds.most_writes.data if op.io_bounds is not None else None,
        structure="\n".join(_structure(op)),
        predicted_bytes=moved,
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

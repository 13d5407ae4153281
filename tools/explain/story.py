"""The story of a model: its levels of lowering, the times of its layers for a batch, and where its work lies."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

import numpy as np

from ...dialect.ops.images import Conv2dOp
from ...dialect.ops.layers import LinearOp
from ...dialect.reports.layer_report import LayerReport
from ...driver.placement import NodesLeft, Placement
from ...frontend.import_model import Imported
from ...frontend.multiply_adds import value_shapes
from ...kernels.formats import dense_outputs
from ...kernels.machine import Machine
from ...kernels.prediction import predicted_us
from ...kernels.tile_widths import measured_rows, time_of_rows
from ...kernels.work import Layer
from ...passes.analysis.data_movement import FreeSizes, module_movement
from ...sparse.csr import CONNECTION_BYTES
from .attention_table import AttentionLine
from .explanation import Explanation
from .lowering_levels import BATCHES, Level, Lowering

MANY_LAYERS: Final = 16
"""The number of layers from which on layers whose names differ only in numbers share a line."""


@dataclass(frozen=True)
class Origin:
    """Version of redpebble, command, CPU and day by which a page was made."""

    version: str
    command: str
    cpu: str
    day: str


@dataclass(frozen=True)
class LayerTime:
    """Time of layers of one shape for a batch, all together; `measured_us` is None where no clock was asked."""

    name: str
    full_name: str
    count: int
    inputs: int
    outputs: int
    connections: int
    rows: int
    predicted_us: float
    measured_us: float | None
    stays: bool = False
    """Whether sessions leave the layers to onnxruntime: the time is that of our code all the same."""

    @property
    def microseconds(self) -> float:
        """The measured time, or else the predicted one."""
        return self.predicted_us if self.measured_us is None else self.measured_us

    @property
    def operations(self) -> int:
        """Floating-point operations: two for each connection and row."""
        return 2 * self.connections * self.rows

    @property
    def moved_bytes(self) -> int:
        """Bytes if weights, inputs and outputs are moved once."""
        return CONNECTION_BYTES * self.connections + 4 * self.count * self.rows * (self.inputs + self.outputs)


@dataclass(frozen=True)
class Story:
    """The content of a page on the model `name`, in the order of the page."""

    name: str
    origin: Origin
    machine: Machine
    lowering: Lowering
    layer_times: Mapping[int, Sequence[LayerTime]]
    """Times of the linear layers by batch, in the order of execution."""
    explanation: Explanation
    gain: str = ""
    """Gain of the model in a session, the sentence that the terminal shows."""
    attentions: Sequence[AttentionLine] = ()
    """Attentions of sparse networks by form and length."""
    nodes: NodesLeft | None = None
    """The nodes of the model and those of them that onnxruntime keeps, for its picture."""

    @property
    def levels(self) -> Sequence[Level]:
        """The levels of lowering, from the model as it is to what runs."""
        return self.lowering.levels

    @property
    def is_priced(self) -> bool:
        """Whether levels have the time of all layers: quantized layers have no time at the level of the baseline."""
        ops = (kind.kind for level in self.levels for kinds in level.kinds.values() for kind in kinds)
        return not any(kind.startswith("quantized") for kind in ops)

    @property
    def taken(self) -> Sequence[LayerReport]:
        """The linear layers that do not stay with onnxruntime."""
        return [layer for layer in self.explanation.report if layer.name not in self.lowering.left]

    def taken_times(self, batch: int) -> Sequence[LayerTime]:
        """Return the times of these layers."""
        return [one for one in self.layer_times[batch] if not one.stays]

    @property
    def placement(self) -> Placement | None:
        """Place of the work of a model that is not covered as a whole."""
        return self.lowering.placement


def layer_times(
    layers: Sequence[LayerReport], rows: Sequence[int], left: Collection[str] = frozenset()
) -> list[LayerTime]:
    """Return the times of layers that run on so many rows, those of many layers by what they have in common.

    Layers whose names are in `left` stay with onnxruntime.
    """
    names = short_names([layer.name for layer in layers])
    groups: dict[tuple[str, int, int, int, bool], list[LayerTime]] = {}
    for layer, name, count in zip(layers, names, rows, strict=True):
        key = re.sub(r"\d+", "*", name) if len(layers) > MANY_LAYERS else layer.name
        stays = layer.name in left
        place = (key, layer.inputs, layer.outputs, count, stays)
        groups.setdefault(place, []).append(replace(_time_of(layer, name, count), stays=stays))
    return [_together(key, members) for (key, *_), members in groups.items()]


def _time_of(layer: LayerReport, name: str, rows: int) -> LayerTime:
    predicted = {int(width): time for width, time in layer.predicted_us.items()}
    measured = {int(width): time for width, time in layer.measured_us.items()}
    return LayerTime(
        name,
        layer.name,
        1,
        layer.inputs,
        layer.outputs,
        layer.connections,
        rows,
        time_of_rows(predicted, rows) if predicted else 0.0,
        measured_rows(predicted, measured, rows) if measured else None,
    )


def _together(name: str, members: Sequence[LayerTime]) -> LayerTime:
    first, times = members[0], [one.measured_us for one in members if one.measured_us is not None]
    return LayerTime(
        first.name if len(members) == 1 else name,
        first.full_name if len(members) == 1 else f"{first.full_name} and {len(members) - 1} more",
        len(members),
        first.inputs,
        first.outputs,
        sum(one.connections for one in members),
        first.rows,
        sum(one.predicted_us for one in members),
        sum(times) if len(times) == len(members) else None,
        first.stays,
    )


def short_names(names: Sequence[str]) -> list[str]:
    """Return names without the parts, between slashes or points, with which all of them begin and end."""
    parts = [re.split(r"(?<=[/.])", name) for name in names]
    if len(parts) < 2:
        return list(names)
    first = _alike([one[:-1] for one in parts])
    last = _alike([one[:first:-1] for one in parts])
    for begin in (first, 0):
        short = ["".join(one[begin : len(one) - last]).strip("/.") for one in parts]
        if all(re.search("[^0-9]", one) for one in short):  # numbers alone name nothing
            return short
    return list(names)


def _alike(sequences: Sequence[Sequence[str]]) -> int:
    """Return with how many entries all sequences begin alike."""
    return sum(1 for _ in takewhile(lambda entries: len(set(entries)) == 1, zip(*sequences, strict=False)))


def dense_gflops(machine: Machine) -> float:
    """Return the speed of our dense kernel where all is in the cache, 1e9 operations a second: the roof of the rest."""
    width, side = 64, 256
    layer = Layer(side, np.full(side, side, dtype=np.int64), stored="dense")
    return 2e-3 * side * side * width / predicted_us(dense_outputs.FAMILY.name, layer, width, machine)


# One total: what all layers of a model take together for a batch.


def total_line(imported: Imported, layers: Sequence[LayerReport]) -> str:
    """Return the times of all layers together, by batch; empty for one layer, or where rows or times are unknown."""
    if len(layers) < 2 or not all(layer.predicted_us for layer in layers):
        return ""
    texts: list[str] = []
    for batch in BATCHES:
        rows = _rows(imported, batch)
        if any(layer.name not in rows for layer in layers):
            return ""
        texts.append(f"{_text(layer_times(layers, [rows[layer.name] for layer in layers]))} at batch {batch}")
    return f"all {len(layers)} layers, one after the other on one thread: {', '.join(texts)}"


def _rows(imported: Imported, batch: int) -> dict[str, int]:
    """Return the rows of layers by name: of images as many as there are pixels, of texts as there are tokens."""
    moved = module_movement(imported.module, FreeSizes(batch, by_value=value_shapes(imported.model, batch)))
    return {one.name: one.rows for one in moved if isinstance(one.op, LinearOp | Conv2dOp)}


def _text(times: Sequence[LayerTime]) -> str:
    predicted = sum(one.predicted_us for one in times)
    measured = [one.measured_us for one in times if one.measured_us is not None]
    known = f", {sum(measured):,.0f} measured" if len(measured) == len(times) else ""
    return f"{predicted:,.0f} us predicted{known}"

"""Lines of every report: choices for each linear layer, and for all together.

They are kept beside native code, so that nothing here may load the compiler; `module_report` reads them from the IR.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from typing_extensions import override


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
    families: Mapping[str, str]
    """The kernel by the width of a tile in batch columns as a decimal number, ascending; likewise the numbers below.

    Where tiles are made, these are the widths of tiles in which the layer runs."""
    predicted_us: Mapping[str, float]
    """Times of a tile; layers that run depth first together have parts of their group's time, by connections."""
    measured_us: Mapping[str, float]
    """The same by the clock, where that was asked."""
    predicted_bytes: Mapping[str, float]
    """Bytes that a tile reads and writes: the weights once, and the values; layers that run depth first together count
    only values that come from beyond the second-level cache, or go there."""
    at_most: tuple[str, ...]
    """Widths of tiles from which rows of zeros are dropped before the layer: the numbers are of a tile whose rows all
    live, and at most as many tiles come as the rows of the batch would fill."""
    fewest_reads: int | None
    """Reads of any order of the connections, in values for a batch of one; likewise the others."""
    most_reads: int | None
    fewest_writes: int | None
    most_writes: int | None
    structure: str
    """Structure found in its connections, a line for each fact; empty where that is nothing."""


@dataclass(frozen=True)
class Report(Sequence[LayerReport]):
    """A line for each linear layer, in the order of execution, and what was tried for all of them together."""

    layers: tuple[LayerReport, ...]
    neuron_order: str = ""
    """The orders of hidden neurons that were tried, and what they are predicted to gain; empty where none was."""
    schedule_search: str = ""
    """Search of a schedule: its first and its best costs, and its proposals; empty where none was."""

    @overload
    def __getitem__(self, index: int) -> LayerReport: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LayerReport, ...]: ...
    @override
    def __getitem__(self, index: int | slice) -> LayerReport | tuple[LayerReport, ...]:
        return self.layers[index]

    @override
    def __len__(self) -> int:
        return len(self.layers)

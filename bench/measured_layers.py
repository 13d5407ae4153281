"""Layers on which all kernels are measured, drawn again from their numbers, and what was measured: files of rows.

A file `bench/data/MACHINE-LANES.csv` begins with a line that says `predicted` where nobody measured the rows, and names
the machine's caches and, where it is known, the time of a byte from beyond them; then a row is a layer, and a column
such as `count_blocks@64` holds the microseconds of a kernel on a tile of so many columns.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..kernels.work import Layer
from ..tuning.probe_layers import mask_of

DATA: Final = Path(__file__).parent / "data"

PREDICTED: Final = "predicted"


@dataclass(frozen=True)
class MeasuredLayer:
    """The microseconds of kernels such as `count_blocks@64` on a layer.

    other_bytes are read between two uses of it; panel_reads counts the inputs of panels once, 0 where there is none.
    """

    number: int
    other_bytes: int
    panel_reads: float
    microseconds: dict[str, float]

    def layer(self) -> Layer:
        """Return the layer as its cost sees it, drawn again."""
        inputs, counts = _counts(self.number)
        return Layer(inputs, counts, self.other_bytes, "panels" if self.panel_reads else "sparse", self.panel_reads)


@cache
def _counts(number: int) -> tuple[int, NDArray[np.int64]]:
    mask = mask_of(number)
    return len(mask), np.count_nonzero(mask, axis=0).astype(np.int64)


@dataclass(frozen=True)
class MeasuredMachine:
    """Measured rows of one machine with vectors of `lanes` floats.

    streams are the nanoseconds of a byte from the last-level cache and from memory, None where only the rows tell.
    """

    name: str
    lanes: int
    l1_bytes: int
    l2_bytes: int
    layers: tuple[MeasuredLayer, ...]
    streams: tuple[float, float] | None = None
    predicted: bool = False
    """Whether nobody measured the rows: `bench/predicted` computed them. The file says so in its first line."""

    @property
    def file(self) -> Path:
        return DATA / f"{self.name}-{self.lanes}.csv"

    def text(self) -> str:
        """Return the content of the file."""
        kernels = sorted({kernel for layer in self.layers for kernel in layer.microseconds}, key=_order_key)
        stream = StringIO()
        far = "" if self.streams is None else " l3_ns={:.4g} dram_ns={:.4g}".format(*self.streams)
        head = f"# {PREDICTED}" if self.predicted else "#"
        stream.write(f"{head} l1_bytes={self.l1_bytes} l2_bytes={self.l2_bytes}{far}\n")
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["number", "other_bytes", "panel_reads", *kernels])
        for one in sorted(self.layers, key=lambda layer: layer.number):
            times = [f"{one.microseconds[kernel]:.4g}" if kernel in one.microseconds else "" for kernel in kernels]
            writer.writerow([one.number, one.other_bytes, f"{one.panel_reads:.6g}", *times])
        return stream.getvalue()


def _order_key(kernel: str) -> tuple[int, str]:
    family, _, width = kernel.partition("@")
    return int(width), family


def read_rows(file: Path) -> MeasuredMachine:
    """Return the content of a file of rows."""
    name, _, lanes = file.stem.rpartition("-")
    with file.open(newline="", encoding="utf-8") as stream:
        head = stream.readline().split()[1:]
        sizes = dict(word.split("=") for word in head if "=" in word)
        layers = tuple(_layer(row) for row in csv.DictReader(stream))
    streams = (float(sizes["l3_ns"]), float(sizes["dram_ns"])) if "l3_ns" in sizes else None
    return MeasuredMachine(
        name, int(lanes), int(sizes["l1_bytes"]), int(sizes["l2_bytes"]), layers, streams, PREDICTED in head
    )


def _layer(row: dict[str, str]) -> MeasuredLayer:
    times = {kernel: float(time) for kernel, time in row.items() if "@" in kernel and time}
    return MeasuredLayer(int(row["number"]), int(row["other_bytes"]), float(row["panel_reads"]), times)


def measured_machines(folder: Path = DATA) -> Iterable[MeasuredMachine]:
    """Yield the measurements by machine and lanes."""
    yield from map(read_rows, sorted(folder.glob("*-*.csv")))

"""The program that lowering hands to the runtime: code, packed constants, sizes of a call from its inputs."""

from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dialect.reports.layer_report import Report
from ..dialect.semantics.output_forms import OutputForm
from ..dialect.semantics.prologue import Prologue
from ..dialect.symbolic_sizes import Size as Size
from ..dialect.symbolic_sizes import SymbolicShape, computed_of
from .cpu_target import CpuTarget

FORMAT_VERSION = 15
"""Version of `Program` and of the artefacts that hold it; raised whenever either changes its meaning."""


@dataclass(frozen=True)
class Tensor:
    """An input or output of the network: its name and its symbolic shape."""

    name: str
    shape: SymbolicShape
    dtype: str = "float32"
    """The name of numpy's dtype: numbers of nodes are integers."""


@dataclass(frozen=True)
class Temporary:
    """A row-major buffer between steps: its size in values, and the first and last step that use it."""

    size: Size
    first_step: int
    last_step: int


class EqualSizes(NamedTuple):
    """Two sizes that the code takes to be the same; with `or_one`, the first may be 1 as well, as it is broadcast."""

    first: Size
    second: Size
    or_one: bool = False
    plus: Size = Size.known(0)
    """A size that the second one is counted with: sums of sizes have no name."""


class LeastSize(NamedTuple):
    """A size of which the code reads a place, and how large it has to be for that."""

    size: Size
    least: int


class ScratchBytes(NamedTuple):
    """Scratch memory of a thread: some bytes, and more for each of a size that only a call knows."""

    whole: int
    size: Size
    each: int


@dataclass(frozen=True)
class TileTime:
    """Tiles of some width: the least rows of one, and estimates of its microseconds.

    `serial_us` is the time of one thread, `shared_us` that of all together where that is of use.
    """

    width: int
    least_rows: int
    serial_us: float
    shared_us: float | None = None


@dataclass(frozen=True)
class TiledRows:
    """Tiles that a step cuts its rows into; `times` are of ascending widths.

    Tiles of the widest width are made while its least rows are left, then those of the next one. What a row becomes is
    the same bits in all tiles of at least `same_from` columns.

    `shared` is the exported function with which threads do rows together,
    `void (buffers, constants, sizes, scratch, i64 begin, i64 end, own, claim, member)`. All are given the same scratch
    area, and each one `own`, which for the first thread is that area too. They go through phases of so many items, of
    which they get some by `i64 claim (member, i64 items)`: the first one, and how many in the member's word `held`; or
    `items`, when all of a phase are done.
    """

    times: tuple[TileTime, ...]
    same_from: int
    shared: str | None = None


@dataclass(frozen=True)
class Step:
    """One exported function `void (buffers, constants, sizes, scratch, i64 begin, i64 end)`.

    `rows` is the size that begin and end cut into ranges; None where the step is one piece of work.
    """

    symbol: str
    rows: Size | None
    tiled: TiledRows | None = None
    may_fail: bool = False
    """Whether the function leaves in its scratch area a word that is 1 where an input is wrong: see `Failure`."""


@dataclass(frozen=True)
class Program:
    """A network as native code.

    The code reads three tables: buffers (inputs, outputs, temporaries: row-major f32), constants (`constants`, aligned
    to 64 bytes) and sizes (i64, `sizes` evaluated for the call), and a scratch area of `scratch_bytes` for each thread.
    """

    llvm_ir: str
    target: CpuTarget
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    temporaries: tuple[Temporary, ...]
    sizes: tuple[Size, ...]
    equal: tuple[EqualSizes, ...]
    """Sizes that ops take to be the same; a call in which they differ is refused."""
    constants: tuple[NDArray[np.generic], ...]
    scratch_bytes: int
    steps: tuple[Step, ...]
    report: Report
    zeroed: tuple[int, ...] = ()
    """Outputs whose memory has to hold zeros before a call: rows that come to nothing are not written."""
    prologue: Prologue | None = None
    """The steps from the inputs of the model to `inputs`; None where these are the same."""
    least: tuple[LeastSize, ...] = ()
    """Sizes that have to be so large at least; a call in which one is smaller is refused."""
    output_forms: tuple[OutputForm | None, ...] = ()
    """The form of each output of the model, None for float32; empty where all are."""
    scratch_of_sizes: tuple[ScratchBytes, ...] = ()
    """Scratch memory that steps need beside `scratch_bytes`: for the step that needs most."""

    @property
    def computed(self) -> tuple[str, ...]:
        """The symbols that stand for sums of sizes, or windows; their values are behind those of the inputs' shapes."""
        sizes = [*self.sizes, *(one.size for one in self.temporaries), *chain(*(one.shape for one in self.outputs))]
        sizes += [step.rows for step in self.steps if step.rows is not None]
        sizes += [size for pair in self.equal for size in (pair.first, pair.second, pair.plus)]
        sizes += [size for size, _ in self.least]
        sizes += [one.size for one in self.scratch_of_sizes]
        names = dict.fromkeys(name for size in sizes for name, _ in size.powers)
        return tuple(dict.fromkeys(computed for name in names for computed in computed_of(name)))

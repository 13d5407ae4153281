"""The kernel of a quantized layer on rows of bytes: panels of outputs, step by step, for some rows at once.

Indices and weights of a step are read once for all rows; a row's sums stay in a register until its panel is done. Then
the sums become values, or at once the codes of the next layer: bytes that stand for values, scale * (code - zero).

A walk reads the inputs of each step. By windows a run of steps holds them in registers, and its second vectors are the
first ones of the next run:

    low     8 x 64 inputs, those that were high      high    8 x 64 inputs, loaded for this run
    sums    8 x 16                                   indices and weights of a step, 8 look-ups
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.kernels import KernelAttr
from ...kernels.byte_lookup import VECTOR, LookupForm
from ...kernels.byte_times import WINDOWS
from ..cpu_target import CpuTarget
from ..kernels.kernel_form import activated, activation_key
from ..llvm.activations import has_approximation
from ..llvm.builder import Code
from ..llvm.flow import branch, call, fold, loop
from ..llvm.gather_scatter import load_ints
from ..llvm.values import FLOAT_BYTES, Bytes, Floats, Ints, Longs, Number
from ..llvm.vectors import Lanes
from .byte_lanes import ByteLanes, StepOperands
from .rounding import Rounding, Strided, other_kind, store_first

ROW_COUNTS: Final = (16, 8, 4, 2, 1)
"""Rows that a kernel does at once: their sums, and what a step reads, fit the registers."""

MOST_WINDOW_ROWS: Final = 8
"""Rows whose windows fit the registers beside their sums."""

LEAST_SUMS: Final = 4
"""Independent sums below which an instruction waits for the one before."""


@dataclass(frozen=True)
class LayerEnd:
    """The end of a layer: what becomes of the sums.

    `codes` are those of the next layer, `bytes` those that the network yields, `rounded` floats that codes stand for,
    `values` floats. Where there is an activation, the values behind it are divided by the scale before they are
    rounded.
    """

    kind: Literal["codes", "bytes", "rounded", "values"]
    activation: ActivationAttr | None
    outputs: int
    adds: bool = False
    """Whether floats are added to values before the activation."""
    signed: bool = False
    """Whether bytes are signed codes; those of layers are not."""

    def for_any_outputs(self) -> "LayerEnd":
        """Return the end of a single output, for code that minds no others."""
        return replace(self, outputs=1)

    def quick_multiples(self, lanes: Lanes, rounding: Rounding, values: ir.Value) -> ir.Value | None:
        """Return values as multiples of the scale where that takes no division, else None."""
        if self.activation is None:
            # the multiplier of the sums has the scale in it already
            return values
        # an approximation needs no exact quotient
        is_enough = has_approximation(lanes, self.activation.kind)
        return lanes.mul(values, rounding.inverse) if is_enough else None

    @property
    def key(self) -> str:
        """A name for functions with this end."""
        tail = 0 if self.kind == "codes" else self.outputs
        flags = ("_adds" if self.adds else "") + ("_signed" if self.signed else "")
        return f"{self.kind}{tail}_{activation_key(self.activation)}{flags}"


class Packed(NamedTuple):
    """The addresses of the arrays of a layer."""

    shares: Longs
    """The first panel of each share of threads, and the number of panels."""
    starts: Longs
    panels: Longs
    runs: Longs
    chunks: Longs
    windows: Ints
    indices: Bytes
    weights: Bytes
    bias: Ints
    multiplier: Floats
    tail: Bytes
    """The bounds of codes, or what is added to values."""


@dataclass(frozen=True)
class _Rows:
    """Rows that a kernel does at once."""

    count: int
    stride: int
    """Bytes from one to the next."""
    by_windows: bool

    @property
    def key(self) -> str:
        """A name for functions of these rows."""
        return f"{self.stride}_{self.count}{'_windows' if self.by_windows else ''}"


def _kernels(target: CpuTarget, form: LookupForm, kernel: KernelAttr | None, stride: int) -> list[_Rows]:
    """Return the rows of each kernel of a layer, most first."""
    # their sums take half of the registers
    most = target.registers // 2 // max(1, form.lanes // target.lanes)
    kinds = [
        _Rows(count, stride, form.in_pairs and kernel is not None and kernel.family_at(count) == WINDOWS)
        for count in ROW_COUNTS
        if count <= most
    ]
    return [rows for rows in kinds if not rows.by_windows or rows.count <= MOST_WINDOW_ROWS]


def lookup_layer(code: Code, form: LookupForm, end: LayerEnd, stride: int, kernel: KernelAttr | None) -> ir.Function:
    """Return `void (x, y, y stride, packed arrays..., rows, first share, share behind the last)`.

    Rows of bytes in x are `stride` of them apart. `kernel` says which rows are done by windows.
    """
    kinds = _kernels(code.target, form, kernel, stride)
    kernels = {rows.count: _rows_kernel(code, form, end, rows) for rows in kinds}

    @code.kernel(f"quantized_{form.key}_{'_'.join(rows.key for rows in kinds)}_{end.key}")
    def layer(x: Bytes, y: Strided, packed: Packed, rows: Number, begin: Number, end: Number) -> None:
        source = Strided(x, rows.constant(stride))
        mine = packed.shares[begin], packed.shares[end]
        with loop(packed.chunks[0]) as chunk:
            # the panels of a chunk stay in the cache for all rows, most of them at once first
            borders, done = packed.chunks.at(chunk), rows.constant(0)
            panels = borders[1].larger(mine[0]), borders[2].smaller(mine[1])
            for count, kernel in kernels.items():
                some = (rows - done) // count * count
                with loop(some, count) as row:
                    first = done + row
                    call(kernel, source.row(first).address, y.row(first), packed, *panels)
                done = done + some

    return layer


def _rows_kernel(code: Code, form: LookupForm, end: LayerEnd, rows: _Rows) -> ir.Function:
    """Return `void (x, y, y stride, packed arrays..., first panel, last panel + 1)` for some rows."""

    @code.kernel(f"quantized_{form.key}_{end.key}_rows_{rows.key}")
    def kernel(x: Bytes, y: Strided, packed: Packed, first: Number, last: Number) -> None:
        lanes = code.lanes(x, form.lanes)
        with loop(last - first) as done:
            panel = first + done
            places = [row * rows.stride for row in range(rows.count)]
            panel_sums = _PanelSums(ByteLanes.at(x, form, code.target), packed, x, places)
            sums = panel_sums.by_windows(panel) if rows.by_windows else panel_sums.walked(panel)
            panel_end = PanelEnd(lanes, end, packed.bias, packed.multiplier, packed.tail)
            panel_end.emit(sums, y, panel * form.lanes)

    return kernel


Vectors = list[ir.Value]


class _Run(NamedTuple):
    """State between runs: the next step, the address of its inputs, the sums, and the vectors that come first."""

    step: Number
    place: Bytes
    sums: Vectors
    vectors: Vectors


@dataclass(frozen=True)
class _PanelSums:
    """The sums of a panel for some rows."""

    bytes: ByteLanes
    packed: Packed
    x: Bytes
    rows: Sequence[int]
    """Bytes from x to each row."""

    def walked(self, panel: Number) -> Vectors:
        """Return a vector of sums for each row."""
        count = len(self.rows)
        start, stop = self._borders(self.packed.starts, panel)
        # some steps at once, each with sums of its own
        unrolled = max(1, LEAST_SUMS // count)
        groups = (stop - start) // unrolled

        def several(group: Number, sums: list[Vectors]) -> list[Vectors]:
            first = start + group * unrolled
            return [self._step(first + step, part) for step, part in enumerate(sums)]

        nothing: list[Vectors] = [[self.bytes.zero()] * count for _ in range(unrolled)]
        totals, *others = fold(groups, nothing, several)
        for part in others:
            totals = Vectors(self.bytes.builder.add(total, more) for total, more in zip(totals, part, strict=True))
        return fold(stop, totals, self._step, start=start + groups * unrolled) if others else totals

    def by_windows(self, panel: Number) -> Vectors:
        """Return the same, inputs being read once for all steps of a run."""
        first, last = self._borders(self.packed.panels, panel)
        start = self.packed.runs[first]
        inputs = self._window(start)

        def run(number: Number, now: _Run) -> _Run:
            following = now.place.after(VECTOR)
            high = self._vectors(following)
            pairs = list(zip(now.vectors, high, strict=True))

            def one(step: Number, sums: Vectors) -> Vectors:
                operands = self._operands(step)
                return [self.bytes.added_of_pair(*both, operands) for both in zip(sums, pairs, strict=True)]

            stop = self.packed.runs.at(number)[1]
            return _Run(stop, following, fold(stop, now.sums, one, start=now.step), high)

        begin = _Run(start, inputs, [self.bytes.zero() for _ in self.rows], self._vectors(inputs))
        return fold(last, begin, run, start=first).sums

    def _borders(self, firsts: Longs, index: Number) -> tuple[Number, Number]:
        """Return where a panel begins, and where the next one does."""
        borders = firsts.at(index)
        return borders[0], borders[1]

    def _window(self, step: Number) -> Bytes:
        """Return the address of the inputs of a step in the first row."""
        return self.x.after(self.packed.windows.narrow(step).signed())

    def _vectors(self, place: Bytes) -> Vectors:
        return [self.bytes.inputs(place.after(row)) for row in self.rows]

    def _operands(self, step: Number) -> StepOperands:
        """Return indices and weights of a step."""
        offset = step * self.bytes.form.step_bytes
        return self.bytes.operands(self.packed.indices.at(offset), self.packed.weights.at(offset))

    def _step(self, step: Number, sums: Vectors) -> Vectors:
        operands, inputs = self._operands(step), self._window(step)
        return [
            self.bytes.added(total, inputs.after(row), operands) for total, row in zip(sums, self.rows, strict=True)
        ]


@dataclass(frozen=True)
class PanelEnd:
    """The end of a panel: sums of integers in, codes or values of the outputs from one on out."""

    lanes: Lanes
    end: LayerEnd
    bias: Ints
    multiplier: Floats
    tail: Bytes
    """The bounds of codes, or what is added to values."""

    def emit(self, sums: Vectors, y: Strided, output: Number) -> None:
        """Write what becomes of the sums of each row."""
        lanes, width, align = self.lanes, self.lanes.width, self.lanes.size
        bias = load_ints(lanes, self.bias.at(output), align)
        multiplier = lanes.load(self.multiplier.at(output), align)
        values = [lanes.mul(lanes.to_float(lanes.builder.add(total, bias)), multiplier) for total in sums]
        if self.end.adds:
            addend = lanes.load(self.tail.cast(Floats).at(output), align)
            values = [lanes.add(value, addend) for value in values]
        results = self._results(activated(lanes, self.end.activation, values, of_codes=self.end.kind != "values"))
        targets = [y.row(row).address for row in range(len(sums))]
        if self.end.kind == "codes":
            # a row of codes has room behind it
            for result, target in zip(results, targets, strict=True):
                target.at(output).store(result, 1)
            return
        in_bytes = self.end.kind == "bytes"
        places = [target.at(output) if in_bytes else target.cast(Floats).at(output) for target in targets]
        if self.end.outputs % width == 0:
            self._store(results, places)
            return

        def some() -> None:
            for result, place in zip(results, places, strict=True):
                store_first(result, place, self.end.outputs % width)

        branch(output <= self.end.outputs - width, lambda: self._store(results, places), some)

    def _results(self, values: Vectors) -> Vectors:
        if self.end.kind == "values":
            return values
        rounding = Rounding.read(self.lanes, self.tail)
        rounded = [self._rounded(rounding, value) for value in values]
        if self.end.kind == "rounded":
            return [rounding.value(value) for value in rounded]
        codes = [rounding.code(value) for value in rounded]
        return [other_kind(self.lanes.builder, one) for one in codes] if self.end.signed else codes

    def _rounded(self, rounding: Rounding, value: ir.Value) -> ir.Value:
        multiples = self.end.quick_multiples(self.lanes, rounding, value)
        return rounding.quotient(value) if multiples is None else rounding.rounded(multiples)

    def _store(self, results: Vectors, places: Sequence[Bytes | Floats]) -> None:
        for result, place in zip(results, places, strict=True):
            place.store(result, 1 if self.end.kind == "bytes" else FLOAT_BYTES)

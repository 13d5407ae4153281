"""The kernel of a quantized layer on rows of bytes: panels of outputs, step by step, for some rows at once.

Indices and weights of a step are read once for all rows; a row's sums stay in a register until its panel is done. Then
the sums become values, or at once the codes of the next layer.

A walk reads the inputs of each step. By windows a run of steps holds them in registers, and its second vectors are the
first ones of the next run:

    low     8 x 64 inputs, those that were high      high    8 x 64 inputs, loaded for this run
    sums    8 x 16                                   indices and weights of a step, 8 look-ups
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.kernels import KernelAttr
from ...kernels.byte_lookup import VECTOR, LookupForm
from ...kernels.byte_times import WINDOWS
from ..cpu_target import CpuTarget
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import (
    FLOAT_BYTES,
    I32,
    I64,
    POINTER,
    Code,
    byte_at,
    counted_loop,
    entry_of,
    float_at,
    i64,
    reduce_loop,
)
from ..llvm.vectors import Lanes, int_constants
from .byte_lanes import ByteLanes
from .byte_rows import Strided, other_kind, store_first
from .rounding import Rounding

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

    @property
    def key(self) -> str:
        """A name for functions with this end."""
        tail = 0 if self.kind == "codes" else self.outputs
        flags = ("_adds" if self.adds else "") + ("_signed" if self.signed else "")
        return f"{self.kind}{tail}_{activation_key(self.activation)}{flags}"


class Packed(NamedTuple):
    """The addresses of the arrays of a layer."""

    starts: ir.Value
    panels: ir.Value
    runs: ir.Value
    chunks: ir.Value
    windows: ir.Value
    indices: ir.Value
    weights: ir.Value
    bias: ir.Value
    multiplier: ir.Value
    tail: ir.Value
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
    most = ROW_COUNTS[0] if target.has_avx512 else ROW_COUNTS[1]
    kinds = [
        _Rows(count, stride, form.in_pairs and kernel is not None and kernel.family_at(count) == WINDOWS)
        for count in ROW_COUNTS
        if count <= most
    ]
    return [rows for rows in kinds if not rows.by_windows or rows.count <= MOST_WINDOW_ROWS]


def lookup_layer(code: Code, form: LookupForm, end: LayerEnd, stride: int, kernel: KernelAttr | None) -> ir.Function:
    """Return `void (x, y, y stride, packed arrays..., rows)`, rows of bytes in x, `stride` of them apart.

    `kernel` says which rows are done by windows.
    """
    kinds = _kernels(code.target, form, kernel, stride)
    kernels = {rows.count: _rows_kernel(code, form, end, rows) for rows in kinds}

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, packed, rows = Strided(args[0], i64(stride)), Strided(*args[1:3]), Packed(*args[3:-1]), args[-1]
        with counted_loop(builder, entry_of(builder, packed.chunks, 0, I64)) as chunk:
            borders = builder.gep(packed.chunks, [chunk], source_etype=I64)
            panels = [entry_of(builder, borders, index, I64) for index in (1, 2)]
            done: ir.Value = i64(0)
            for count, kernel in kernels.items():
                blocks = builder.udiv(builder.sub(rows, done), i64(count))
                some = builder.mul(blocks, i64(count))
                with counted_loop(builder, some, count) as row:
                    first = builder.add(done, row)
                    here = (x.row(builder, first).address, *y.row(builder, first))
                    builder.call(kernel, [*here, *packed, *panels])
                done = builder.add(done, some)

    key = f"quantized_{form.key}_{'_'.join(rows.key for rows in kinds)}_{end.key}"
    return code.function(key, [POINTER, POINTER, I64, *[POINTER] * len(Packed._fields), I64], body)


def _rows_kernel(code: Code, form: LookupForm, end: LayerEnd, rows: _Rows) -> ir.Function:
    """Return `void (x, y, y stride, packed arrays..., first panel, last panel + 1)` for some rows."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, packed, (first, last) = args[0], Strided(*args[1:3]), Packed(*args[3:-2]), args[-2:]
        lanes = Lanes(builder, code.target, form.lanes)
        with counted_loop(builder, builder.sub(last, first)) as done:
            panel = builder.add(first, done)
            places = [row * rows.stride for row in range(rows.count)]
            panel_sums = _PanelSums(ByteLanes(builder, form), packed, x, places)
            sums = panel_sums.by_windows(panel) if rows.by_windows else panel_sums.walked(panel)
            _PanelEnd(lanes, end, packed).emit(sums, y, builder.mul(panel, i64(form.lanes)))

    arguments = [POINTER, POINTER, I64, *[POINTER] * len(Packed._fields), I64, I64]
    return code.function(f"quantized_{form.key}_{end.key}_rows_{rows.key}", arguments, body)


@dataclass(frozen=True)
class _PanelSums:
    """The sums of a panel for some rows."""

    bytes: ByteLanes
    packed: Packed
    x: ir.Value
    rows: Sequence[int]
    """Bytes from x to each row."""

    def walked(self, panel: ir.Value) -> list[ir.Value]:
        """Return a vector of sums for each row."""
        builder, count = self.bytes.builder, len(self.rows)
        start, stop = self._borders(self.packed.starts, panel)
        zero = int_constants([0] * self.bytes.form.lanes)
        unrolled = max(1, LEAST_SUMS // count)
        groups = builder.udiv(builder.sub(stop, start), i64(unrolled))

        def several(group: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
            first = builder.add(start, builder.mul(group, i64(unrolled)))
            parts = [sums[count * step : count * (step + 1)] for step in range(unrolled)]
            return [
                total for step, part in enumerate(parts) for total in self._step(builder.add(first, i64(step)), part)
            ]

        sums = reduce_loop(builder, groups, [zero] * (unrolled * count), several)
        totals = sums[:count]
        if unrolled > 1:
            for step in range(1, unrolled):
                part = sums[count * step : count * (step + 1)]
                totals = [builder.add(total, more) for total, more in zip(totals, part, strict=True)]
            rest = builder.add(start, builder.mul(groups, i64(unrolled)))
            totals = reduce_loop(builder, stop, totals, self._step, start=rest)
        return totals

    def by_windows(self, panel: ir.Value) -> list[ir.Value]:
        """Return the same, inputs being read once for all steps of a run."""
        builder, lanes, count = self.bytes.builder, self.bytes, len(self.rows)
        first, last = self._borders(self.packed.panels, panel)
        start, _ = self._borders(self.packed.runs, first)
        inputs = self._window(start)
        zero = int_constants([0] * lanes.form.lanes)

        def run(number: ir.Value, carried: Sequence[ir.Value]) -> list[ir.Value]:
            step, place, *vectors = carried
            following = byte_at(builder, place, i64(VECTOR))
            high = self._vectors(following)
            pairs = list(zip(vectors[count:], high, strict=True))

            def one(step: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
                operands = self._operands(step)
                return [lanes.added_of_pair(*both, *operands) for both in zip(sums, pairs, strict=True)]

            _, stop = self._borders(self.packed.runs, number)
            return [stop, following, *reduce_loop(builder, stop, vectors[:count], one, start=step), *high]

        begin = [start, inputs, *[zero] * count, *self._vectors(inputs)]
        return reduce_loop(builder, last, begin, run, start=first)[2 : 2 + count]

    def _borders(self, firsts: ir.Value, index: ir.Value) -> list[ir.Value]:
        """Return where a panel or a run begins, and where the next one does."""
        borders = self.bytes.builder.gep(firsts, [index], source_etype=I64)
        return [entry_of(self.bytes.builder, borders, entry, I64) for entry in (0, 1)]

    def _window(self, step: ir.Value) -> ir.Value:
        """Return the address of the inputs of a step in the first row."""
        builder = self.bytes.builder
        window = builder.sext(builder.load(_word_at(builder, self.packed.windows, step), typ=I32), I64)
        return byte_at(builder, self.x, window)

    def _vectors(self, place: ir.Value) -> list[ir.Value]:
        return [self.bytes.vector(byte_at(self.bytes.builder, place, i64(row))) for row in self.rows]

    def _operands(self, step: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return indices and weights of a step."""
        builder, lanes = self.bytes.builder, self.bytes
        offset = builder.mul(step, i64(lanes.form.step_bytes))
        indices = lanes.indices(byte_at(builder, self.packed.indices, offset))
        return indices, lanes.weights(byte_at(builder, self.packed.weights, offset))

    def _step(self, step: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        operands, inputs = self._operands(step), self._window(step)
        return [
            self.bytes.added(total, byte_at(self.bytes.builder, inputs, i64(row)), *operands)
            for total, row in zip(sums, self.rows, strict=True)
        ]


@dataclass(frozen=True)
class _PanelEnd:
    """The end of a panel: sums of integers in, codes or values of the outputs from one on out."""

    lanes: Lanes
    end: LayerEnd
    packed: Packed

    def emit(self, sums: Sequence[ir.Value], y: Strided, output: ir.Value) -> None:
        """Write what becomes of the sums of each row."""
        builder, width = self.lanes.builder, self.lanes.width
        bias_at = _word_at(builder, self.packed.bias, output)
        bias = builder.load(bias_at, align=FLOAT_BYTES * width, typ=self.lanes.int_vector)
        multiplier = self.lanes.load(float_at(builder, self.packed.multiplier, output), FLOAT_BYTES * width)
        values = [self.lanes.mul(self.lanes.to_float(builder.add(total, bias)), multiplier) for total in sums]
        if self.end.adds:
            addend = self.lanes.load(float_at(builder, self.packed.tail, output), FLOAT_BYTES * width)
            values = [self.lanes.add(value, addend) for value in values]
        results = self._results(activated(self.lanes, self.end.activation, values))
        targets = [y.row(builder, i64(row)).address for row in range(len(sums))]
        if self.end.kind == "codes":
            for result, target in zip(results, targets, strict=True):
                builder.store(result, byte_at(builder, target, output), align=1)
            return
        place_of = byte_at if self.end.kind == "bytes" else float_at
        places = [place_of(builder, target, output) for target in targets]
        if self.end.outputs % width == 0:
            self._store(results, places)
            return
        whole = builder.icmp_signed("<=", output, i64(self.end.outputs - width))
        with builder.if_else(whole) as (then, otherwise):
            with then:
                self._store(results, places)
            with otherwise:
                for result, place in zip(results, places, strict=True):
                    store_first(builder, result, place, self.end.outputs % width)

    def _results(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        if self.end.kind == "values":
            return list(values)
        rounding = Rounding.read(self.lanes, self.packed.tail)
        multiples = values if self.end.activation is None else [rounding.divided(value) for value in values]
        rounded = [rounding.rounded(value) for value in multiples]
        if self.end.kind == "rounded":
            return [rounding.value(value) for value in rounded]
        codes = [rounding.code(value) for value in rounded]
        return [other_kind(self.lanes.builder, one) for one in codes] if self.end.signed else codes

    def _store(self, results: Sequence[ir.Value], places: Sequence[ir.Value]) -> None:
        for result, place in zip(results, places, strict=True):
            self.lanes.builder.store(result, place, align=1 if self.end.kind == "bytes" else FLOAT_BYTES)


def _word_at(builder: ir.IRBuilder, pointer: ir.Value, index: ir.Value) -> ir.Value:
    return builder.gep(pointer, [index], source_etype=I32)

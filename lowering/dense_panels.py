"""Dense kernel family: panels of output rows that share each load of x, their sums in registers.

A panel of R rows and V vectors of columns holds R x V sums; for each input k it loads V vectors of x[k] and broadcasts
R weights, which stand together in the packed panel [outputs / R, K, R]. Narrow tiles take several panels at once, so
that there are enough sums to hide the latency of multiply-adds.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.lowering.emission import (
    FLOAT,
    FLOAT_BYTES,
    I64,
    POINTER,
    Code,
    byte_at,
    cell,
    column_chunks,
    counted_loop,
    float_at,
    i64,
    reduce_loop,
)
from redpebble.lowering.fetching import fetch_lines
from redpebble.lowering.linear import LinearForm, PackedArrays, activated, dense_weight
from redpebble.lowering.vectors import Lanes

PANEL_ROWS = 6
"""R: with V = 4 vectors of 16 lanes 24 sums, 4 operands and a weight fill the 32 registers of AVX-512."""

LEAST_FETCHED = 1 << 20
"""Bytes of weights from which they are fetched ahead of their use: the second-level cache does not hold them."""

FETCH_DISTANCE = 2048
"""Bytes by which they are."""


class DensePanels:
    """Panels: weights [ceil(N / R), K, R] f32 and bias [ceil(N / R) * R] f32.

    Where the last panel lacks rows it has the last row again, and writes it again: the rows behind may be of another
    thread.
    """

    def pack(self, weight: SSAValue, bias: NDArray[np.float32]) -> PackedArrays:
        """Return the panels and the bias."""
        dense = dense_weight(weight)
        inputs: int = dense.shape[0]
        outputs: int = dense.shape[1]
        panels = -(-outputs // PANEL_ROWS)
        rows = np.minimum(np.arange(panels * PANEL_ROWS), outputs - 1)
        packed = dense[:, rows].reshape(inputs, panels, PANEL_ROWS).transpose(1, 0, 2)
        return np.ascontiguousarray(packed), bias[rows]

    def emit(self, code: Code, form: LinearForm) -> ir.Function:
        """Return the kernel for tiles of `form.width` columns."""
        most = 4 if code.target.has_avx512 else 2
        chunks = column_chunks(form.width, code.column_lanes(form.width), most)
        together = max(1, most // chunks[0][1])

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            x, y, weights, bias, inputs, outputs = args
            panels = builder.sdiv(builder.add(outputs, i64(PANEL_ROWS - 1)), i64(PANEL_ROWS))
            groups = builder.sdiv(panels, i64(together))
            size = builder.mul(builder.mul(inputs, outputs), i64(FLOAT_BYTES))
            large = builder.icmp_signed(">=", size, i64(LEAST_FETCHED))
            values = [x, y, weights, bias, inputs, large, builder.sub(outputs, i64(1))]

            def emit_panels(panel: ir.Value, count: int) -> None:
                row = builder.mul(panel, i64(PANEL_ROWS))
                for first, vectors in chunks:
                    place = _Panels(code.lanes(builder, code.column_lanes(form.width)), form, first, vectors, count)
                    place.emit([*values, row])

            with counted_loop(builder, groups) as group:
                emit_panels(builder.mul(group, i64(together)), together)
            if together > 1:
                done = builder.mul(groups, i64(together))
                with counted_loop(builder, builder.sub(panels, done)) as panel:
                    emit_panels(builder.add(done, panel), 1)

        return code.function(f"dense_panels_{form.key}", [POINTER] * 4 + [I64, I64], body)


@dataclass(frozen=True)
class _Panels:
    """The code of `count` neighbouring panels for some vectors from column `first` on."""

    lanes: Lanes
    form: LinearForm
    first: int
    vectors: int
    count: int

    def emit(self, values: Sequence[ir.Value]) -> None:
        """Emit panels; values are x, y, weights, bias, inputs, whether to fetch weights, the last and the first row."""
        x, y, weights, bias, inputs, large, last, row = values
        lanes, builder, width = self.lanes, self.lanes.builder, self.form.width
        starts = [builder.add(row, i64(PANEL_ROWS * index)) for index in range(self.count)]
        panels = [float_at(builder, weights, builder.mul(start, inputs)) for start in starts]
        rows = [builder.add(row, i64(index)) for index in range(PANEL_ROWS * self.count)]
        biases = [lanes.splat(builder.load(float_at(builder, bias, line), typ=FLOAT)) for line in rows]

        def multiply_add(k: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
            entry = builder.mul(k, i64(PANEL_ROWS))
            return self._multiply_add(cell(builder, x, (k, width, self.first)), entry, (panels, large), sums)

        initial = [value for value in biases for _ in range(self.vectors)]
        sums = reduce_loop(builder, (i64(0), inputs), initial, multiply_add)
        for index, value in enumerate(activated(lanes, self.form.activation, sums)):
            line, column = divmod(index, self.vectors)
            target = builder.select(builder.icmp_signed("<", rows[line], last), rows[line], last)
            place = (target, width, self.first + column * lanes.width)
            lanes.store(value, cell(builder, y, place), FLOAT_BYTES * lanes.width)

    def _multiply_add(
        self, x: ir.Value, entry: ir.Value, panels: tuple[Sequence[ir.Value], ir.Value], sums: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Return the sums after the input whose columns are at `x` and whose weights at `entry` of each panel."""
        lanes, builder = self.lanes, self.lanes.builder
        entries, large = [float_at(builder, panel, entry) for panel in panels[0]], panels[1]
        # one fetch beside 24 multiply-adds is free, and cheaper than asking; several are not
        with builder.if_then(large) if self.count > 1 else nullcontext():
            for address in entries:
                fetch_lines(builder, byte_at(builder, address, i64(FETCH_DISTANCE)), 1)
        places = [float_at(builder, x, i64(index * lanes.width)) for index in range(self.vectors)]
        operands = [lanes.load(place, FLOAT_BYTES * lanes.width) for place in places]
        results: list[ir.Value] = []
        for index in range(PANEL_ROWS * self.count):
            panel, line = divmod(index, PANEL_ROWS)
            weight = lanes.splat(builder.load(float_at(builder, entries[panel], i64(line)), typ=FLOAT))
            row = sums[index * self.vectors : (index + 1) * self.vectors]
            results += [lanes.fma(weight, operand, total) for operand, total in zip(operands, row, strict=True)]
        return results

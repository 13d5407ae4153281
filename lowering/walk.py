"""Sparse kernel family for one row of activations: every vector of weights meets values looked up in two registers.

Cut x into blocks of 16. A panel of 32 output rows shares a walk v0, v1, ... over the blocks. Step t holds the blocks
v_t and v_t+1 in two registers (one of them from the step before), looks up one of these 32 values for every row, and
multiplies it by the row's weight. So an entry may go into any step that touches its block, and no sum leaves its
register before its row is complete. What fits no step is gathered, into the same sums. `walk_packing` makes the walks.

An unused lane multiplies 0 by a real x: an infinity or NaN in x may spread to rows without a connection to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.lowering.emission import I32, I64, POINTER, Code, byte_at, float_at, i64, reduce_loop
from redpebble.lowering.gathers import gather, load_ints, lookup, scatter_rows
from redpebble.lowering.linear import LinearForm, PackedArrays, activated, sparse_weight
from redpebble.lowering.vectors import Lanes
from redpebble.lowering.walk_packing import BLOCK, CHUNK_STEPS, FIELD_BITS, PANEL_ROWS, pack_walks

HEAD_WORDS = 2 * PANEL_ROWS
"""The biases and the numbers of a panel's rows."""
CHUNK_WORDS = PANEL_ROWS * (1 + CHUNK_STEPS)
"""A word of lookup places a row, and the weights of the steps."""
GATHER_WORDS = 2 * PANEL_ROWS
"""A number of an input and a weight a row."""
OFFSET_BYTES = 4


class Walk:
    """Panels of 32 rows: chunks and gathers of each u32 [panels, 2], the walks u32, and the panels' words u32."""

    def pack(self, weight: SSAValue, bias: NDArray[np.float32]) -> PackedArrays:
        """Return the sizes, the walks and the words, as `pack_walks` describes them."""
        return pack_walks(sparse_weight(weight), bias)

    def emit(self, code: Code, form: LinearForm) -> ir.Function:
        """Return the kernel for one row of activations."""

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            x, y, sizes, walks, words, _, outputs = args
            panels = builder.sdiv(builder.add(outputs, i64(PANEL_ROWS - 1)), i64(PANEL_ROWS))

            def panel(index: ir.Value, places: Sequence[ir.Value]) -> Sequence[ir.Value]:
                address = builder.gep(sizes, [builder.mul(index, i64(2))], source_etype=I32)
                counts = [
                    builder.zext(builder.load(float_at(builder, address, i64(part)), typ=I32), I64) for part in range(2)
                ]
                return _Panel(code, builder, (x, y), places[0], places[1]).emit(counts, form)

            reduce_loop(builder, (i64(0), panels), [walks, words], panel)

        return code.function(f"walk_{form.key}", [POINTER] * 5 + [I64, I64], body)


@dataclass(frozen=True)
class _Panel:
    """One panel: x and y, its walk and its words."""

    code: Code
    builder: ir.IRBuilder
    vectors: tuple[ir.Value, ir.Value]
    walk: ir.Value
    words: ir.Value

    def emit(self, counts: Sequence[ir.Value], form: LinearForm) -> Sequence[ir.Value]:
        """Emit the panel with its [chunks, gathers]; returns where the next one's walk and words begin."""
        builder, lanes = self.builder, self.lanes
        chunks = float_at(builder, self.words, i64(HEAD_WORDS))
        gathers = float_at(builder, chunks, builder.mul(counts[0], i64(CHUNK_WORDS)))
        after = float_at(builder, gathers, builder.mul(counts[1], i64(GATHER_WORDS)))
        # a register of sums for all groups of rows at once where there are enough of them, else the walk is repeated
        together = PANEL_ROWS // lanes.width if self.code.target.has_avx512 else 1
        for first in range(0, PANEL_ROWS, together * lanes.width):
            rows = [first + index * lanes.width for index in range(together)]
            sums = [self._load(lanes, self.words, row) for row in rows]
            sums = self._emit_chunks(chunks, counts[0], (rows, sums))
            sums = self._emit_gathers(gathers, counts[1], (rows, sums))
            for row, value in zip(rows, activated(lanes, form.activation, sums), strict=True):
                numbers = load_ints(lanes, float_at(builder, self.words, i64(PANEL_ROWS + row)))
                scatter_rows(self.code, lanes, value, (self.vectors[1], numbers))
        steps = builder.add(builder.mul(counts[0], i64(CHUNK_STEPS)), i64(1))
        return [float_at(builder, self.walk, steps), after]

    @property
    def lanes(self) -> Lanes:
        """Vectors of rows."""
        return self.code.lanes(self.builder)

    def _emit_chunks(
        self, chunks: ir.Value, count: ir.Value, state: tuple[Sequence[int], list[ir.Value]]
    ) -> list[ir.Value]:
        """Emit all steps of the walk, which add to the sums of groups of rows."""
        rows, sums = state
        lanes, groups = self.lanes, len(rows)
        # a second sum for each group, which odd steps add to, as two chains of multiply-adds hide each other's latency
        initial = [*sums, *[lanes.splat(0.0)] * groups]
        if self.code.target.has_avx512:
            initial.append(self._block(i64(0)))

        def chunk(index: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            following = list(carried)
            words = float_at(self.builder, chunks, self.builder.mul(index, i64(CHUNK_WORDS)))
            places = [load_ints(lanes, float_at(self.builder, words, i64(row)), 4 * lanes.width) for row in rows]
            position = self.builder.mul(index, i64(CHUNK_STEPS))
            for step in range(CHUNK_STEPS):
                if self.code.target.has_avx512:
                    block = self._block(self.builder.add(position, i64(step + 1)))
                    registers = (following[-1], block) if step % 2 == 0 else (block, following[-1])
                    following[-1] = block
                else:
                    registers = self._offsets(self.builder.add(position, i64(step)), step)
                for group, row in enumerate(rows):
                    value = self._look_up(registers, self.builder.lshr(places[group], lanes.ints(FIELD_BITS * step)))
                    weight = self._load(lanes, words, PANEL_ROWS * (1 + step) + row)
                    target = step % 2 * groups + group
                    following[target] = lanes.fma(value, weight, following[target])
            return following

        results = reduce_loop(self.builder, (i64(0), count), initial, chunk)
        return [lanes.add(results[group], results[groups + group]) for group in range(groups)]

    def _emit_gathers(
        self, gathers: ir.Value, count: ir.Value, state: tuple[Sequence[int], list[ir.Value]]
    ) -> list[ir.Value]:
        """Emit what the walk left over."""
        rows, sums = state
        lanes = self.lanes

        def step(index: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            words = float_at(self.builder, gathers, self.builder.mul(index, i64(GATHER_WORDS)))
            following: list[ir.Value] = []
            for row, total in zip(rows, carried, strict=True):
                inputs = load_ints(lanes, float_at(self.builder, words, i64(row)), 4 * lanes.width)
                value = gather(self.code, lanes, self.vectors[0], inputs)
                following.append(lanes.fma(value, self._load(lanes, words, PANEL_ROWS + row), total))
            return following

        return reduce_loop(self.builder, (i64(0), count), sums, step)

    def _load(self, lanes: Lanes, words: ir.Value, index: int) -> ir.Value:
        return lanes.load(float_at(self.builder, words, i64(index)), 4 * lanes.width)

    def _offset(self, position: ir.Value) -> ir.Value:
        return self.builder.load(float_at(self.builder, self.walk, position), typ=I32)

    def _block(self, position: ir.Value) -> ir.Value:
        """Return the block of x at a position of the walk, in a register."""
        address = byte_at(self.builder, self.vectors[0], self.builder.zext(self._offset(position), I64))
        return self.lanes.load(address, 4 * BLOCK)

    def _offsets(self, position: ir.Value, step: int) -> tuple[ir.Value, ir.Value]:
        """Return the first inputs of the blocks of a step, that at an even position of the walk first."""
        places = [self.builder.add(position, i64(ahead)) for ahead in (step % 2, 1 - step % 2)]
        even, odd = (
            self._all(self.builder.lshr(self._offset(place), ir.Constant(I32, 2))) for place in places
        )
        return even, odd

    def _look_up(self, registers: tuple[ir.Value, ir.Value], places: ir.Value) -> ir.Value:
        """Return the value that each row has in two blocks, held in registers or known by their first inputs."""
        builder, lanes = self.builder, self.lanes
        if self.code.target.has_avx512:
            return lookup(self.code, lanes, registers, places)
        in_odd = builder.icmp_signed("!=", builder.and_(places, lanes.ints(BLOCK)), lanes.ints(0))
        first = builder.select(in_odd, registers[1], registers[0])
        inputs = builder.add(first, builder.and_(places, lanes.ints(BLOCK - 1)))
        return gather(self.code, lanes, self.vectors[0], inputs)

    def _all(self, value: ir.Value) -> ir.Value:
        """Return an integer in every lane."""
        undefined = ir.Constant(self.lanes.int_vector, ir.Undefined)
        first = self.builder.insert_element(undefined, value, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(first, undefined, self.lanes.ints(0))

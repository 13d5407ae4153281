"""Products of bytes that a look-up chooses, added to vectors of integers, one lane an output.

Registers of a step for one row of the batch, with four bytes a lane (words are two and two, the upper byte 0):

    table   x[w] ... x[w + 15] | the same | ...      16 inputs in each quarter     vbroadcasti32x4
    chosen  table[i0] table[i1] table[i2] table[i3] | ...                          vpshufb
    sums    + chosen0 w0 + chosen1 w1 + chosen2 w2 + chosen3 w3                    vpdpbusd, or vpmaddwd and vpaddd

CPUs with VBMI choose among two vectors, x[w] ... x[w + 127], without a copy of either (vpermt2b).
"""

from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from ...kernels.byte_lookup import QUARTER, VECTOR, LookupForm
from ...kernels.byte_quads import QUAD
from ..cpu_target import CpuTarget
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import BYTE, I16, I32, Bytes, Number, Value
from ..llvm.vectors import Arithmetic, int_constants

LOOK_UP = {16: "llvm.x86.avx512.pshuf.b.512", 8: "llvm.x86.avx2.pshuf.b"}
LOOK_UP_IN_PAIRS = "llvm.x86.avx512.vpermi2var.qi.512"
PLACING = "llvm.x86.avx512.permvar.qi.512"
BYTE_PRODUCTS = {16: "llvm.x86.avx512.vpdpbusd.512", 8: "llvm.x86.avx512.vpdpbusd.256"}
WORD_PRODUCTS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd"}

PORTABLE_LANES = 4
"""Outputs of a panel where each byte is looked up by itself."""


def lookup_form(target: CpuTarget) -> LookupForm:
    """Return the form of steps for a target."""
    bytewise = target.multiplies_bytes
    if target.lookup_lanes:
        return LookupForm(target.lookup_lanes, bytewise, in_pairs=bytewise and target.looks_up_lines)
    return LookupForm(PORTABLE_LANES, bytewise=False)


class StepOperands(NamedTuple):
    """Indices of a step, in portable code their address, and its weights."""

    indices: ir.Value | Bytes
    weights: ir.Value


@dataclass(frozen=True)
class ByteLanes(Arithmetic):
    """The instructions of a step at the place of `builder`; a lane is a sum of 32 bits, or four bytes."""

    form: LookupForm
    register: int = 16
    """Lanes of a register of the CPU; a vector of more is two of them."""

    @classmethod
    def at(cls, place: Value, form: LookupForm, register: int = 16) -> "ByteLanes":
        """Return the instructions at a place."""
        return cls(place.builder, form.lanes, form, register)

    @property
    def vector(self) -> ir.VectorType:
        """The type of a vector of sums."""
        return ir.VectorType(I32, self.width)

    @property
    def _bytes(self) -> ir.VectorType:
        return ir.VectorType(BYTE, self.form.step_bytes)

    def zero(self) -> ir.Constant:
        """Return sums of nothing."""
        return int_constants([0] * self.form.lanes)

    def operands(self, indices: Bytes, weights: Bytes) -> StepOperands:
        """Load the indices and the weights of a step."""
        size, has_look_up = self.form.step_bytes, self.form.lanes in LOOK_UP
        loaded = indices.load(self._bytes, size) if has_look_up else indices
        kind = self.vector if self.form.bytewise else ir.VectorType(I16, 2 * self.form.lanes)
        return StepOperands(loaded, weights.load(kind, size))

    def added(self, sums: ir.Value, window: Bytes, operands: StepOperands) -> ir.Value:
        """Return sums and the products of a step for the inputs from the address `window` on."""
        builder, form, (indices, weights) = self.builder, self.form, operands
        if isinstance(indices, Bytes):
            return self._added_one_by_one(sums, window, indices, weights)
        if form.in_pairs:
            return self.added_of_pair(sums, (self.inputs(window), self.inputs(window.after(VECTOR))), operands)
        chosen = self._quarter_lookup(window, indices)
        if form.bytewise:
            return self.multiplied(sums, builder.bitcast(chosen, self.vector), weights)
        pairs = builder.bitcast(chosen, ir.VectorType(I16, 2 * form.lanes))
        return builder.add(sums, call_intrinsic(self.builder, WORD_PRODUCTS[form.lanes], self.vector, [pairs, weights]))

    def inputs(self, address: Bytes) -> ir.Value:
        """Return the vector of inputs from an address on."""
        return address.load(self._bytes, 1)

    def added_of_pair(self, sums: ir.Value, pair: tuple[ir.Value, ir.Value], operands: StepOperands) -> ir.Value:
        """Return sums and the products of a step for the inputs of two vectors."""
        indices, weights = operands
        assert not isinstance(indices, Bytes)
        chosen = call_intrinsic(self.builder, LOOK_UP_IN_PAIRS, self._bytes, [pair[0], indices, pair[1]])
        return self.multiplied(sums, self.builder.bitcast(chosen, self.vector), weights)

    def _quarter_lookup(self, window: Bytes, indices: ir.Value) -> ir.Value:
        builder, form = self.builder, self.form
        inputs = window.load(ir.VectorType(BYTE, QUARTER), 1)
        repeated = [byte % QUARTER for byte in range(form.step_bytes)]
        table = builder.shuffle_vector(inputs, inputs, int_constants(repeated))
        return call_intrinsic(self.builder, LOOK_UP[form.lanes], self._bytes, [table, indices])

    def multiplied(self, total: ir.Value, vector: ir.Value, factor: ir.Value) -> ir.Value:
        """Return sums and the products of four unsigned bytes and four signed ones in each lane."""
        if not self.form.bytewise:
            return self._dot_by_words(total, vector, factor)
        if self.register >= self.width:
            return call_intrinsic(self.builder, BYTE_PRODUCTS[self.width], self.vector, [total, vector, factor])
        return self._dot_by_halves(total, vector, factor)

    def _dot_by_halves(self, *operands: ir.Value) -> ir.Value:
        """Return the same for vectors of two registers."""
        builder, half = self.builder, ir.VectorType(I32, self.register)

        def product(start: int) -> ir.Value:
            here = int_constants(range(start, start + self.register))
            parts = [builder.shuffle_vector(one, one, here) for one in operands]
            return call_intrinsic(builder, BYTE_PRODUCTS[self.register], half, parts)

        return builder.shuffle_vector(product(0), product(self.register), int_constants(range(self.form.lanes)))

    def _dot_by_words(self, sums: ir.Value, values: ir.Value, weights: ir.Value) -> ir.Value:
        """Return the same where no instruction multiplies bytes."""
        builder = self.builder
        for byte in range(QUAD):
            left, right = (int_constants([8 * bits] * self.form.lanes) for bits in (3 - byte, 3))
            code = builder.lshr(builder.shl(values, left), right)
            sums = builder.add(sums, builder.mul(code, builder.ashr(builder.shl(weights, left), right)))
        return sums

    def _added_one_by_one(self, sums: ir.Value, window: Bytes, indices: Bytes, weights: ir.Value) -> ir.Value:
        builder = self.builder
        for lane in range(self.form.lanes):
            total = Number(builder, builder.extract_element(sums, ir.Constant(I32, lane)))
            for slot in range(self.form.slots):
                number = self.form.slots * lane + slot
                # the second byte of a word is no index; that of an empty slot may be any, as its weight is 0
                value = window.narrow(indices[2 * number] & (QUARTER - 1)).wide(I32)
                weight = Number(builder, builder.extract_element(weights, ir.Constant(I32, number))).signed(I32)
                total = total + value * weight
            sums = builder.insert_element(sums, total.value, ir.Constant(I32, lane))
        return sums

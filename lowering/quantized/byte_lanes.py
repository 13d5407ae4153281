"""Products of bytes that a look-up chooses, added to vectors of integers, one lane an output.

Registers of a step for one row of the batch, with four bytes a lane (words are two and two, the upper byte 0):

    table   x[w] ... x[w + 15] | the same | ...      16 inputs in each quarter     vbroadcasti32x4
    chosen  table[i0] table[i1] table[i2] table[i3] | ...                          vpshufb
    sums    + chosen0 w0 + chosen1 w1 + chosen2 w2 + chosen3 w3                    vpdpbusd, or vpmaddwd and vpaddd

CPUs with VBMI choose among two vectors, x[w] ... x[w + 127], without a copy of either (vpermt2b). On ARM four registers
make a vector of 16 lanes, for which two registers of inputs are looked up in:

    tables  x[w] ... x[w + 15]    x[w + 16] ... x[w + 31]      less 128 where sdot takes both operands signed
    chosen  4 x tbl of both tables                             sums    + 4 x usdot, or sdot
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from ...dialect.attributes.activations import CODES
from ...kernels.byte_lookup import QUARTER, VECTOR, LookupForm
from ...kernels.byte_quads import QUAD
from ..cpu_target import ByteLookUp, ByteProducts, CpuTarget
from ..llvm.intrinsics import call_intrinsic
from ..llvm.register_parts import in_registers, part_of
from ..llvm.values import BYTE, I16, I32, Bytes, Number, Value
from ..llvm.vectors import Arithmetic, int_constants

LOOK_UP_IN_PAIRS = "llvm.x86.avx512.vpermi2var.qi.512"
PLACING = "llvm.x86.avx512.permvar.qi.512"
WORD_PRODUCTS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd"}

PORTABLE_LANES = 4
"""Outputs of a panel where each byte is looked up by itself."""


def lookup_form(target: CpuTarget) -> LookupForm:
    """Return the form of steps for a target."""
    bytewise, look_up = target.multiplies_bytes, target.look_up
    if look_up is None:
        return LookupForm(PORTABLE_LANES, bytewise=False)
    in_pairs = bytewise and target.looks_up_lines
    return LookupForm(look_up.panel or look_up.lanes, bytewise, in_pairs, look_up.reach)


class StepOperands(NamedTuple):
    """Indices of a step, in portable code their address, and its weights."""

    indices: ir.Value | Bytes
    weights: ir.Value


@dataclass(frozen=True)
class ByteLanes(Arithmetic):
    """The instructions of a step at the place of `builder`; a lane is a sum of 32 bits, or four bytes."""

    form: LookupForm
    target: CpuTarget

    @classmethod
    def at(cls, place: Value, form: LookupForm, target: CpuTarget) -> "ByteLanes":
        """Return the instructions of a CPU at a place; a vector may be several of its registers."""
        return cls(place.builder, form.lanes, form, target)

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
        size = self.form.step_bytes
        loaded = indices if self.target.look_up is None else indices.load(self._bytes, size)
        kind = self.vector if self.form.bytewise else ir.VectorType(I16, 2 * self.form.lanes)
        return StepOperands(loaded, weights.load(kind, size))

    def added(self, sums: ir.Value, window: Bytes, operands: StepOperands) -> ir.Value:
        """Return sums and the products of a step for the inputs from the address `window` on."""
        builder, form, (indices, weights) = self.builder, self.form, operands
        if isinstance(indices, Bytes):
            return self._added_one_by_one(sums, window, indices, weights)
        if form.in_pairs:
            return self.added_of_pair(sums, (self.inputs(window), self.inputs(window.after(VECTOR))), operands)
        chosen = self._looked_up(window, indices)
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

    def _looked_up(self, window: Bytes, indices: ir.Value) -> ir.Value:
        look_up = self.target.look_up
        assert look_up is not None
        quarters = [
            self.centered(window.after(start).load(ir.VectorType(BYTE, QUARTER), 1))
            for start in range(0, look_up.reach, QUARTER)
        ]
        return looked_up(self.builder, look_up, quarters, indices)

    def centered(self, inputs: ir.Value) -> ir.Value:
        """Return bytes of inputs as the instruction for products takes them."""
        kind = inputs.type
        assert isinstance(kind, ir.VectorType)
        assert isinstance(kind.element, ir.IntType)
        if not (self.form.bytewise and self.target.code_center):
            return inputs
        # the highest bit of each byte
        every = self.target.code_center * (((1 << kind.element.width) - 1) // (CODES - 1))
        return self.builder.xor(inputs, ir.Constant(kind, [every] * kind.count))

    def multiplied(self, total: ir.Value, vector: ir.Value, factor: ir.Value) -> ir.Value:
        """Return sums and the products of four unsigned bytes and four signed ones in each lane."""
        products = self.target.byte_products
        if not self.form.bytewise or products is None:
            return self._dot_by_words(total, vector, factor)
        return in_registers(
            self.builder, products.lanes, [total, vector, factor], lambda parts: self._register_sums(products, *parts)
        )

    def _register_sums(self, products: ByteProducts, total: ir.Value, vector: ir.Value, factor: ir.Value) -> ir.Value:
        builder, pair = self.builder, [vector, factor]
        if products.takes_bytes:
            pair = [builder.bitcast(one, ir.VectorType(BYTE, QUAD * products.lanes)) for one in pair]
        if products.name:
            return call_intrinsic(builder, products.name, total.type, [total, *pair])
        words = ir.VectorType(I16, QUAD * products.lanes)
        product = builder.mul(builder.sext(pair[0], words), builder.sext(pair[1], words))
        half, (add_words, add_lanes) = 2 * products.lanes, products.add_pairs
        sums = [
            call_intrinsic(builder, add_words, total.type, [part_of(builder, product, start, half)])
            for start in (0, half)
        ]
        return builder.add(total, call_intrinsic(builder, add_lanes, total.type, sums))

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


def looked_up(builder: ir.IRBuilder, look_up: ByteLookUp, quarters: Sequence[ir.Value], indices: ir.Value) -> ir.Value:
    """Return the bytes that indices choose among tables of 16, register by register."""
    size = QUAD * look_up.lanes
    repeated = int_constants(byte % QUARTER for byte in range(size))
    tables = [builder.shuffle_vector(one, one, repeated) for one in quarters]
    kind = ir.VectorType(BYTE, size)
    return in_registers(
        builder, size, [indices], lambda parts: call_intrinsic(builder, look_up.name, kind, [*tables, *parts])
    )

"""Loads and stores at computed addresses.

gather   x[i0] x[i1] ... x[i15]           vgatherdps, or a load a lane
scatter  y[r0] = v0, ..., where r >= 0    vscatterdps under a mask
"""

from llvmlite import ir

from .intrinsics import call_intrinsic
from .values import FLOAT, I1, I32, VOID, Floats, Ints
from .vectors import Lanes, broadcast


def gather(lanes: Lanes, pointer: Floats, indices: ir.Value) -> ir.Value:
    """Return the floats at `places`, a vector of i32, after `pointer`."""
    addresses = _addresses(lanes, pointer, indices)
    flags = ir.VectorType(I1, lanes.width)
    name = f"llvm.masked.gather.v{lanes.width}f32.v{lanes.width}p0"
    every, undefined = ir.Constant(flags, [1] * lanes.width), ir.Constant(lanes.vector, ir.Undefined)
    operands = [addresses, ir.Constant(I32, 4), every, undefined]
    return call_intrinsic(lanes.builder, name, lanes.vector, operands)


def scatter_rows(lanes: Lanes, values: ir.Value, y: Floats, rows: ir.Value) -> None:
    """Write each lane of `values` to its row of y; rows are a vector of i32, of which a negative one is no row."""
    addresses = _addresses(lanes, y, rows)
    is_row = lanes.builder.icmp_signed(">=", rows, lanes.ints(0))
    name = f"llvm.masked.scatter.v{lanes.width}f32.v{lanes.width}p0"
    call_intrinsic(lanes.builder, name, VOID, [values, addresses, ir.Constant(I32, 4), is_row])


def load_ints(lanes: Lanes, pointer: Ints, align: int = 4) -> ir.Value:
    """Return as many 32-bit integers at `pointer` as there are lanes."""
    return pointer.load(lanes.int_vector, align)


def _addresses(lanes: Lanes, pointer: Floats, indices: ir.Value) -> ir.Value:
    """Return the address of the float at each of `places`; llvmlite types a sum of addresses by its base."""
    builder = lanes.builder
    return builder.gep(broadcast(builder, pointer.value, lanes.width), [indices], source_etype=FLOAT)

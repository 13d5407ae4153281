"""Instructions of CPUs that few machines have, as functions of plain LLVM IR: what is made of them runs anywhere."""

from typing import Final

from xdsl.dialects.builtin import ModuleOp

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.kernels.formats import code_bits, code_bytes, code_halves
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.runtime.jit import missing_features
from redpebble.runtime.network import Network
from tests.support.few_bits import FewBits
from tests.support.few_bits_layers import constant_of, dense_constant_of, layer
from tests.support.lowering_modules import HERE, native, object_of

EXPAND: Final = """
define internal <64 x i8> @"software.expand"(<64 x i8> %data, <64 x i8> %else, <64 x i1> %mask) {
entry:
  %from = alloca <64 x i8>
  %to = alloca <64 x i8>
  store <64 x i8> %data, ptr %from
  store <64 x i8> %else, ptr %to
  %bits = bitcast <64 x i1> %mask to i64
  br label %loop
loop:
  %lane = phi i64 [0, %entry], [%next, %after]
  %taken = phi i64 [0, %entry], [%left, %after]
  %shifted = lshr i64 %bits, %lane
  %bit = and i64 %shifted, 1
  %is = icmp ne i64 %bit, 0
  br i1 %is, label %copy, label %after
copy:
  %source = getelementptr i8, ptr %from, i64 %taken
  %byte = load i8, ptr %source
  %target = getelementptr i8, ptr %to, i64 %lane
  store i8 %byte, ptr %target
  br label %after
after:
  %left = add i64 %taken, %bit
  %next = add i64 %lane, 1
  %more = icmp ult i64 %next, 64
  br i1 %more, label %loop, label %end
end:
  %result = load <64 x i8>, ptr %to
  ret <64 x i8> %result
}
"""
"""vpexpandb: bytes one after the other into the lanes of a mask; other lanes are those of a second vector."""

PRODUCTS: Final = """
define internal <16 x i32> @"software.products"(<16 x i32> %sum, <16 x i32> %left, <16 x i32> %right) {
  %unsigned = bitcast <16 x i32> %left to <64 x i8>
  %signed = bitcast <16 x i32> %right to <64 x i8>
  %a = zext <64 x i8> %unsigned to <64 x i32>
  %b = sext <64 x i8> %signed to <64 x i32>
  %p = mul <64 x i32> %a, %b
  %p0 = shufflevector <64 x i32> %p, <64 x i32> %p, <16 x i32> <PLACES0>
  %p1 = shufflevector <64 x i32> %p, <64 x i32> %p, <16 x i32> <PLACES1>
  %p2 = shufflevector <64 x i32> %p, <64 x i32> %p, <16 x i32> <PLACES2>
  %p3 = shufflevector <64 x i32> %p, <64 x i32> %p, <16 x i32> <PLACES3>
  %s0 = add <16 x i32> %p0, %p1
  %s1 = add <16 x i32> %p2, %p3
  %s = add <16 x i32> %s0, %s1
  %result = add <16 x i32> %sum, %s
  ret <16 x i32> %result
}
"""
"""vpdpbusd: the sum of four products of unsigned bytes and signed ones, added to each lane."""

SOFTWARE: Final = {"llvm.x86.avx512.mask.expand.v64i8": EXPAND, "llvm.x86.avx512.vpdpbusd.512": PRODUCTS}


def in_software(llvm_ir: str) -> str:
    """Return a module that calls functions of its own instead of these instructions."""
    for name, text in SOFTWARE.items():
        declared = [line for line in llvm_ir.splitlines() if line.startswith("declare") and f'"{name}"' in line]
        if not declared:
            continue
        for part in range(4):
            text = text.replace(f"PLACES{part}", ", ".join(f"i32 {lane}" for lane in range(part, 64, 4)))
        own = text.split('"')[1]
        llvm_ir = llvm_ir.replace(declared[0], text).replace(f'@"{name}"', f'@"{own}"')
    return llvm_ir


PLACES_BYTES: Final = CpuTarget.from_features("x86-64", f"{CpuTarget.avx512vnni().features},+avx512vbmi2,+popcnt")
"""A CPU that has these instructions."""


def placed_by_masks(case: FewBits, activation: ActivationAttr | None = None) -> Network:
    """A layer whose codes are placed by masks, by the instructions for it where this machine has them."""
    family = code_bytes.FAMILY if case.bits == 8 else code_bits.FAMILY
    return _made(layer(constant_of(case), case.bias, activation, family))


def stored_with_zeros(case: FewBits) -> Network:
    """The same layer with its zeros stored like all other codes."""
    return _made(layer(dense_constant_of(case), case.bias, None, code_halves.FAMILY))


def _made(module: ModuleOp) -> Network:
    if not missing_features(PLACES_BYTES):
        return native(module, PLACES_BYTES)
    program = lower(module, PLACES_BYTES)
    return Network(program, object_of(in_software(program.llvm_ir), next(iter(HERE.values()))), 1)

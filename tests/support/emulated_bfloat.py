"""Code for CPUs that multiply bfloat16, on any CPU: their two instructions are functions of plain LLVM here."""

from typing import Final

from xdsl.dialects.builtin import ModuleOp

from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.runtime.jit import host_target
from redpebble.runtime.network import Network
from tests.support.lowering_modules import object_of

INSTRUCTIONS: Final = CpuTarget.zen4().bfloat_products
assert INSTRUCTIONS is not None
PRODUCTS: Final = INSTRUCTIONS.name
ROUND: Final = INSTRUCTIONS.round_two


def _vector(text: str) -> str:
    """Return a constant of 16 words."""
    return "<" + ", ".join([text] * 16) + ">"


FUNCTIONS: Final = f"""
define <16 x i32> @bits_of(<16 x float> %x) alwaysinline {{
  %flushed = call <16 x float> @flushed(<16 x float> %x)
  %word = bitcast <16 x float> %flushed to <16 x i32>
  %last = lshr <16 x i32> %word, {_vector("i32 16")}
  %odd = and <16 x i32> %last, {_vector("i32 1")}
  %half = add <16 x i32> %odd, {_vector("i32 32767")}
  %sum = add <16 x i32> %word, %half
  %quiet = or <16 x i32> %word, {_vector("i32 4194304")}
  %number = fcmp ord <16 x float> %x, %x
  %chosen = select <16 x i1> %number, <16 x i32> %sum, <16 x i32> %quiet
  %bits = lshr <16 x i32> %chosen, {_vector("i32 16")}
  ret <16 x i32> %bits
}}
define <16 x float> @flushed(<16 x float> %x) alwaysinline {{
  %word = bitcast <16 x float> %x to <16 x i32>
  %exponent = and <16 x i32> %word, {_vector("i32 2139095040")}
  %sign = and <16 x i32> %word, {_vector("i32 -2147483648")}
  %none = icmp eq <16 x i32> %exponent, zeroinitializer
  %chosen = select <16 x i1> %none, <16 x i32> %sign, <16 x i32> %word
  %y = bitcast <16 x i32> %chosen to <16 x float>
  ret <16 x float> %y
}}
define <32 x i16> @{ROUND.replace(".", "_")}(<16 x float> %high, <16 x float> %low) {{
  %a = call <16 x i32> @bits_of(<16 x float> %low)
  %b = call <16 x i32> @bits_of(<16 x float> %high)
  %c = trunc <16 x i32> %a to <16 x i16>
  %d = trunc <16 x i32> %b to <16 x i16>
  %e = shufflevector <16 x i16> %c, <16 x i16> %d, <32 x i32> <{", ".join(f"i32 {n}" for n in range(32))}>
  ret <32 x i16> %e
}}
define <16 x float> @{PRODUCTS.replace(".", "_")}(<16 x float> %sum, <16 x i32> %x, <16 x i32> %w) {{
  %a = call <16 x float> @added(<16 x float> %sum, <16 x i32> %x, <16 x i32> %w)
  %u = shl <16 x i32> %x, {_vector("i32 16")}
  %v = shl <16 x i32> %w, {_vector("i32 16")}
  %b = call <16 x float> @added(<16 x float> %a, <16 x i32> %u, <16 x i32> %v)
  ret <16 x float> %b
}}
define <16 x float> @added(<16 x float> %sum, <16 x i32> %x, <16 x i32> %w) alwaysinline {{
  %u = and <16 x i32> %x, {_vector("i32 -65536")}
  %v = and <16 x i32> %w, {_vector("i32 -65536")}
  %a = bitcast <16 x i32> %u to <16 x float>
  %b = bitcast <16 x i32> %v to <16 x float>
  %c = call <16 x float> @flushed(<16 x float> %a)
  %d = call <16 x float> @flushed(<16 x float> %b)
  %e = fmul <16 x float> %c, %d
  %f = fadd <16 x float> %sum, %e
  %y = call <16 x float> @flushed(<16 x float> %f)
  ret <16 x float> %y
}}
"""
"""Denormal numbers are zeros, in and out; sums are rounded to the nearest."""


def emulated(module: ModuleOp) -> Network:
    """Return a module as code for Zen 4 that runs here."""
    program = lower(module, CpuTarget.zen4())
    lines = [line for line in program.llvm_ir.splitlines() if not line.startswith("declare") or "bf16" not in line]
    text = "\n".join([*lines, FUNCTIONS])
    for name in (PRODUCTS, ROUND):
        text = text.replace(f'@"{name}"', f"@{name.replace('.', '_')}")
    return Network(program, object_of(text, host_target()))

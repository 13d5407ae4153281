"""Ceilings of a machine's ports and caches: native loops that do nothing else."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..lowering.cpu_target import CpuTarget
from ..runtime.jit import MachineCode, emit_object, host_target, load_object
from ..runtime.memory import address_of, aligned_bytes
from ..verification.measuring import Budget, Call, interleave

VECTORS: Final = 4
"""Batch columns of a kernel's row, in vectors: a weight is broadcast once for so many multiply-adds."""

CHAINS: Final = 4
"""Rows in flight, each with sums of its own, so that no multiply-add waits for the one before."""

WEIGHTS: Final = 36
"""Weights in one pass of the loop, which is unrolled so far that counting costs nothing."""

FEATURES: Final = 64
"""Places from which operands come: 16 KiB with vectors of 16 floats, as scattered as those of a sparse row."""

TURNS: Final = 500
"""Passes of the loop over ports: tens of microseconds."""

IN_FLIGHT: Final = 12
"""Sums of the loop over registers: more than the multiply-adds that units of five cycles have under way."""

READ_BYTES: Final = {"L1": 32 << 10, "L2": 1 << 20, "L3": 24 << 20, "DRAM": 1 << 29}
PASS_BYTES: Final = 1 << 25


class Loop(NamedTuple):
    """A native loop, ready to be called, and its work: floating-point operations or bytes."""

    call: Call
    work: float


class NativeLoops:
    """The loops for this machine's widest vectors."""

    def __init__(self) -> None:
        """Compile them."""
        self.target = host_target()
        arities = {"ports": (2, 1), "multiply": (2, 1), "read": (2, 2)}
        self.code: MachineCode = load_object(emit_object(_loops(self.target), self.target), arities)
        self.sums = aligned_bytes(4096)
        self.operands = aligned_bytes(1 << 16)
        self.operands[:] = 0

    def registers(self) -> Loop:
        """Return multiply-adds whose operands are in registers: no code does more of them."""
        work = 2.0 * TURNS * WEIGHTS * VECTORS * self.target.lanes
        return Loop(lambda: self._run("multiply", self.operands, TURNS), work)

    def ports(self) -> Loop:
        """Return the bound of kernels of single rows: a broadcast and four multiply-adds from memory, all in L1."""
        work = 2.0 * TURNS * WEIGHTS * VECTORS * self.target.lanes
        return Loop(lambda: self._run("ports", self.operands, TURNS), work)

    def reads(self, size: int) -> Loop:
        """Return reading `size` bytes again and again."""
        content = aligned_bytes(size)
        content[:] = 0
        passes = max(1, PASS_BYTES // size)
        return Loop(lambda: self._run("read", content, size, passes), float(size * passes))

    def _run(self, name: str, content: NDArray[np.uint8], *sizes: int) -> None:
        self.code.functions[name](address_of(content), address_of(self.sums), *sizes)


def measure_ceilings(budget: Budget) -> dict[str, float]:
    """Return the best of some rounds on one thread: GFLOP/s of `fma` and `ports`, GB/s by where the data lie.

    `fma` are multiply-adds of registers.
    """
    loops = NativeLoops()
    every = {"fma": loops.registers(), "ports": loops.ports()} | {
        name: loops.reads(size) for name, size in READ_BYTES.items()
    }
    measured = {name: interleave({name: loop.call}, budget)[name] for name, loop in every.items()}
    return {name: loop.work / measured[name].min_us / 1e3 for name, loop in every.items()}


def _loops(target: CpuTarget) -> str:
    vector = f"<{target.lanes} x float>"
    sums = {(chain, index): f"%s{chain}_{index}" for chain in range(CHAINS) for index in range(VECTORS)}
    first = list(sums.values())
    body = [line for row in range(WEIGHTS) for line in _row(row, target.lanes, sums)]
    place = [
        "%turn = and i64 %i, 63",
        f"%first = mul i64 %turn, {WEIGHTS}",
        f"%behind = getelementptr {vector}, ptr %in, i64 {FEATURES * VECTORS}",
        "%weights = getelementptr float, ptr %behind, i64 %first",
    ]
    ends = dict(zip(first, sums.values(), strict=True))
    return f"""
declare {vector} @llvm.fma.v{target.lanes}f32({vector}, {vector}, {vector})
{_turns_loop("ports", vector, ends, [*place, *body])}
{_multiply_loop(target.lanes)}
{_read_loop(target.lanes)}"""


def _turns_loop(
    name: str,
    vector: str,
    sums: Mapping[str, str],
    body: Sequence[str],
    before: str = "",
    start: str = "zeroinitializer",
) -> str:
    """Return `void name (in, out, turns)`: sums by their names at the begin of a turn and at its end, stored behind."""
    phis = [f"{first} = phi {vector} [ {start}, %entry ], [ {last}, %loop ]" for first, last in sums.items()]
    stores = [
        f"%o{number} = getelementptr {vector}, ptr %out, i64 {number}\nstore {vector} {last}, ptr %o{number}"
        for number, last in enumerate(sums.values())
    ]
    begin, middle, end = ("\n".join(lines) for lines in (phis, body, stores))
    return f"""
define void @{name}(ptr %in, ptr %out, i64 %turns) {{
entry:
  {before}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  {begin}
  {middle}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %turns
  br i1 %more, label %loop, label %done
done:
  {end}
  ret void
}}
"""


def _row(row: int, lanes: int, sums: dict[tuple[int, int], str]) -> list[str]:
    """Return a weight's broadcast and its multiply-adds; `sums` then holds the names of the new sums."""
    vector = f"<{lanes} x float>"
    lines = [
        f"%at{row} = getelementptr float, ptr %weights, i64 {row}",
        f"%one{row} = load float, ptr %at{row}",
        f"%low{row} = insertelement {vector} poison, float %one{row}, i64 0",
        f"%w{row} = shufflevector {vector} %low{row}, {vector} poison, <{lanes} x i32> zeroinitializer",
    ]
    for index in range(VECTORS):
        # 37 has no factor in common with the places, so that neighbours lie far apart
        index_in_memory, name, chain = row * 37 % FEATURES * VECTORS + index, f"{row}_{index}", (row % CHAINS, index)
        lines += [
            f"%p{name} = getelementptr {vector}, ptr %in, i64 {index_in_memory}",
            f"%x{name} = load {vector}, ptr %p{name}",
            f"%t{name} = call {vector} @llvm.fma.v{lanes}f32({vector} %w{row}, {vector} %x{name}, "
            f"{vector} {sums[chain]})",
        ]
        sums[chain] = f"%t{name}"
    return lines


def _multiply_loop(lanes: int) -> str:
    """Return `void multiply (in, out, turns)`, which multiplies what it read before."""
    vector, sums = f"<{lanes} x float>", [f"%s{number}" for number in range(IN_FLIGHT)]
    last, body = list(sums), list[str]()
    for number in range(WEIGHTS * VECTORS):
        turn = number % IN_FLIGHT
        multiplied = f"{vector} {last[turn]}, {vector} %x, {vector} %x"
        body.append(f"%t{number} = call {vector} @llvm.fma.v{lanes}f32({multiplied})")
        last[turn] = f"%t{number}"
    ends = dict(zip(sums, last, strict=True))
    return _turns_loop("multiply", vector, ends, body, f"%x = load {vector}, ptr %in", "%x")


def _read_loop(lanes: int) -> str:
    """Return `void read (in, out, bytes, passes)`, which reads 8 vectors a turn into sums of their own."""
    vector = f"<{4 * lanes} x i8>"
    loads = "\n".join(
        f"  %a{v} = getelementptr {vector}, ptr %base, i64 {v}\n  %x{v} = load {vector}, ptr %a{v}\n"
        f"  %t{v} = or {vector} %s{v}, %x{v}"
        for v in range(8)
    )
    phis = "\n".join(f"  %s{v} = phi {vector} [ zeroinitializer, %pass ], [ %t{v}, %loop ]" for v in range(8))
    stores = "\n".join(
        f"  %p{v} = getelementptr {vector}, ptr %out, i64 {v}\n  store {vector} %t{v}, ptr %p{v}" for v in range(8)
    )
    return f"""
define void @read(ptr %in, ptr %out, i64 %bytes, i64 %passes) {{
entry:
  %vectors = udiv i64 %bytes, {4 * lanes}
  br label %pass
pass:
  %turn = phi i64 [ 0, %entry ], [ %following, %after ]
  br label %loop
loop:
  %at = phi i64 [ 0, %pass ], [ %next, %loop ]
{phis}
  %base = getelementptr {vector}, ptr %in, i64 %at
{loads}
  %next = add i64 %at, 8
  %more = icmp ult i64 %next, %vectors
  br i1 %more, label %loop, label %after
after:
{stores}
  %following = add i64 %turn, 1
  %again = icmp ult i64 %following, %passes
  br i1 %again, label %pass, label %done
done:
  ret void
}}
"""

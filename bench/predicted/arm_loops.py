"""Inner loops on ARM by LLVM's scheduling models: those of our kernels, and others that were considered.

    python -m redpebble.bench.predicted.arm_loops [--mca llvm-mca-22] [--write]

A loop of our kernels is the block with most products of the code that the compiler emits, of others it is written here
in assembly. A product with a zero is of no use: of blocks of neighbouring inputs, and of outputs that have to share
inputs, a random mask needs a part. Cycles are for loops over the first-level cache, and predicted.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import typer
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from ...dialect.attributes.codes import CodesAttr
from ...dialect.attributes.kernels import KernelAttr
from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.elementwise import ConvertOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.quantized_layers import QuantizedLayer
from ...dialect.symbolic_sizes import DIMS, NAME
from ...dialect.tensors import DYNAMIC, f32_tensor
from ...kernels.byte_times import LOOKUP, QUADS, SCATTERED, SHARED
from ...kernels.formats import bfloat_pairs, count_blocks
from ...lowering.cpu_target import CpuTarget
from ...lowering.driver import lower
from ...lowering.kernels.timed_kernels import RepeatedKernel, repeated_kernels
from ...passes.tiles.form_tiles import FormTiles
from ...runtime.jit import emit_assembly
from ...sparse.csr import CscMatrix
from ..results.page_tables import PageTable, Write
from .blocks import Block as BlockName
from .blocks import Model, cycles_of_regions, marked
from .predict_rows import ARM, Mca

PAGE: Final = Path("docs/arm.md")
EMITTED: Final = PageTable("inner loops", ("inner loop", "instructions", "products"), PAGE, of_machine=False)
CONSIDERED: Final = PageTable("instructions considered", ("inner loop", "products", "cycles"), PAGE, of_machine=False)

CPUS: Final[Mapping[str, Model]] = {
    "Neoverse V2": Model(ARM, "neoverse-v2", "+i8mm,+bf16,+sve2"),
    "Neoverse N2": Model(ARM, "neoverse-n2", "+i8mm,+bf16"),
    "Neoverse N1": Model(ARM, "neoverse-n1", "+i8mm,+bf16"),
}
"""The N1 has neither i8mm nor bf16, so its model gets other loops alone."""

PRODUCTS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("usdot", "sdot"), 16),
    **dict.fromkeys(("smull", "smull2", "bfdot", "bfmlalb", "bfmlalt"), 8),
    **{"bfmlalb": 4, "bfmlalt": 4, "fmla": 4, "usmmla": 32, "bfmmla": 16},
}
"""Products that an instruction makes of registers of 16 bytes."""

JUMPS: Final = ("b ", "b.", "cb", "tbz", "tbnz")

NEWER: Final = {"usdot", "bfdot"}

V2: Final = "Neoverse V2"

DENSITIES: Final = (0.1, 0.2, 0.3)

TARGETS: Final[Mapping[str, CpuTarget]] = {
    "smull": CpuTarget.arm64(),
    "sdot": CpuTarget.arm64_dot(),
    "usdot": CpuTarget.arm64_i8mm(),
}

BYTES: Final[Mapping[str, str]] = {
    "look-ups": LOOKUP,
    "quads of neighbours": QUADS,
    "scattered quads": SCATTERED,
    **{f"quads that {share} outputs share": family for share, family in SHARED.items()},
}
"""Kernels of layers on codes."""


class Loop(NamedTuple):
    """The block with most products of some code."""

    instructions: tuple[str, ...]
    block: BlockName

    @property
    def products(self) -> int:
        """The products of a turn."""
        return sum(PRODUCTS.get(one.split()[0], 0) for one in self.instructions)

    @property
    def is_newer(self) -> bool:
        """Whether it has instructions that a Neoverse N1 lacks."""
        return any(one.split()[0] in NEWER for one in self.instructions)


def layer_of_bytes(family: str) -> ModuleOp:
    """Return a layer of 96 inputs and 48 outputs on codes, which a kernel computes from 33 rows on."""
    rng, codes = np.random.default_rng(0), CodesAttr("u8", 0.02, 128)
    weight = np.full((96, 48), 7, np.float32)
    weight[rng.random(weight.shape) < 0.8] = 0
    block = Block(arg_types=[f32_tensor((DYNAMIC, len(weight)))])
    constants = [SparseConstantOp(CscMatrix.from_dense(weight))]
    rows = [ConstantOp(np.ones(weight.shape[1], np.float32)) for _ in range(2)]
    w, b, m = (one.results[0] for one in (*constants, *rows))
    rounded = ConvertOp(block.args[0], codes)
    linear = LinearOp.of_codes(rounded.result, QuantizedLayer("fc", w, b, m, codes, None), None)
    if family != LOOKUP:
        linear.kernel = KernelAttr({1: LOOKUP, 33: family}, "", blocks={family: 1})
    block.add_ops([*constants, *rows, rounded, linear, ReturnOp(linear.result)])
    names = DictionaryAttr({NAME: StringAttr("x"), DIMS: ArrayAttr([StringAttr("n"), StringAttr("k")])})
    types = ([one.type for one in block.args], [linear.result.type])
    module = ModuleOp([FuncOp("main", types, Region(block), arg_attrs=ArrayAttr([names]))])
    FormTiles().apply(Context(), module)
    return module


def loop_of(llvm_ir: str, target: CpuTarget, functions: str = "") -> Loop:
    """Return the block of a module, or of its `functions`, that makes most products in a turn, the shortest one."""
    found: list[Loop] = []
    names: dict[str, BlockName] = {}
    inside: list[str] | None = None
    for line in marked(emit_assembly(llvm_ir, target), names):
        if mark := re.search(r"LLVM-MCA-(BEGIN|END) ?(\w*)", line):
            if mark[1] == "END" and inside is not None:
                found.append(Loop(tuple(inside), [*names.values()][-1]))
            inside = [] if mark[1] == "BEGIN" else None
        elif inside is not None and re.match(r"\t[a-z]", line):
            inside.append(line.strip().replace("\t", " "))
    return max(
        (one for one in found if re.match(functions, one.block[0])),
        key=lambda loop: (loop.products, -len(loop.instructions)),
    )


def cycles(loop: Sequence[str], cpu: str, mca: str) -> float:
    """Return the cycles of a turn of a loop on a CPU."""
    lines = [one for one in loop if not one.startswith(JUMPS)]
    text = "\n".join(["// LLVM-MCA-BEGIN loop", *lines, "// LLVM-MCA-END", ""])
    return cycles_of_regions(text, CPUS[cpu], mca)["loop"]


class Emitted(NamedTuple):
    """A kernel of ours: the name of its loop, its code, and the functions that have the loop."""

    name: str
    llvm_ir: str
    target: CpuTarget
    functions: str = ""

    def loop(self, more: str = "") -> Loop:
        """Return its loop, on a CPU with more features."""
        features = ",".join(filter(None, (self.target.features, more)))
        return loop_of(self.llvm_ir, replace(self.target, features=features), self.functions)


def emitted_loops() -> Iterator[Emitted]:
    """Yield the loops that our code has for layers of bytes and of floats."""
    for kind, family in BYTES.items():
        for instruction, target in TARGETS.items():
            functions = "quantized" if family == LOOKUP else "quads|scattered"
            yield Emitted(f"{kind}, `{instruction}`", lower(layer_of_bytes(family), target).llvm_ir, target, functions)
    for family, instruction in ((count_blocks.FAMILY.name, "fmla"), (bfloat_pairs.FAMILY.name, "bfdot")):
        target = TARGETS["usdot"]
        kernel = RepeatedKernel(family, 64)
        yield Emitted(f"`{family}`, `{instruction}`", repeated_kernels([kernel], target), target)


@dataclass(frozen=True)
class Considered:
    """A loop that was considered: its code, and the inputs and outputs of a block whose products it makes at once."""

    name: str
    loop: Sequence[str]
    inputs: int = 1
    outputs: int = 1

    def useful(self, density: float) -> float:
        """Return the share of products that are not with zeros, of blocks of a random mask that have one at all."""
        return density / (1 - (1 - density) ** (self.inputs * self.outputs))


def considered() -> list[Considered]:
    """Return the loops for two outputs by `usmmla` and `bfmmla`, which multiply two rows by two columns, and others."""
    return [
        Considered("`usmmla`, blocks of 8 neighbours by 2 outputs, 32 rows", _of_neighbours("usmmla", "16b"), 8, 2),
        Considered("`usmmla`, look-ups of the inputs of 2 outputs, 4 rows", _looked_up(), 1, 2),
        Considered("`bfmlalb`, `bfmlalt`, 2 outputs, 32 columns", _long_products()),
        Considered("`bfmmla`, blocks of 4 neighbours by 2 outputs, 32 columns", _of_neighbours("bfmmla", "8h"), 4, 2),
        Considered("`bfmmla`, the inputs of 2 outputs, 32 columns", _met_by_four(), 1, 2),
    ]


def _of_neighbours(instruction: str, kind: str) -> list[str]:
    """The weights of a block in a register; of each two rows or columns its inputs lie in another one."""
    loop = ["ldr q28, [x2], #16", "ldrh w9, [x3], #2", "add x10, x0, x9, lsl #3"]
    for part in range(0, 16, 2):
        loop.append(f"ldp q26, q27, [x10, #{16 * part}]")
        loop += [f"{instruction} v{part + half}.4s, v{26 + half}.{kind}, v28.{kind}" for half in range(2)]
    return [*loop, "subs x4, x4, #1"]


def _looked_up() -> list[str]:
    """A panel of 4 pairs of outputs: 8 inputs of each pair out of 32, for two rows at once."""
    loop: list[str] = [f"ldr q{16 + pair}, [x3, #{16 * pair}]" for pair in range(4)]
    loop += [f"ldr q{20 + pair}, [x2, #{16 * pair}]" for pair in range(4)]
    for rows in range(2):
        loop += [f"ldp q24, q25, [x{10 + rows}]", f"ldp q26, q27, [x{12 + rows}]"]
        for pair in range(4):
            loop.append(f"tbl v28.16b, {{ v24.16b, v25.16b, v26.16b, v27.16b }}, v{16 + pair}.16b")
            loop.append(f"usmmla v{4 * rows + pair}.4s, v28.16b, v{20 + pair}.16b")
    return [*loop, "add x2, x2, #64", "add x3, x3, #64", "subs x4, x4, #1"]


def _long_products() -> list[str]:
    """Two inputs of each of two outputs; even columns and odd ones are multiplied by one weight."""
    loop: list[str] = []
    for row in range(2):
        loop.append(f"ldr s{14 + row}, [x2, #{4 * row}]")
        for one in range(2):
            loop += [f"ldrh w9, [x3, #{4 * row + 2 * one}]", "add x10, x0, x9, lsl #2"]
            for part in range(0, 4, 2):
                loop.append(f"ldp q12, q13, [x10, #{16 * part}]")
                for half, (place, kind) in ((half, own) for half in range(2) for own in enumerate("bt")):
                    total = 16 * row + 2 * (part + half) + place
                    total = total if row else total % 12
                    loop.append(f"bfmlal{kind} v{total}.4s, v{12 + half}.8h, v{14 + row}.h[{one}]")
    return [*loop, "add x2, x2, #8", "add x3, x3, #8", "subs x4, x4, #1"]


def _met_by_four() -> list[str]:
    """Four inputs that one of two outputs has; they are unpacked so that those of a column are neighbours."""
    loop = ["ldr q28, [x2], #16"]
    for one in range(4):
        loop += [f"ldrh w9, [x3, #{2 * one}]", f"add x{10 + one}, x0, x9, lsl #2"]
    for part in range(4):
        loop += [f"ldr q{16 + one}, [x{10 + one}, #{16 * part}]" for one in range(4)]
        for half in (1, 2):
            loop += [f"zip{half} v{20 + half}.8h, v16.8h, v17.8h", f"zip{half} v{23 + half}.8h, v18.8h, v19.8h"]
            for place in (1, 2):
                loop.append(f"zip{place} v27.4s, v{20 + half}.4s, v{23 + half}.4s")
                loop.append(f"bfmmla v{4 * part + 2 * half + place - 3}.4s, v27.8h, v28.8h")
    return [*loop, "add x3, x3, #8", "subs x4, x4, #1"]


def main(*, mca: Mca = "llvm-mca-22", write: Write = False) -> None:
    """Print the tables."""
    random: list[tuple[Considered, float]] = []
    same = Counter[bool]()
    with EMITTED.rows(*(f"cycles, {cpu}" for cpu in CPUS), "cycles a product, V2", write=write) as add:
        for one in emitted_loops():
            loop = one.loop()
            same[one.loop("+sve2").instructions == loop.instructions] += 1
            known = {cpu: cycles(loop.instructions, cpu, mca) for cpu in CPUS if not loop.is_newer or "N1" not in cpu}
            first = known[V2]
            cells = [f"{known[cpu]:.1f}" if cpu in known else "" for cpu in CPUS]
            add(one.name, len(loop.instructions), loop.products, *cells, f"{first / loop.products:.3f}")
            if "share" not in one.name and "smull" not in one.name and "sdot" not in one.name.replace("usdot", ""):
                random.append((Considered(one.name, loop.instructions, 4 if "neighbours" in one.name else 1), first))
        add(f"the same instructions with SVE2: {same[True]} of {same.total()}", *[""] * (len(CPUS) + 3))
    random += [(one, cycles(one.loop, V2, mca)) for one in considered()]
    with CONSIDERED.rows(*(f"useful one, {1 - density:.0%} zeros" for density in DENSITIES), write=write) as add:
        for one, turn in random:
            products = Loop(tuple(one.loop), ("", "")).products
            costs = (turn / products / one.useful(density) for density in DENSITIES)
            add(one.name, products, f"{turn:.1f}", *(f"{cost:.3f}" for cost in costs))


if __name__ == "__main__":
    typer.run(main)

"""One code for networks that differ only in weights: what code depends on, and the constants of another network for it.

Kernels read weights, indices and the borders of shares through a table of addresses, so that the code of an encoder's
layer serves the next one as it is. To emit and to compile it takes as long as all else together.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp

from ..dialect.ops.tile import TileOp
from ..dialect.reports.module_report import module_report
from ..dialect.shape_inference import symbolic_shapes
from .cpu_target import CpuTarget
from .driver import Lowering, function_of, steps_of, tensors_of
from .llvm.call_tables import Packing, Recipe, packed_in_threads
from .program import Program
from .tiles.tile_loop import tiled_rows


class ConstantPacking(NamedTuple):
    """Packing of arrays of a program: of which op of the function (-1: of none), and how many they are."""

    pack: Packing
    op: int
    array_count: int


@dataclass(frozen=True)
class SharedCode:
    """A program without its constants and its code, and how other networks of the same `code_key` pack theirs."""

    program: Program
    packings: tuple[ConstantPacking, ...]

    def program_of(self, module: ModuleOp) -> Program | None:
        """Return the program of a module of the same key; None where its packed weights are not as many arrays."""
        func = function_of(module)
        ops = list(func.walk())
        constants = packed_in_threads([Recipe(pack, None if op < 0 else ops[op], n) for pack, op, n in self.packings])
        if constants is None:
            return None
        inputs, outputs = tensors_of(func, symbolic_shapes(func))
        return replace(
            self.program,
            inputs=inputs,
            outputs=outputs,
            constants=tuple(constants),
            steps=tuple(
                replace(step, tiled=replace(tiled_rows(op), shared=step.tiled.shared))
                if step.tiled is not None and isinstance(op, TileOp)
                else step
                for step, op in zip(self.program.steps, [*steps_of(func), None], strict=False)
            ),
            report=module_report(module),
        )


def lower_to_share(module: ModuleOp, target: CpuTarget) -> tuple[Program, SharedCode]:
    """Return the program of a module as `lower` does, and what others with the same code need.

    Raises:
        ValueError: an op has no code, or a size cannot be computed from those of the inputs.
    """
    func = function_of(module)
    lowering = Lowering(func, target)
    program = lowering.program(module_report(module))
    numbers = {op: number for number, op in enumerate(func.walk())}
    packings = (
        ConstantPacking(pack, -1 if op is None else numbers[op], count)
        for pack, op, count in lowering.constants.recipes
    )
    return program, SharedCode(replace(program, llvm_ir="", constants=()), tuple(packings))

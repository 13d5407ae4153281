"""One code for networks that differ only in weights: what code depends on, and the constants of another network for it.

Kernels read weights, indices and the borders of shares through a table of addresses, so that the code of an encoder's
layer serves the next one as it is. To emit and to compile it takes as long as all else together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.network import NetworkOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.reports.layer_report import module_report
from redpebble.dialect.shape_inference import symbolic_shapes
from redpebble.dialect.tensors import shape_of
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import Lowering, function_of, steps_of, tensors_of, timed
from redpebble.lowering.llvm.call_tables import Packing, contiguous
from redpebble.lowering.program import Program
from redpebble.lowering.tiles.thread_shares import Borders, even_borders
from redpebble.lowering.tiles.tile_loop import least_rows, same_from


class ConstantPacking(NamedTuple):
    """How arrays of a program are packed: of which op of the function (-1: of none), and how many they are."""

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
        constants: list[NDArray[np.generic]] = []
        for pack, op, count in self.packings:
            arrays = pack(None if op < 0 else ops[op])
            if len(arrays) != count:
                return None
            constants += contiguous(arrays)
        inputs, outputs = tensors_of(func, symbolic_shapes(func))
        return replace(
            self.program,
            inputs=inputs,
            outputs=outputs,
            constants=tuple(constants),
            steps=tuple(
                replace(step, tiled=timed(step.tiled, op))
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


def code_key(module: ModuleOp) -> str | None:
    """Return all of a module that its code depends on; None where that includes the weights, as in depth-first code.

    Modules of one key have the same LLVM IR. Constants count by their shapes, kernels by their families, borders of
    shares by which of them are equal, times by the least rows of a tile that follow from them.
    """
    func = function_of(module)
    shapes = symbolic_shapes(func)
    key = _Key(dict.fromkeys(_even_borders(func)))
    key.lines.append(repr([shapes[value] for value in func.args]))
    for op in func.walk():
        is_fixed = isinstance(op, TileOp) and (op.depth_first is not None or op.dead_rows is not None)
        if is_fixed or isinstance(op, NetworkOp):
            return None
        key.add(op)
    return "\n".join(key.lines)


def _even_borders(func: FuncOp) -> list[Borders]:
    """Return the borders that follow from shapes: those of a layer may be equal to them."""
    shares = sorted({op.schedule.shares.data for op in func.walk() if isinstance(op, TileOp)})
    features = sorted({(shape_of(value) or (1,))[-1] for op in func.walk() for value in (*op.operands, *op.results)})
    return [even_borders(feature, share) for share in shares for feature in features if feature > 0]


class _Key:
    """The lines of a key, one an op."""

    def __init__(self, borders: dict[Borders, None]) -> None:
        self.lines: list[str] = []
        self._borders = borders
        self._numbers: dict[SSAValue, int] = {}

    def add(self, op: Operation) -> None:
        """Add an op, its operands by number."""
        operands = [self._numbers[value] for value in op.operands]
        arguments = [value for region in op.regions for block in region.blocks for value in block.args]
        for value in (*op.results, *arguments):
            self._numbers[value] = len(self._numbers)
        is_constant = isinstance(op, ConstantOp | SparseConstantOp)
        types = [str(shape_of(value) if is_constant else value.type) for value in (*op.results, *arguments)]
        self.lines.append(repr((op.name, operands, types, self._properties(op))))

    def _properties(self, op: Operation) -> Sequence[object]:
        match op:
            case ConstantOp() | SparseConstantOp() | FuncOp():
                return ()
            case TileOp():
                schedule = op.schedule
                shared = sorted(schedule.shared.by_width)
                return (str(op.rows_of), schedule.shares.data, shared, least_rows(op), same_from(op))
            case LinearOp():
                kernel = None if op.kernel is None else op.kernel.choices
                return (str(op.activation), kernel, self._number_of(op.borders))
            case _:
                return sorted((name, str(value)) for name, value in op.properties.items())

    def _number_of(self, borders: Borders) -> int:
        """Return a number that equal borders have in common."""
        if not borders:
            return -1
        self._borders.setdefault(borders)
        return list(self._borders).index(borders)

"""Machine code of a part for this machine, from its text and numbers."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from ...lowering.cpu_target import CpuTarget
from ...lowering.driver import lower
from ...lowering.tiles.tile_memory import features_of
from ...passes.kernels.choose_kernels import ChooseKernels
from ...passes.kernels.choose_quantized_kernels import ChooseQuantizedKernels
from ...passes.kernels.discover_structure import DiscoverStructure
from ...passes.runner import context, run_passes
from ...runtime.jit import emit_object
from ...runtime.store.artefact import Artefact
from ..errors import PartError
from ..native.code_blocks import zero_of
from ..native.feature_blocks import heights_of, lower_blocks, tiles_of
from .module_text import module_of, put_constants
from .part_file import Part
from .steps import Call


def compile_blocks(part: Part, target: CpuTarget, width: int) -> Artefact:
    """Return the functions of a part for blocks of `width` samples.

    Raises:
        PartError: a step calls a function with what does not fit it.
    """
    module = _module(part)
    check_calls(part, module)
    program = lower_blocks(module, target, width)
    return Artefact(program, emit_object(program.llvm_ir, target))


def compile_whole(part: Part, target: CpuTarget) -> Artefact:
    """Return the network of a part that holds all of it."""
    program = lower(_module(part), target)
    return Artefact(program, emit_object(program.llvm_ir, target))


def compile_nodes(part: Part, target: CpuTarget) -> dict[str, Artefact]:
    """Return the functions of a part that owns nodes, by name."""
    module = module_of(part.text, context())
    put_constants(module, part.constants)
    artefacts: dict[str, Artefact] = {}
    for func in [op for op in module.body.block.ops if isinstance(op, FuncOp)]:
        func.detach()
        alone = ModuleOp([func])
        run_passes(context(), alone, (DiscoverStructure(), ChooseKernels()))
        program = lower(alone, target)
        artefacts[func.sym_name.data] = Artefact(program, emit_object(program.llvm_ir, target))
    return artefacts


def _module(part: Part) -> ModuleOp:
    """Return the module of a part, with what is found in its weights, and kernels chosen for them."""
    module = module_of(part.text, context())
    put_constants(module, part.constants)
    # not by `redpebble.pipeline`, whose import brings the frontend and all passes to ranks that need neither
    run_passes(context(), module, (DiscoverStructure(), ChooseQuantizedKernels(), ChooseKernels()))
    return module


# Whether the calls of a part fit its functions: no function reads or writes rows behind the end of a buffer.
#
# The check needs the module, so it is done where the module is compiled; code from the cache was checked then.


class Operand(NamedTuple):
    """Operand of a function: so many features, in a buffer of `height` features, or row-major where that is 0."""

    features: int
    height: int
    zero: int | None
    """The code of 0, see `Buffer`."""


def check_calls(part: Part, module: ModuleOp) -> None:
    """Check the operands of all calls against the functions of the module.

    Raises:
        PartError: names the step and the operand.
    """
    functions = dict(_functions(module))
    for number, step in enumerate(part.steps):
        if not isinstance(step, Call):
            continue
        expected = functions.get(step.function)
        if expected is None:
            raise PartError(f"the part is damaged: step {number} calls {step.function!r}, which does not exist")
        if len(expected) != len(step.operands):
            raise PartError(
                f"the part is damaged: step {number}: expected {len(expected)} operands, got {len(step.operands)}"
            )
        for operand, (features, height, zero) in zip(step.operands, expected, strict=True):
            buffer = part.buffers[operand.buffer]
            # a row-major buffer is read from its first feature on, and all of it
            first, whole = (operand.row, height) if height else (0, features)
            fits = buffer.features == whole and first + features <= whole and (height > 0) == (buffer.port < 0)
            if not fits or (not height and operand.row):
                rows = f"rows {operand.row} to {operand.row + features} of buffer {operand.buffer}"
                found = f"{rows}, which has {buffer.features}"
                raise PartError(f"the part is damaged: step {number}: expected rows of {whole}, got {found}")
            if buffer.zero != zero:
                found = f"{buffer.zero} in buffer {operand.buffer}"
                raise PartError(f"the part is damaged: step {number}: expected the code {zero} of 0, got {found}")


def _functions(module: ModuleOp) -> Iterator[tuple[str, Sequence[Operand]]]:
    """Yield the name of each function, and its arguments and results."""
    for func, tile in tiles_of(module):
        heights = heights_of(func, tile)
        pairs = zip((*tile.body.block.args, *tile.yielded), heights, strict=True)
        yield func.sym_name.data, [Operand(features_of(value), height, zero_of(value)) for value, height in pairs]

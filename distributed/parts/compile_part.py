"""Machine code of a part for this machine, from its text and numbers."""

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from ...lowering.cpu_target import CpuTarget
from ...lowering.driver import lower
from ...passes.kernels.choose_kernels import ChooseKernels
from ...passes.kernels.discover_structure import DiscoverStructure
from ...passes.runner import context, run_passes
from ...runtime.jit import emit_object
from ...runtime.store.artefact import Artefact
from ..native.feature_blocks import lower_blocks
from .check_calls import check_calls
from .module_text import module_of, put_constants
from .part_file import Part


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
    run_passes(context(), module, (DiscoverStructure(), ChooseKernels()))
    return module

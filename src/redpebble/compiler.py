"""The page to read first: from an ONNX model to native code, a line a pass, with the reason why it stands there."""

import os
from dataclasses import dataclass
from pathlib import Path

import onnx_ir
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.passes import ModulePass
from xdsl.transforms.canonicalize import CanonicalizePass

from redpebble.dialect.foreign import ForeignOp
from redpebble.dialect.pebble import Pebble
from redpebble.export.exporting import export_model
from redpebble.frontend.importing import Source, import_model
from redpebble.lowering.driver import lower
from redpebble.lowering.layer_report import LayerReport, layer_reports
from redpebble.lowering.target import CpuTarget
from redpebble.model_digest import model_digest
from redpebble.passes.annotate_io_bounds import AnnotateIoBounds
from redpebble.passes.choose_kernels import ChooseKernels
from redpebble.passes.drop_dead_neurons import DropDeadNeurons
from redpebble.passes.fold_batch_norm import FoldBatchNorm
from redpebble.passes.fold_constants import FoldConstants
from redpebble.passes.form_tiles import FormTiles
from redpebble.passes.fuse_layers import FuseLayers
from redpebble.passes.merge_duplicate_neurons import MergeDuplicateNeurons
from redpebble.passes.pipeline import run_passes
from redpebble.passes.recognize_layers import RecognizeLayers
from redpebble.passes.sparsify import Sparsify
from redpebble.runtime.artefact import Artefact
from redpebble.runtime.cache import cache_key, default_folder, load, store
from redpebble.runtime.machine_code import emit_object, host_target
from redpebble.runtime.network import Network


def portable_passes() -> tuple[ModulePass, ...]:
    """Return the passes that pay on any runtime: they leave fewer and simpler layers of the same function."""
    return (
        CanonicalizePass(),  # what comes later may take for granted that trivial ops are gone
        RecognizeLayers(),  # before anything folds away the constants by which a decomposition is known
        FoldConstants(),  # weights that the exporter left as expressions become weights
        FoldBatchNorm(keep=True),  # into the linear layer beside it
        FuseLayers(),  # bias and activation: afterwards a neuron is one column and one number
        DropDeadNeurons(),  # needs neurons as columns; makes weights of later layers smaller
        MergeDuplicateNeurons(),  # dropping may have made columns equal
        CanonicalizePass(),  # constants nobody uses any more
        Sparsify(),  # last: all of the above changes the density
        ChooseKernels(),
        AnnotateIoBounds(),
    )


def native_passes() -> tuple[ModulePass, ...]:
    """Return the passes that lowering needs after the portable ones."""
    return (
        FoldBatchNorm(),  # what stands beside no linear layer becomes a product and a sum
        CanonicalizePass(),
        FormTiles(),  # row-wise layers run together on each batch tile
        CanonicalizePass(),
    )


def context() -> Context:
    """Return an xDSL context that knows the dialects of a module of ours."""
    ctx = Context()
    for dialect in (Builtin, Func, Pebble):
        ctx.load_dialect(dialect)
    return ctx


def build_module(source: Source) -> ModuleOp:
    """Return the scheduled module of a model that is covered completely.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
    """
    module = import_model(source, foreign="refuse").module
    run_passes(context(), module, (*portable_passes(), *native_passes()))
    return module


def compile(  # noqa: A001 - the name users expect, as in re.compile
    source: Source,
    *,
    threads: int = 1,
    target: CpuTarget | None = None,
    cache: str | os.PathLike[str] | bool = True,
) -> Network:
    """Return native code for a model; a model compiled before comes from `cache`, a folder (True: the user's).

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        ValueError: `threads` is less than 1.
    """
    cpu = host_target() if target is None else target
    folder = default_folder() if cache is True else None if cache is False else Path(cache)
    digest = model_digest(source) if folder is not None else None
    key = cache_key(digest, cpu, "") if digest is not None else ""
    artefact = load(folder, key) if folder is not None and key else None
    if artefact is None:
        program = lower(build_module(source), cpu)
        artefact = Artefact(program, emit_object(program.llvm_ir, cpu))
        if folder is not None and key:
            store(folder, key, artefact)
    return Network(artefact.program, artefact.image, threads)


@dataclass(frozen=True)
class Optimized:
    """A model after `optimize`: its linear layers, the operators left as they are, and whether anything changed."""

    model: onnx_ir.Model
    report: tuple[LayerReport, ...]
    foreign: tuple[str, ...]
    modified: bool


def optimize(source: Source, *, skip_passes: tuple[str, ...] = ()) -> Optimized:
    """Return the model in standard ops after the portable passes; what is not covered stays as it is.

    Raises:
        ModelError: the model is unreadable.
        ValueError: a pass to be skipped does not exist.
    """
    passes = portable_passes()
    known = {one.name for one in passes}
    for name in skip_passes:
        if name not in known:
            raise ValueError(f"unknown pass {name!r}, accepted are {', '.join(sorted(known))}")
    imported = import_model(source, foreign="keep")
    before = imported.module.clone()
    run_passes(context(), imported.module, [one for one in passes if one.name not in skip_passes])
    foreign = tuple(op.operator.data for op in imported.module.walk() if isinstance(op, ForeignOp))
    return Optimized(
        model=export_model(imported.module, imported.model),
        report=layer_reports(imported.module),
        foreign=foreign,
        modified=not imported.module.is_structurally_equivalent(before),
    )

"""The page to read first: from an ONNX model to native code, a line a pass, with the reason why it stands there."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import onnx_ir
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.passes import ModulePass
from xdsl.transforms.canonicalize import CanonicalizePass

from redpebble.dialect.foreign import ForeignOp
from redpebble.dialect.pebble import Pebble
from redpebble.export.exporting import export_model
from redpebble.export.network_report import NetworkReport, network_reports
from redpebble.export.sparse_networks import network_obstacle
from redpebble.frontend.importing import Source, import_model
from redpebble.lowering.driver import lower
from redpebble.lowering.layer_report import LayerReport, layer_reports
from redpebble.lowering.target import CpuTarget
from redpebble.model_digest import model_digest
from redpebble.passes.annotate_io_bounds import AnnotateIoBounds
from redpebble.passes.choose_kernels import ChooseKernels
from redpebble.passes.discover_structure import DiscoverStructure
from redpebble.passes.drop_dead_neurons import DropDeadNeurons
from redpebble.passes.fold_batch_norm import FoldBatchNorm
from redpebble.passes.fold_constants import FoldConstants
from redpebble.passes.form_sparse_networks import FormSparseNetworks
from redpebble.passes.form_tiles import FormTiles
from redpebble.passes.fuse_layers import FuseLayers
from redpebble.passes.merge_duplicate_neurons import MergeDuplicateNeurons
from redpebble.passes.pipeline import run_passes
from redpebble.passes.recognize_layers import RecognizeLayers
from redpebble.passes.share_tiles import ShareTiles
from redpebble.passes.sparsify import Sparsify
from redpebble.runtime.artefact import Artefact
from redpebble.runtime.cache import cache_key, default_folder, load, store
from redpebble.runtime.machine_code import emit_object, host_target
from redpebble.runtime.memory import return_free_memory
from redpebble.runtime.network import Network
from redpebble.tuning import Tuning, measure_kernels


def simplifying_passes() -> tuple[ModulePass, ...]:
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
        DiscoverStructure(),  # rows that read the same inputs make kernels possible that no random mask has
    )


def portable_passes(kernels: ChooseKernels | None = None) -> tuple[ModulePass, ...]:
    """Return the passes that say what a model is and how it would run, on the machine that `kernels` describes."""
    return (*simplifying_passes(), kernels or ChooseKernels(), AnnotateIoBounds())


def native_passes(threads: int = 1) -> tuple[ModulePass, ...]:
    """Return the passes that lowering needs after the portable ones, for code that so many threads run."""
    return (
        FoldBatchNorm(),  # what stands beside no linear layer becomes a product and a sum
        CanonicalizePass(),
        FormTiles(),  # row-wise layers run together on each batch tile
        CanonicalizePass(),
        ShareTiles(threads),  # threads that would have no tile of their own work on the same one
    )


def context() -> Context:
    """Return an xDSL context that knows the dialects of a module of ours."""
    ctx = Context()
    for dialect in (Builtin, Func, Pebble):
        ctx.load_dialect(dialect)
    return ctx


def build_module(source: Source, threads: int = 1, tuning: Tuning | None = None) -> ModuleOp:
    """Return the module of a model that is covered completely, scheduled for some threads.

    Kernels are chosen for the machine of `tuning` by what was measured there, or for that of the built-in constants.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
    """
    module = import_model(source, foreign="refuse").module
    run_passes(context(), module, simplifying_passes())
    kernels = ChooseKernels() if tuning is None else ChooseKernels.on(tuning.machine, measure_kernels(module, tuning))
    run_passes(context(), module, (kernels, AnnotateIoBounds(), *native_passes(threads)))
    return module


def compile(  # noqa: A001 - the name users expect, as in re.compile
    source: Source,
    *,
    threads: int = 1,
    target: CpuTarget | None = None,
    cache: str | os.PathLike[str] | bool = True,
    tune: bool = False,
) -> Network:
    """Return native code for a model; a model compiled before comes from `cache`, a folder (True: the user's).

    With `tune` the kernels that are predicted to be best are measured on this machine, a few seconds for a model, and
    what was found is kept in `cache`; without it the prediction decides.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        ValueError: `threads` is less than 1, or `tune` is for a target that this machine cannot run.
    """
    artefact = native_code(source, threads=threads, target=target, cache=cache, tune=tune)
    return Network(artefact.program, artefact.image, threads)


def native_code(
    source: Source,
    *,
    threads: int = 1,
    target: CpuTarget | None = None,
    cache: str | os.PathLike[str] | bool = True,
    tune: bool = False,
) -> Artefact:
    """Return native code for a model as `compile` runs it, from the folder `cache` where it was compiled before.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        ValueError: `threads` is less than 1, or `tune` is for a target that this machine cannot run.
    """
    if threads < 1:
        raise ValueError(f"threads is {threads}, expected 1 or more")
    cpu = host_target() if target is None else target
    folder = default_folder() if cache is True else None if cache is False else Path(cache)
    tuning = Tuning.on(cpu, folder) if tune else Tuning.predicted(cpu, folder)
    digest = model_digest(source) if folder is not None else None
    key = cache_key(digest, cpu, f"threads={threads} tune={tune} {tuning.machine}") if digest is not None else ""
    artefact = load(folder, key) if folder is not None and key else None
    if artefact is None:
        program = lower(build_module(source, threads, tuning), cpu)
        artefact = Artefact(program, emit_object(program.llvm_ir, cpu))
        if folder is not None and key:
            store(folder, key, artefact)
        return_free_memory()
    return artefact


@dataclass(frozen=True)
class Optimized:
    """A model after `optimize`: its linear layers, the operators left as they are, and whether anything changed."""

    model: onnx_ir.Model
    report: tuple[LayerReport, ...]
    foreign: tuple[str, ...]
    modified: bool
    networks: tuple[NetworkReport, ...]
    """The sparse networks, which only the target `ort` has."""
    obstacle: str
    """Why there is no sparse network though the target was `ort`; empty otherwise."""


def optimize(
    source: Source, *, target: Literal["portable", "ort"] = "portable", skip_passes: tuple[str, ...] = ()
) -> Optimized:
    """Return the model in standard ops after the portable passes; what is not covered stays as it is.

    For the target `ort`, layers with sparse weights are nodes of our own beside that, each with a function of standard
    ops for runtimes in which our library is not registered.

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
    obstacle = network_obstacle(imported.model) if target == "ort" else ""
    if target == "ort" and not obstacle:
        # last, and never skipped: it decides from the kernels chosen, and only moves what the others left
        run_passes(context(), imported.module, [FormSparseNetworks()])
    networks = network_reports(imported.module)
    if target == "ort" and not networks:
        obstacle = obstacle or "no layer is predicted to gain from sparse kernels"
    foreign = tuple(op.operator.data for op in imported.module.walk() if isinstance(op, ForeignOp))
    return Optimized(
        model=export_model(imported.module, imported.model),
        report=layer_reports(imported.module),
        foreign=foreign,
        modified=not imported.module.is_structurally_equivalent(before),
        networks=networks,
        obstacle=obstacle,
    )

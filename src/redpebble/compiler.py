"""The page to read first: from an ONNX model to native code, a line a pass, with the reason why it stands there."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import onnx_ir
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.passes import ModulePass
from xdsl.transforms.canonicalize import CanonicalizePass

from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.dialect.pebble import Pebble
from redpebble.dialect.reports.layer_report import LayerReport, layer_reports
from redpebble.dialect.reports.network_report import NetworkReport, network_reports
from redpebble.dialect.reports.split_report import SplitReport, split_reports
from redpebble.export.exporting import export_model
from redpebble.export.sparse_networks.node_and_function import network_obstacle
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.importing import Source, import_model
from redpebble.frontend.out_of_range_models import untouched
from redpebble.kernels.machine import Machine
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.model_digest import model_digest
from redpebble.passes.deployment.form_sparse_networks import FormSparseNetworks
from redpebble.passes.deployment.split_components import SplitComponents
from redpebble.passes.kernels.annotate_io_bounds import AnnotateIoBounds
from redpebble.passes.kernels.choose_kernels import ChooseKernels
from redpebble.passes.kernels.discover_structure import DiscoverStructure
from redpebble.passes.neuron_order.reorder_neurons import ReorderNeurons
from redpebble.passes.pipeline import run_passes
from redpebble.passes.simplify.drop_dead_neurons import DropDeadNeurons
from redpebble.passes.simplify.fold_batch_norm import FoldBatchNorm
from redpebble.passes.simplify.fold_constants import FoldConstants
from redpebble.passes.simplify.fuse_layers import FuseLayers
from redpebble.passes.simplify.merge_duplicate_neurons import MergeDuplicateNeurons
from redpebble.passes.simplify.recognize_layers import RecognizeLayers
from redpebble.passes.simplify.sparsify import Sparsify
from redpebble.passes.tiles.drop_dead_rows import DropDeadRows
from redpebble.passes.tiles.form_tiles import FormTiles
from redpebble.passes.tiles.schedule_network import ScheduleNetwork
from redpebble.passes.tiles.share_tiles import ShareTiles
from redpebble.runtime.jit import emit_object, host_target
from redpebble.runtime.memory import aligned_copy, return_free_memory
from redpebble.runtime.network import Network
from redpebble.runtime.store.artefact import Artefact
from redpebble.runtime.store.cache import cache_key, default_folder, load, store
from redpebble.tuning.group_timing import measure_groups
from redpebble.tuning.measure_kernels import Tuning, measure_kernels


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


def native_passes(
    threads: int = 1, *, drop_dead_rows: bool = False, schedule: ScheduleNetwork | None = None
) -> tuple[ModulePass, ...]:
    """Return the passes that lowering needs after the portable ones, for code that so many threads run."""
    return (
        FoldBatchNorm(),  # what stands beside no linear layer becomes a product and a sum
        CanonicalizePass(),
        FormTiles(),  # row-wise layers run together on each batch tile
        CanonicalizePass(),
        ShareTiles(threads),  # threads that would have no tile of their own work on the same one
        *([DropDeadRows()] if drop_dead_rows else []),  # before what would put the layers into another order
        schedule or ScheduleNetwork(),  # layers that leave the cache run together, where neurons have an order for it
    )


def known_passes(passes: Sequence[ModulePass], skipped: Sequence[str]) -> None:
    """Check that the passes to be skipped are among `passes`.

    Raises:
        ValueError: one is not.
    """
    known = {one.name for one in passes}
    for name in skipped:
        if name not in known:
            raise ValueError(f"unknown pass {name!r}, accepted are {', '.join(sorted(known))}")


def context() -> Context:
    """Return an xDSL context that knows the dialects of a module of ours."""
    ctx = Context()
    for dialect in (Builtin, Func, Pebble):
        ctx.load_dialect(dialect)
    return ctx


@dataclass(frozen=True)
class NativeChoices:
    """What a user may choose about native code beside its target: see `compile`."""

    threads: int = 1
    drop_dead_rows: bool = False
    skip_passes: tuple[str, ...] = ()
    reorder_seconds: float = 0.0
    schedule_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads is {self.threads}, expected 1 or more")
        for name, seconds in (("reorder", self.reorder_seconds), ("schedule", self.schedule_seconds)):
            if not 0 <= seconds < float("inf"):
                raise ValueError(f"{name}_seconds is {seconds}, expected 0 or more")
        known_passes((*simplifying_passes(), ReorderNeurons(), ScheduleNetwork()), self.skip_passes)

    def kept(self, passes: Sequence[ModulePass]) -> list[ModulePass]:
        """Return the passes that are not to be skipped."""
        return [one for one in passes if one.name not in self.skip_passes]

    def native_passes(self, machine: Machine) -> tuple[ModulePass, ...]:
        """Return what `native_passes` are by these choices on a machine."""
        schedule = ScheduleNetwork(machine.l1_bytes, machine.l2_bytes, self.schedule_seconds)
        return native_passes(self.threads, drop_dead_rows=self.drop_dead_rows, schedule=schedule)


def build_module(
    source: Source, threads: int = 1, tuning: Tuning | None = None, choices: NativeChoices | None = None
) -> ModuleOp:
    """Return the module of a model that is covered completely, scheduled for some threads, or by all `choices`.

    Kernels are chosen for the machine of `tuning` by what was measured there, or for that of the built-in constants.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
    """
    choices = choices or NativeChoices(threads)
    module = import_model(source, foreign="refuse").module
    run_passes(context(), module, choices.kept(simplifying_passes()))
    choose_kernels(module, tuning, choices)
    machine = Machine() if tuning is None else tuning.machine
    run_passes(context(), module, choices.kept(choices.native_passes(machine)))
    return module


def choose_kernels(module: ModuleOp, tuning: Tuning | None, choices: NativeChoices) -> None:
    """Put the neurons of a simplified module into an order, and choose the kernels of its layers."""
    # neurons that share connections come together, on request also by a search; kernels are chosen for that order
    machine = Machine() if tuning is None else tuning.machine
    run_passes(context(), module, choices.kept([ReorderNeurons.on(machine, choices.reorder_seconds)]))
    measured = () if tuning is None else measure_kernels(module, tuning)
    run_passes(context(), module, choices.kept([ChooseKernels.on(machine, measured), AnnotateIoBounds()]))


def compile(  # noqa: A001 - the name users expect, as in re.compile
    source: Source,
    *,
    threads: int = 1,
    target: CpuTarget | None = None,
    cache: str | os.PathLike[str] | bool = True,
    tune: bool = False,
    drop_dead_rows: bool = False,
    skip_passes: tuple[str, ...] = (),
    reorder_seconds: float = 0.0,
    schedule_seconds: float = 0.0,
) -> Network:
    """Return native code for a model; a model compiled before comes from `cache`, a folder (True: the user's).

    With `tune` the kernels that are predicted to be best are measured on this machine, a few seconds for a model, and
    what was found is kept in `cache`; without it the prediction decides.

    With `drop_dead_rows`, rows of the batch that have become zeros are no longer computed, where it is certain that
    nothing comes of them: the results are the same, the time depends on the data. `skip_passes` names passes of
    `simplifying_passes`, or `pebble-reorder-neurons` or `pebble-schedule-network`, to leave out.

    Hidden neurons are put into an order that is predicted to be fast, where the network has one; with
    `reorder_seconds` the order is annealed for about so long, always to the same one: single rows gain most.
    Likewise `schedule_seconds` anneal which layers run together where they leave the cache, and in tiles of which size.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        ValueError: `threads` is less than 1, `reorder_seconds` or `schedule_seconds` less than 0, a pass to be skipped
            does not exist, or `tune` is for a target that this machine cannot run.
    """
    choices = NativeChoices(threads, drop_dead_rows, skip_passes, reorder_seconds, schedule_seconds)
    artefact = native_code(source, target=target, cache=cache, tune=tune, choices=choices)
    return Network(artefact.program, artefact.image, threads)


def native_code(
    source: Source,
    *,
    threads: int = 1,
    target: CpuTarget | None = None,
    cache: str | os.PathLike[str] | bool = True,
    tune: bool = False,
    choices: NativeChoices | None = None,
) -> Artefact:
    """Return native code for a model as `compile` runs it, from the folder `cache` where it was compiled before.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        ValueError: `threads` is less than 1, or `tune` is for a target that this machine cannot run.
    """
    choices = choices or NativeChoices(threads)
    cpu = host_target() if target is None else target
    folder = default_folder() if cache is True else None if cache is False else Path(cache)
    tuning = Tuning.on(cpu, folder) if tune else Tuning.predicted(cpu, folder)
    digest = model_digest(source, folder) if folder is not None else None
    key = cache_key(digest, cpu, f"{choices} tune={tune} {tuning.machine}") if digest is not None else ""
    artefact = load(folder, key) if folder is not None and key else None
    if artefact is None:
        module = build_module(source, tuning=tuning, choices=choices)
        if tune:
            measure_groups(module, cpu)  # for the report; kernels of single layers are chosen by what was measured
        artefact = _compiled(module, cpu)
        if folder is not None and key:
            store(folder, key, artefact)
            # the weights of a file are in memory only where they are used, and only once for all processes
            artefact = load(folder, key) or artefact
        return_free_memory()
    return artefact


def _compiled(module: ModuleOp, cpu: CpuTarget) -> Artefact:
    """Return native code of a module, which is of no use afterwards."""
    program = lower(module, cpu)
    # ops refer to each other in circles, so that their weights would stay until the collector runs
    for op in module.walk():
        op.attributes.clear()
        op.properties.clear()
    image = emit_object(program.llvm_ir, cpu)
    return Artefact(replace(program, llvm_ir="", constants=tuple(map(aligned_copy, program.constants))), image)


@dataclass(frozen=True)
class Optimized:
    """A model after `optimize`: its linear layers, the operators left as they are, and whether anything changed."""

    model: onnx_ir.Model
    report: tuple[LayerReport, ...] = ()
    foreign: tuple[str, ...] = ()
    modified: bool = False
    networks: tuple[NetworkReport, ...] = ()
    """The sparse networks, which only the target `ort` has."""
    obstacle: str = ""
    """Why there is no sparse network though the target was `ort`; empty otherwise."""
    splits: tuple[SplitReport, ...] = ()
    """The layers that are computed in groups without connections between them; `report` has them as they were."""


def optimize(
    source: Source, *, target: Literal["portable", "ort"] = "portable", skip_passes: tuple[str, ...] = ()
) -> Optimized:
    """Return the model in standard ops after the portable passes; what is not covered stays as it is.

    For the target `ort`, layers with sparse weights are nodes of our own beside that, each with a function of standard
    ops for runtimes in which our library is not registered. Others are computed in groups where they fall into parts.

    Raises:
        ModelError: the model is unreadable, or, for the target `portable`, of versions that are not covered.
        ValueError: a pass to be skipped does not exist.
    """
    passes = portable_passes()
    known_passes((*passes, SplitComponents()), skip_passes)
    try:
        imported = import_model(source, foreign="keep")
    except UnsupportedModelError as error:
        if target == "portable":
            raise
        # whatever onnxruntime runs is accepted, and no slower afterwards
        return Optimized(untouched(source), obstacle=str(error))
    before = imported.module.clone()
    run_passes(context(), imported.module, [one for one in passes if one.name not in skip_passes])
    obstacle = network_obstacle(imported.model) if target == "ort" else ""
    if target == "ort" and not obstacle:
        # last, and never skipped: it decides from the kernels chosen, and only moves what the others left
        run_passes(context(), imported.module, [FormSparseNetworks()])
    report, networks = layer_reports(imported.module), network_reports(imported.module)
    if SplitComponents.name not in skip_passes:
        run_passes(context(), imported.module, [SplitComponents()])  # what is left multiplies by zeros
    if target == "ort" and not networks:
        obstacle = obstacle or "no layer is predicted to gain from sparse kernels"
    return Optimized(
        model=export_model(imported.module, imported.model),
        report=report,
        foreign=tuple(op.operator.data for op in imported.module.walk() if isinstance(op, ForeignOp)),
        modified=not imported.module.is_structurally_equivalent(before),
        networks=networks,
        obstacle=obstacle,
        splits=split_reports(imported.module),
    )

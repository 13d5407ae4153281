"""A model becomes native code, or a better model in ONNX: what is done around the pipeline."""

import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import onnx
import onnx_ir
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from ..dialect.ops.foreign import ForeignOp
from ..dialect.reports.layer_report import LayerReport
from ..dialect.reports.module_report import layer_reports
from ..dialect.reports.network_report import NetworkReport, network_reports
from ..dialect.reports.split_report import SplitReport, split_reports
from ..export.export_model import exported
from ..export.save_model import model_bytes, save_model
from ..export.sparse_networks.node_and_function import network_obstacle
from ..export.tied_weights import tie_weights
from ..foundation.choices import Choices
from ..foundation.garbage_collection import rare_collections
from ..foundation.log import LOG
from ..foundation.threads import usable_threads
from ..frontend.errors import ModelError, NothingToGainError, UnsupportedModelError, within_limits
from ..frontend.import_model import Source
from ..frontend.reading.faults import reading
from ..frontend.reading.model_source import read_model
from ..kernels.machine import Machine
from ..lowering.cpu_target import CpuTarget
from ..options import OnPass, Options, Precision
from ..passes.kernels.round_layers import ROUNDED
from ..passes.rewriting.erase_unused import drop_weights
from ..passes.rewriting.network_module import network_module
from ..pipeline import check_skipped, run_stages, skippable
from ..runtime.code_memory import code_memory
from ..runtime.jit import host_target
from ..runtime.memory import return_free_memory
from ..runtime.network import Network
from ..runtime.store.artefact import Artefact
from ..runtime.store.cache import cache_key, default_folder, load, store
from ..tuning.measure_kernels import Tuning
from ..tuning.quantize_layers import QUANTIZED, text_on
from .bodies import with_optimized_bodies
from .extraction import extracted, has_fewer_weights
from .model_digest import model_digest
from .native_build import native_build
from .network_of_sizes import compiled_for_sizes
from .placement import NodesLeft, Placement, nodes_left, nothing_to_form, placement_of
from .predicted_gain import PredictedGain, predicted_gain
from .stated_sizes import with_sizes

Cache = str | os.PathLike[str] | bool
"""A folder for native code; True is the user's, False none."""


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
    sizes: Mapping[str, int] | None = None,
    choices: str | os.PathLike[str] | Choices | None = None,
) -> Network:
    """Return native code for a model; a model compiled before comes from `cache`, a folder (True: the user's).

    Where a model leaves the height and width of its images to each call, `sizes` states them by name; where it does
    not, code is made when images of some size first come, and kept for the last few sizes.

    With `tune` the kernels that are predicted to be best are measured on this machine, a few seconds for a model, and
    what was found is kept in `cache`; without it the prediction decides.

    With `drop_dead_rows`, rows of the batch that have become zeros are no longer computed, where it is certain that
    nothing comes of them: the results are the same, the time depends on the data. `skip_passes` names passes of
    `redpebble.pipeline` to leave out, of stages that native code can do without.

    Hidden neurons are put into an order that is predicted to be fast, where the network has one; with
    `reorder_seconds` the order is annealed for about so long, to the same one: single rows gain most.
    Likewise `schedule_seconds` anneal which layers run together where they leave the cache, and in tiles of which size.

    `choices` is a file of `redpebble explain --serve`: passes to leave out, and kernels of layers.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        OSError: `choices` cannot be read.
        PassFailedException: a layer cannot have its kernel of `choices` on this CPU.
        ValueError: `threads` is less than 1, `reorder_seconds` or `schedule_seconds` less than 0, a pass to be skipped
            does not exist, `target` is none, or `tune` is for one that this machine cannot run; or no size of an image
            is called as in `sizes`, or no layer as in `choices`.
    """
    options = Options(
        threads=threads,
        drop_dead_rows=drop_dead_rows,
        skip_passes=skip_passes,
        reorder_seconds=reorder_seconds,
        schedule_seconds=schedule_seconds,
    )
    options = with_choices(options, Choices.read(choices))
    if threads > usable_threads():
        warnings.warn(f"threads is {threads}, and this process may use {usable_threads()} CPUs", stacklevel=2)

    def compiled(model: Source) -> Network:
        artefact = native_code(model, options, target=target, cache=cache, tune=tune)
        return Network(artefact.program, artefact.image, threads)

    return compiled(with_sizes(source, sizes)) if sizes else compiled_for_sizes(source, compiled, threads)


def native_code(
    source: Source,
    options: Options | None = None,
    *,
    target: CpuTarget | None = None,
    cache: Cache = True,
    tune: bool = False,
) -> Artefact:
    """Return native code for a model as `compile` runs it, from the folder `cache` where it was compiled before.

    With `options.on_pass` the passes run in any case.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        ValueError: a pass to be skipped does not exist, `target` is none, or `tune` is for one that this machine cannot
            run, or no layer has a name of `options.kernels`.
    """
    options, folder = options or Options(), cache_folder(cache)
    check_skipped(options)
    tuned = on_machine(options, target, folder, tune=tune)
    cpu = _checked_target(target)
    digest = model_digest(source, folder) if folder is not None else None
    key = cache_key(digest, cpu, f"{options} tune={tune} {tuned.machine}") if digest is not None else ""
    artefact = load(folder, key) if folder is not None and key and options.on_pass is None else None
    if artefact is not None:
        LOG.info("%s came from the cache, %s", _name(source), folder)
    else:
        begun = time.perf_counter()
        with within_limits(), rare_collections():
            built = native_build(source, tuned)
            artefact = machine_code(built.module, cpu, folder).with_ends(built.prologue, built.output_forms)
        LOG.info("%s was compiled in %.2f s", _name(source), time.perf_counter() - begun)
        if folder is not None and digest is not None:
            # what was measured for this model is part of what later calls know of the machine
            known = on_machine(options, target, folder, tune=tune) if tune else tuned
            store(folder, cache_key(digest, cpu, f"{options} tune={tune} {known.machine}"), artefact)
        return_free_memory()
    Choices(kernels=options.kernels).check_names({layer.name for layer in artefact.program.report})
    return artefact


def _name(source: Source) -> str:
    return os.fsdecode(source) if isinstance(source, str | os.PathLike) else "a model in memory"


def _checked_target(target: object) -> CpuTarget:
    """Return the target, that of this machine for None.

    Raises:
        ValueError: it is none.
    """
    match target:
        case None:
            return host_target()
        case CpuTarget():
            return target
        case _:
            raise ValueError(f"target: expected a CpuTarget such as CpuTarget.avx2(), got {target!r}")


def cache_folder(cache: Cache) -> Path | None:
    """Return the folder that `cache` stands for."""
    if isinstance(cache, bool):
        return default_folder() if cache else None
    return Path(cache)


def on_machine(options: Options, target: CpuTarget | None, folder: Path | None, *, tune: bool) -> Options:
    """Return options for a machine with `target`, or for this one, of which `folder` has what was measured.

    Raises:
        ValueError: `tune`, and this machine cannot run code for the target.
    """
    cpu = _checked_target(target)
    return replace(options, tuning=Tuning.on(cpu, folder) if tune else Tuning.predicted(cpu, folder))


def machine_code(module: ModuleOp, cpu: CpuTarget, folder: Path | None = None) -> Artefact:
    """Return native code of a module that was built for it, and is of no use afterwards; `folder` keeps what is made.

    A network with other weights has use for that, too.
    """
    return code_memory().artefact_of(module, cpu, folder)


@dataclass(frozen=True, repr=False)
class Optimized:
    """A model after `optimize`: its linear layers, the operators left as they are, and whether anything changed."""

    model: onnx_ir.Model
    report: tuple[LayerReport, ...] = ()
    foreign: tuple[str, ...] = ()
    modified: bool = False
    networks: tuple[NetworkReport, ...] = ()
    """The sparse networks, which only the target `ort` has."""
    obstacle: str = ""
    """The reason why there is no sparse network though the target was `ort`; empty otherwise."""
    splits: tuple[SplitReport, ...] = ()
    """The layers that are computed in groups without connections between them; `report` has them as they were."""
    quantized: str = ""
    """The layers that compute with integers or bfloat16, and what results change by; empty where nobody asked."""
    left: NodesLeft | None = None
    """The nodes outside of sparse networks; None for a model of which nothing is known."""
    machine: Machine = field(default_factory=Machine, repr=False)
    """The machine by whose prices all was decided."""
    rows: int = 0
    """The rows that layers get at once, as the caller stated them; 0 where nobody did."""

    @cached_property
    def placement(self) -> Placement | None:
        """The place where the work lies, counted when it is first asked for; None where nothing is known."""
        placement = self._placement(batch=1)
        if placement is None or self.rows <= placement.rows:
            return placement
        # free axes other than the batch are 128 long, so a text is that many rows
        return self._placement(round(self.rows / placement.rows))

    def _placement(self, batch: int) -> Placement | None:
        if self.left is None:
            return None
        try:
            with reading():
                return placement_of(self.left, batch)
        except ModelError:
            return None  # what only a report would say refuses no model

    @cached_property
    def gain(self) -> PredictedGain | None:
        """The gain that sparse networks are predicted to bring; None where there are none."""
        return None if self.placement is None else predicted_gain(self.placement, self.networks, self.machine)

    @property
    def proto(self) -> onnx.ModelProto:
        """The model as `onnx` has it, with all its weights.

        Raises:
            ValueError: it is larger than 2 GB, which `save` can write.
        """
        content = model_bytes(self.model)
        if content is None:
            raise ValueError("larger than 2 GB: save(path) writes it")
        return onnx.ModelProto.FromString(content)

    def save(self, path: str | os.PathLike[str], *, external_data: bool | None = None) -> None:
        """Write the model to `path`, its weights beside it if `external_data`, or if None and the size requires it.

        Raises:
            OSError: the file cannot be written.
            ValueError: weights of more than 2 GB without a data file.
        """
        save_model(self.model, path, external_data=external_data)

    def __repr__(self) -> str:
        """Return a one-line summary; details are in the fields."""
        counts = {"sparse network": self.networks, "layer": self.report, "operator": self.foreign}
        parts = [f"{len(found)} {name}{'s' * (len(found) != 1)}" for name, found in counts.items()]
        return f"<Optimized: {', '.join(parts)} left as they are>"


def optimize(
    source: Source,
    *,
    target: Literal["portable", "ort"] = "ort",
    skip_passes: tuple[str, ...] = (),
    rows: int = 0,
    samples: Mapping[str, NDArray[Any]] | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    choices: str | os.PathLike[str] | Choices | None = None,
) -> Optimized:
    """Return the model after the passes that any runtime gains from; what is not covered stays as it is.

    Layers with sparse weights are nodes of our own, each with a function of standard ops for runtimes in which our
    library is not registered. For the target `portable` there are none: layers are computed in groups where they fall
    into parts without connections between them. `rows` is how many rows layers get at once, where that is known: a
    layer that is fastest sparse for these may be no faster for others. 0 is what the model states, or any number.
    With `samples` of its inputs, [samples, ...] each, sparse layers compute with integers of eight bits afterwards, if
    their results change little by it; `Optimized.quantized` says how many, and what the model's results change by. With
    the `precision` "bf16" they round inputs and weights to bfloat16 where this CPU gains by it, and samples, if any,
    only tell what results change by. `choices` is a file of `redpebble explain --serve`: the kernels in it go into the
    file of the result, and of the passes in it those are left out that run here.

    Raises:
        OSError: `choices` cannot be read.
        PassFailedException: a layer cannot have its kernel of `choices` on this CPU.
        ModelError: the model is unreadable, or, for the target `portable`, of versions that are not covered.
        ValueError: a pass to be skipped does not exist, or the target, or the precision; it is "int8" without samples,
            or "f32" with some; or rows are negative; or no layer is called as in `choices`.
    """
    if target not in ("portable", "ort"):
        raise ValueError(f"target: expected 'portable' or 'ort', got {target!r}")
    networks = target == "ort"
    options = Options("optimize", skip_passes=skip_passes, sparse_networks=networks, rows=rows, samples=samples)
    options = replace(options, bfloat=is_bfloat(precision, samples is not None))
    return optimized(with_sizes(source, sizes), with_choices(options, Choices.read(choices)))


def with_choices(options: Options, choices: Choices) -> Options:
    """Return options with the kernels of choices, and without those of their passes that run on the way to the goal.

    Raises:
        ValueError: there is no such pass.
    """
    check_skipped(Options(skip_passes=choices.skip_passes))
    accepted = skippable(options)
    skipped = (*options.skip_passes, *(name for name in choices.skip_passes if name in accepted))
    return replace(options, skip_passes=skipped, kernels=choices.kernels)


def is_bfloat(precision: Precision | None, has_samples: bool) -> bool:
    """Return whether a precision is that of bfloat16; None is "int8" with samples, and "f32" without.

    Raises:
        ValueError: there is no such precision, or it does not go with samples, or without them.
    """
    if precision not in (None, *get_args(Precision)):
        raise ValueError(f"precision: expected one of {', '.join(get_args(Precision))}, got {precision!r}")
    if precision in ("f32", "int8") and has_samples != (precision == "int8"):
        found = "some" if has_samples else "none"
        raise ValueError(f"precision {precision!r}: expected samples for int8 alone, got {found}")
    return precision == "bf16"


OnNetwork = Callable[[str, ModuleOp], None]
"""Called with the identity of a node that stands for a sparse network, and with that network as a module of its own."""


def optimized(source: Source, options: Options, on_network: OnNetwork | None = None) -> Optimized:
    """Return the result of `optimize`, by options of that goal; `on_network` gets the networks at the end.

    Raises:
        ModelError: the model is unreadable, or of versions that are not covered and without sparse networks.
        ValueError: a pass to be skipped does not exist.
    """
    check_skipped(options)
    if options.tuning is None:
        options = on_machine(options, None, None, tune=False)
    with within_limits(), rare_collections():
        found = _with_bodies(_optimized(source, options, on_network), options, on_network)
    Choices(kernels=options.kernels).check_names({layer.name for layer in found.report})
    return found


def _with_bodies(found: Optimized, options: Options, on_network: OnNetwork | None) -> Optimized:
    """Return the result with subgraphs of nodes optimized, too, if they hold sparse networks."""
    if not options.sparse_networks:
        return found

    def body(model: onnx.ModelProto) -> tuple[onnx_ir.Model, Optimized] | None:
        try:
            inside = _with_bodies(_optimized(model, options, on_network), options, on_network)
        except ModelError:
            return None  # what is wrong with a body onnxruntime says better
        return (inside.model, inside) if inside.networks else None

    model, bodies = with_optimized_bodies(found.model, body)
    if not bodies:
        return found
    networks = tuple(network for one in (found, *bodies) for network in one.networks)
    report = tuple(layer for one in (found, *bodies) for layer in one.report)
    return replace(found, model=model, networks=networks, report=report, modified=True, obstacle="")


def network_code(
    network: ModuleOp, threads: int, cpu: CpuTarget, folder: Path | None = None, on_pass: OnPass | None = None
) -> Artefact:
    """Return native code of a network that `optimized` has found, which is of no use afterwards; see `machine_code`."""
    options = Options(threads=threads, on_pass=on_pass)
    run_stages(network, on_machine(options, cpu, None, tune=False), after="simplify")
    return machine_code(network, cpu, folder)


def _optimized(source: Source, options: Options, on_network: OnNetwork | None) -> Optimized:
    try:
        imported, before, obstacle, alone = extracted(source, options, network_obstacle)
    except NothingToGainError as error:
        return Optimized(error.model, obstacle=str(error))
    except UnsupportedModelError as error:
        if not options.sparse_networks:
            raise
        # whatever onnxruntime runs is accepted, and no slower afterwards
        return Optimized(read_model(source, any_version=True), obstacle=str(error))
    module, asked = imported.module, options
    options = replace(options, sparse_networks=options.sparse_networks and not obstacle)
    report, networks = layer_reports(module), network_reports(module)
    if networks:
        drop_weights(before)  # the model has changed, whatever it was
    if options.sparse_networks and not networks:
        obstacle = alone or nothing_to_form(imported.model, len(report))
    left = nodes_left(module, imported, alone)
    plain = asked.sparse_networks and asked.samples is None and not asked.bfloat
    if not networks and (imported.rewritten or (plain and not has_fewer_weights(module, before))):
        # float32 takes twice the room, functions written out are hard to read, nodes written anew round elsewhere
        foreign = _foreign(module)
        return Optimized(read_model(source), report=report, foreign=foreign, obstacle=obstacle, left=left)
    run_stages(module, options, after="extract")
    written = exported(module, imported.model)
    stored = {*imported.model.graph.initializers} - imported.made
    tie_weights(written.model, {*written.model.graph.initializers} - stored)
    if on_network is not None:
        for network, identity in written.identities.items():
            on_network(identity, network_module(network))
    return Optimized(
        model=written.model,
        report=report,
        foreign=_foreign(module),
        modified=bool(networks) or not module.is_structurally_equivalent(before),
        networks=networks,
        obstacle=obstacle,
        splits=split_reports(module),
        quantized=text_on(module, ROUNDED if options.bfloat else QUANTIZED),
        left=left,
        machine=options.machine,
        rows=options.rows,
    )


def _foreign(module: ModuleOp) -> tuple[str, ...]:
    return tuple(op.operator.data for op in module.walk() if isinstance(op, ForeignOp))

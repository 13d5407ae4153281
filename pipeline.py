"""The page to read first: what becomes of a model, a line a pass, with the reason why it stands there.

`build` reads a model and runs the stages of `PIPELINE` that have its goal. `redpebble.compile` lowers the result to
native code, `redpebble.optimize` writes it as ONNX, and all other uses of the passes go through here, too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.transforms.canonicalize import CanonicalizePass

from .dialect.attributes.activations import BFLOAT_SINCE
from .frontend.errors import within_limits
from .frontend.import_model import Source, import_model
from .options import Goal, Options
from .passes.deployment.form_sparse_networks import FormSparseNetworks
from .passes.deployment.split_components import SplitComponents
from .passes.images.form_image_networks import FormImageNetworks
from .passes.images.fuse_convolutions import FuseConvolutions
from .passes.images.reorder_channels import ReorderChannels
from .passes.images.scale_channels import ScaleChannels
from .passes.images.schedule_images import ScheduleImages
from .passes.kernels.annotate_io_bounds import AnnotateIoBounds
from .passes.kernels.choose_kernels import ChooseKernels
from .passes.kernels.choose_quantized_kernels import ChooseQuantizedKernels
from .passes.kernels.discover_structure import DiscoverStructure
from .passes.kernels.round_layers import RoundLayers
from .passes.neuron_order.order_targets import OrderTargets
from .passes.neuron_order.reorder_neurons import ReorderNeurons
from .passes.runner import context, run_passes
from .passes.simplify.associate import Associate
from .passes.simplify.drop_dead_units import DropDeadUnits
from .passes.simplify.expand_recurrences import ExpandRecurrences
from .passes.simplify.fold_batch_norm import FoldBatchNorm
from .passes.simplify.fold_constants import FoldConstants
from .passes.simplify.fuse_aggregations import FuseAggregations
from .passes.simplify.fuse_codes import FuseCodes
from .passes.simplify.fuse_layers import FuseLayers
from .passes.simplify.fuse_rounding import FuseRounding
from .passes.simplify.merge_equal_units import MergeEqualUnits
from .passes.simplify.recognize_layers import RecognizeLayers
from .passes.simplify.sparsify import Sparsify
from .passes.simplify.take_bytes import TakeBytes
from .passes.tiles.drop_dead_rows import DropDeadRows
from .passes.tiles.form_tiles import FormTiles
from .passes.tiles.schedule_network import ScheduleNetwork
from .passes.tiles.share_tiles import ShareTiles
from .tuning.found_orders import ReorderAsBefore
from .tuning.found_schedules import ScheduleAsBefore
from .tuning.group_timing import MeasureGroups
from .tuning.measure_kernels import MeasureKernels
from .tuning.quantize_layers import QuantizeLayers
from .tuning.round_by_samples import RoundBySamples

Entry = ModulePass | Callable[[Options], ModulePass | None]
"""A pass, or what makes one of the options: None where they leave it out."""


@dataclass(frozen=True)
class Stage:
    """Passes with one purpose, and the goals on whose way they are."""

    name: str
    passes: tuple[Entry, ...]
    goals: tuple[Goal, ...] = ("compile", "optimize", "neurons")
    needed_for: tuple[Goal, ...] = ()
    """Goals that cannot be reached without each of the passes: there none may be skipped."""


def _extraction(options: Options) -> ModulePass | None:
    if not options.sparse_networks:
        return None
    return FormSparseNetworks.on(options.machine, options.rows, takes_dense=not options.may_add)


def _quantize(options: Options) -> ModulePass | None:
    if options.samples is None or options.bfloat:
        return None
    return QuantizeLayers(options.samples, options.foreign, options.machine, takes_all=options.sparse_networks)


def _round(options: Options) -> ModulePass | None:
    if not options.bfloat:
        return None
    rounding = RoundLayers.on(options.machine, options.rows, _obstacle_to_rounding(options))
    return RoundBySamples(rounding, options.samples, options.foreign)


def _obstacle_to_rounding(options: Options) -> str:
    """Return the reason why no layer can be rounded to bfloat16; empty where there is none."""
    if options.opset and options.opset < BFLOAT_SINCE:
        return f"it needs opset {BFLOAT_SINCE}, the model's is {options.opset}"
    return "" if options.sparse_networks else "there are no sparse networks"


def _choose(options: Options) -> ModulePass:
    rounds = options.bfloat and not _obstacle_to_rounding(options)
    return ChooseKernels.on(options.machine, options.kernels, rounds=rounds)


def _reorder(options: Options) -> ModulePass:
    folder, seconds = _searches(options), options.reorder_seconds
    if folder is not None and seconds:
        return ReorderAsBefore.kept_in(folder, options.machine, seconds)
    return ReorderNeurons.on(options.machine, seconds)


def _schedule(options: Options) -> ModulePass:
    folder, seconds = _searches(options), options.schedule_seconds
    if folder is not None and seconds:
        return ScheduleAsBefore.kept_in(folder, options.machine, seconds)
    return ScheduleNetwork(options.machine.l1_bytes, options.machine.l2_bytes, seconds)


def _searches(options: Options) -> Path | None:
    return None if options.tuning is None else options.tuning.folder


def _flatten(_: Options) -> ModulePass:
    # loaded here: few builds have a use for graphs of neurons
    from .passes.network.flatten_network import FlattenNetwork

    return FlattenNetwork()


PIPELINE: Final[tuple[Stage, ...]] = (
    Stage(  # fewer and simpler layers of the same function, which pays on any runtime
        "simplify",
        (
            CanonicalizePass(),  # what comes later may take for granted that trivial ops are gone
            FuseRounding(),  # before a layer takes the rounding behind it for its activation
            RecognizeLayers(),  # before anything folds away the constants by which a decomposition is known
            FoldConstants(),  # weights that the exporter left as expressions become weights
            FoldBatchNorm(keep=True),  # into the linear layer beside it
            FuseAggregations(),  # sums over edges take degrees, bias and activation
            FuseCodes(),  # bytes pass between layers on codes; activations behind them are theirs
            TakeBytes(),  # at the ends, once layers round their results
            FuseLayers(),  # bias and activation: afterwards a neuron is one column and one number
            FuseConvolutions(),  # the same for what follows a convolution, sums of branches too
            DropDeadUnits(),  # needs neurons and channels as columns; makes weights of later layers smaller
            MergeEqualUnits(),  # dropping may have made columns equal
            ReorderChannels(),  # of those that are left
            CanonicalizePass(),  # constants nobody uses any more
            Sparsify(),  # last: all of the above changes the density
            lambda options: Associate.on(options.machine),  # by the prices of weights as they are stored now
            # by samples of the inputs, on request: bytes take a quarter of the room and of the time
            _quantize,
            DiscoverStructure(),  # rows that read the same inputs make kernels possible that no random mask has
        ),
    ),
    Stage(
        "expand",
        (ExpandRecurrences(),),  # layers and loops are for code; in a file they stay the node that they were
        goals=("compile",),
        needed_for=("compile",),
    ),
    Stage(
        "arrange",
        (
            # neurons that share connections come together, on request also by a search; kernels are chosen for that
            _reorder,
            lambda options: OrderTargets(options.machine.l2_bytes),  # neighbours of a node soon after one another
        ),
        goals=("compile",),
    ),
    Stage(
        "choose",
        (
            lambda options: MeasureKernels(options.tuning) if options.tuning and options.tuning.recalls else None,
            _choose,  # by what was measured, or else predicted
            lambda options: ChooseQuantizedKernels.on(options.machine, options.kernels),
            AnnotateIoBounds(),  # for reports
        ),
        needed_for=("compile", "neurons"),
    ),
    Stage(
        "flatten",
        (_flatten,),  # layers become connections, whose transfers theory counts
        goals=("neurons",),
        needed_for=("neurons",),
    ),
    Stage(  # what lowering needs
        "tile",
        (
            ScaleChannels(),  # what stands beside no convolution becomes one of each channel
            FoldBatchNorm(),  # what stands beside no linear layer becomes a product and a sum
            CanonicalizePass(),
            lambda options: FormImageNetworks(options.threads),  # convolutions, and what runs on images beside them
            FormTiles(),  # row-wise layers run together on each batch tile
            CanonicalizePass(),
            lambda options: ShareTiles(options.threads),  # threads without a tile of their own work on the same one
            # before what would put the layers into another order
            lambda options: DropDeadRows() if options.drop_dead_rows else None,
        ),
        goals=("compile",),
        needed_for=("compile",),
    ),
    Stage(
        "schedule",
        (
            # layers that leave the cache run together, where neurons have an order for it
            _schedule,
            lambda options: ScheduleImages.on(options.machine),  # those of large images in bands
            # for the report: nothing is chosen by these times
            lambda options: MeasureGroups(options.tuning) if options.tuning and options.tuning.measures else None,
        ),
        goals=("compile",),
    ),
    Stage(
        "extract",
        # it decides from the kernels chosen, and only moves what the others left
        (
            _extraction,
            _round,  # on request: sparse networks alone gain by it
        ),
        goals=("optimize",),
        needed_for=("optimize",),
    ),
    Stage(
        "split",
        (SplitComponents(),),  # what is left multiplies by zeros
        goals=("optimize",),
    ),
)
"""All stages, in the order in which they run."""


def build(
    source: Source, options: Options | None = None, *, until: str = "", foreign: Literal["refuse", "keep"] = "refuse"
) -> ModuleOp:
    """Return the module of a model after all stages on the way to the goal of `options`, or those up to `until`.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered and not kept as `foreign`.
        ValueError: there is no such stage, or a pass to be skipped does not exist.
    """
    options = options or Options()
    passes_of(options, until=until)  # what is wrong with the options is said before a large model is read
    with within_limits():
        module = import_model(source, foreign=foreign).module
        run_stages(module, options, until=until)
    return module


def run_stages(module: ModuleOp, options: Options, *, after: str = "", until: str = "") -> None:
    """Run the stages of the goal behind `after`, or from the first one on, up to `until`, or to the last one."""
    run_passes(context(), module, passes_of(options, after=after, until=until), options.on_pass)


def passes_of(options: Options, *, after: str = "", until: str = "") -> list[ModulePass]:
    """Return the passes of these stages, without those that are skipped.

    Raises:
        ValueError: there is no such stage, or a pass to be skipped does not exist.
    """
    check_skipped(options)
    stages = stages_of(options.goal, after=after, until=until)
    return [one for stage in stages for one in _passes(stage, options) if one.name not in options.skip_passes]


def stages_of(goal: Goal, *, after: str = "", until: str = "") -> tuple[Stage, ...]:
    """Return the stages on the way to a goal: behind `after`, up to `until`.

    Raises:
        ValueError: one of these is no stage on this way.
    """
    stages = tuple(stage for stage in PIPELINE if goal in stage.goals)
    names = [stage.name for stage in stages]
    for name in filter(None, (after, until)):
        check_known("stage", [name], names)
    return stages[names.index(after) + 1 if after else 0 : names.index(until) + 1 if until else len(stages)]


def passes_up_to(stage: str) -> list[ModulePass]:
    """Return the passes that run by default for the first goal that has a stage, up to it.

    Raises:
        ValueError: there is no such stage.
    """
    goals: dict[str, Goal] = {one.name: one.goals[0] for one in PIPELINE}
    check_known("stage", [stage], [*goals])
    return passes_of(Options(goals[stage]), until=stage)


def check_skipped(options: Options) -> None:
    """Check that passes to be skipped exist, and that the goal can be reached without them.

    Raises:
        ValueError: one does not, or it cannot.
    """
    check_known("pass", options.skip_passes, skippable(options))


def skippable(options: Options) -> list[str]:
    """Return the names of the passes without which the goal can be reached."""
    free = [stage for stage in stages_of(options.goal) if options.goal not in stage.needed_for]
    return sorted({one.name for stage in free for one in _passes(stage, options)})


def check_known(kind: str, names: Iterable[str], accepted: Sequence[str]) -> None:
    """Check that all names of a kind are among those accepted.

    Raises:
        ValueError: one is not.
    """
    for name in names:
        if name not in accepted:
            raise ValueError(f"{kind}: expected one of {', '.join(accepted)}, got {name!r}")


def _passes(stage: Stage, options: Options) -> list[ModulePass]:
    made = (entry if isinstance(entry, ModulePass) else entry(options) for entry in stage.passes)
    return [one for one in made if one is not None]

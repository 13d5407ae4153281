"""`redpebble.prune`: from a dense model and some inputs to a sparse one that is faster, the page to read first here.

```
source_model    the model with its constants folded, its layers and their weights        source_model.py, layers.py
arranged        outputs that are to share inputs, beside each other                      arranged_outputs.py
segments        the model cut at its layers, and runs of it on all data                   runs/
sensitivities   what the model loses for each density of each layer                       sensitivities.py
prices          times of layers by density, as predicted, and for a time corrected by the clock   layer_prices.py
densities       those that lose least in a time, or are fastest for a loss                goal_densities.py, budgets.py
solve_layers    layer after layer pruned and refitted for what comes in now               solve_layers.py, solving/
folds           samples that weights are fitted to, and those that losses are of          folded_solver.py, runs/
estimates       what a loss on these samples says of others                               loss_estimates.py
timing          the original and the pruned model in onnxruntime, in turn                 runs/
```
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, cast

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..driver.compiler import optimized
from ..driver.model_rows import state_rows
from ..foundation.threads import usable_threads
from ..frontend.errors import within_limits
from ..frontend.import_model import Source
from ..options import Options
from ..ort.any_model import session
from ..runtime.jit import host_target
from ..runtime.memory import return_free_memory
from ..training.native_step import check_trainable
from ..tuning.machines import machine_for
from ..verification.oracle import Oracle, session_options
from .arranged_outputs import arranged
from .budgets import Allocation, Option, densities_of, options_of, sparsest, uniform, within_loss, within_time
from .coded_model import with_codes
from .finetune import Lessons, lessons_of, trained
from .folded_solver import FoldedSolver
from .layer_prices import LayerPrices
from .layers import PrunableLayer
from .loss_estimates import LossEstimate
from .losses import Loss, Losses, variance_lost
from .measured_prices import measured_corrections
from .options import Goal, Precision, PruneOptions
from .report import MethodTrial, Pruned, PrunedLayer, PruneReport, method_trials, state_pruning
from .report import densities_of as trial_densities
from .runs.calibration_data import batches_of
from .runs.call_sizes import CallSizes
from .runs.folds import Split, shuffled, spared_batches, split_batches
from .runs.layer_times import LayerClock
from .runs.segments import SegmentedModel
from .runs.timing import MeasuredTimes, ModelClock, feeds_with_rows
from .runs.traces import Trace
from .sensitivities import LossCurve, Probe, few_batches, loss_curves
from .solve_layers import LayerSolver, SolvedLayer
from .solving.few_bits import Coded, Grid
from .solving.methods import METHODS, Method, Sparsity
from .solving.structures import Structure
from .source_model import SourceModel

# Densities of all layers for a goal, found with a model and its data at hand: its losses, its prices and the clock.


LOSS_ROUNDS: Final = 4
"""Times that all layers are solved until a loss is kept: losses of layers do not quite add up."""

LITTLE_PRUNED: Final = 0.9
"""Share of the weights that is left from which on it is said why."""


@dataclass
class DensityChoice:
    """The choice of densities, by what a model loses and how long it takes; `rows` are those that it states."""

    model: SourceModel
    options: PruneOptions
    solver: FoldedSolver
    prices: LayerPrices
    clock: ModelClock
    layer_clock: LayerClock
    rows: int
    watch: Callable[[str, int, int], None]
    _rehearsals: dict[tuple[float, ...], MeasuredTimes] = field(
        default_factory=dict[tuple[float, ...], MeasuredTimes], repr=False
    )

    def allocation(self) -> Allocation:
        """Return a density for each layer.

        Raises:
            ValueError: the goal is out of reach, or not that of the structure.
        """
        goal, structure = self.options.goal, self.options.chosen_structure
        if goal.measure == "sparsity":
            density = 1 - goal.value if structure.density is None else structure.density
            if abs(density - (1 - goal.value)) > 1e-6:
                raise ValueError(f"sparsity: expected {1 - density:g}, that of the structure, got {goal.value}")
            curve = LossCurve((density,), (0.0,))
            return Allocation({one.name: options_of(one, curve, self.prices)[1] for one in self.model.layers})
        if goal.measure == "loss":
            # the clock has no say: the same data gives the same densities
            return self._within_loss()
        return self._within_time()

    def _options(self) -> dict[str, list[Option]]:
        """Return the options of all layers, with what the model loses by each alone."""
        curves = self._curves()
        return {one.name: options_of(one, curves.get(one.name), self.prices) for one in self.model.layers}

    def _within_loss(self) -> Allocation:
        """Return the densities of the shortest time that keep a loss, as close to it as a few rounds come."""
        goal, options = self.options.goal.value, self._options()
        best, asked = Allocation({name: some[0] for name, some in options.items()}), goal
        for _ in range(LOSS_ROUNDS):
            allocation = within_loss(options, asked)
            loss = float(self.solver.losses(allocation.densities).mean())
            if loss <= goal and allocation.layers_us < best.layers_us:
                best = allocation
            if 0.9 * goal <= loss <= goal:
                break
            asked *= 0.97 * goal / max(loss, 0.1 * goal)
        return best

    def _within_time(self) -> Allocation:
        """Return the densities that lose least in a time: those weighed by layer, or the same one for all layers.

        Raises:
            ValueError: the time is out of reach.
        """
        goal, structure = self.options.goal, self.options.chosen_structure

        def wanted_us() -> float:
            return 1000 * goal.value if goal.measure == "time" else self.clock.original_us / goal.value

        self.clock.measure_original()
        # what is out of reach is refused before anything that takes long
        free = {one.name: options_of(one, self._free_curve(one), self.prices) for one in self.model.layers}
        sparsest(free, self.rehearse, wanted_us)
        found = measured_corrections(self.model.layers, structure, self.prices, self.layer_clock, self.watch)
        self.prices.correct(found)
        options = self._options()
        weighed = within_time(options, wanted_us, self.rehearse, [sparsest(options, self.rehearse, wanted_us)])
        alike = within_time(options, wanted_us, self.rehearse, [weighed], uniform)
        return min(
            (weighed.allocation, alike.allocation), key=lambda one: self.solver.trial(one.densities).losses.mean()
        )

    def _free_curve(self, layer: PrunableLayer) -> LossCurve:
        """Return the densities of a layer, as if they lost nothing."""
        densities = tuple(densities_of(layer, self.options.chosen_structure, self.prices))
        return LossCurve(densities, (0.0,) * len(densities))

    def _curves(self) -> dict[str, LossCurve]:
        structure = self.options.chosen_structure
        probe = Probe(
            self.options.chosen_method,
            structure,
            self.solver.loss,
            lambda layer: densities_of(layer, structure, self.prices),
        )
        found: dict[str, LossCurve] = {}
        fitted, judged = (Trace.start(self.solver.segmented, some) for some in self.solver.split.folds[0])
        for number, (layer, curve) in enumerate(loss_curves(fitted, judged, self.model.dense, probe), 1):
            found[layer.name] = curve
            return_free_memory()
            self.watch("measuring what each layer loses", number, len(self.model.layers))
        return found

    def rehearse(self, densities: Mapping[str, float]) -> MeasuredTimes:
        """Return the times with as many connections as these densities leave: which ones hardly matters."""
        key = tuple(densities.values())
        if key not in self._rehearsals:
            self.watch("rehearsing", len(self._rehearsals), len(self._rehearsals) + 1)
            self._rehearsals[key] = self._rehearsed(densities)
        return self._rehearsals[key]

    def _rehearsed(self, densities: Mapping[str, float]) -> MeasuredTimes:
        structure, magnitude = self.options.chosen_structure, METHODS["magnitude"]
        weights: dict[str, Array] = {
            name: magnitude.solve(self.model.dense[name], np.zeros((0, 0), np.float32), Sparsity(structure, density))
            for name, density in densities.items()
            if density < 1
        }
        model = self.model.with_weights(weights)
        state_rows(model, self.rows)
        found = self.clock.times(model)
        return_free_memory()
        return found

    def obstacle(self, allocation: Allocation) -> str:
        """Return why a loss left nearly all weights where they were; nothing where it did not."""
        sizes = {layer.name: layer.size for layer in self.model.layers}
        left = sum(size * allocation.densities[name] for name, size in sizes.items()) / sum(sizes.values())
        if self.options.goal.measure != "loss" or left < LITTLE_PRUNED:
            return ""
        gaining = [one for one in self.model.layers if densities_of(one, self.options.chosen_structure, self.prices)]
        if not gaining:
            return "no layer is predicted to become faster by zeros"
        share = min(1.0, sum(map(self.prices.dense_us, gaining)) / self.clock.original_us)
        return (
            f"zeros are predicted to make {len(gaining)} of {len(sizes)} layers faster, which take {share:.0%} of the "
            f"time; more of them would lose more than {self.options.goal.value:.2%}"
        )


Array = NDArray[np.float32]
Feeds = Mapping[str, NDArray[Any]]
Watch = Callable[[str, int, int], None]
"""Called with what is done, how many parts of it are, and how many there are."""

EARLIER: Final = 0.5
"""Share of the time to finetune that all stages but the last one have."""

ROWS: Final = 128
"""Rows of a call where nobody says another number, and no image is one."""

FOLDED_WEIGHTS: Final = 4_000_000
"""Weights of all layers up to which a model is solved again for each fold of few samples."""


def prune(
    source: Source,
    feeds: Feeds | Iterable[Feeds],
    *,
    speedup: float | None = None,
    time: float | None = None,
    sparsity: float | None = None,
    loss: float | None = None,
    rows: int | None = None,
    threads: int = 1,
    structure: str | Structure = "equal",
    method: str | Method = "admm",
    keep: Iterable[str] = (),
    seed: int = 0,
    finetune: float = 0.0,
    stages: int = 1,
    labels: NDArray[Any] | None = None,
    precision: Precision = "f32",
) -> Pruned:
    """Return a model with sparse weights that is close to the dense one on the data; `redpebble.session` runs it fast.

    Exactly one goal is given, or none where the structure has one density: `speedup` over the original and `time` in
    milliseconds by onnxruntime's clock, `sparsity` of each layer, or the share of the outputs' variance that is the
    `loss`. Times are for so many `rows` of the layers, by default 128 (samples, or all tokens of a call), on so many
    threads; where there are convolutions rows are images, by default one, and tokens as many as the data has for
    these. `keep` names nodes that stay dense. `finetune` is a number of
    seconds to train what is left, for networks that `redpebble.finetune` takes: on `labels` of the samples, classes or
    wanted outputs, or else on what the dense model answers. In more than one of `stages` that is done again and again
    while layers become sparser. With the precision int8 what is left computes with integers of eight bits; with int4
    products become MatMulNBits: weights are rounded to codes of four bits while they are pruned, and later weights of a
    layer make up for what both lose.

    Raises:
        ModelError: the model is unreadable, or has no layer to prune.
        ValueError: the goal is none or out of reach, or something of the data or the options does not fit.
    """
    goal = Goal.of({"speedup": speedup, "time": time, "sparsity": sparsity, "loss": loss}, structure)
    options = PruneOptions(
        goal, rows, threads, structure, method, tuple(keep), seed, finetune, stages, labels, precision
    )
    return pruned(source, feeds, options)


def pruned(
    source: Source,
    feeds: Feeds | Iterable[Feeds],
    options: PruneOptions,
    watch: Watch | None = None,
    loss: Loss = variance_lost,
    judged: Feeds | None = None,
) -> Pruned:
    """Return the result of `prune`, by options; `loss` may be any distance of outputs from those of the dense model.

    It is that of the samples `judged`, which no weight is fitted to; without them, of some of `feeds`.

    Raises:
        ModelError: as `prune`.
        ValueError: as `prune`.
    """
    if options.precision == "int4" and options.finetune:
        raise ValueError("finetune: expected 0 seconds with precision int4, which is not trained")
    # two threads of BLAS take ten times as long for a small product as soon as anything else wants a core
    with within_limits(), threadpool_limits(1, "blas"):
        model = SourceModel.read(source, options.keep)
        return_free_memory()
        if isinstance(feeds, Mapping):
            feeds, labels = shuffled(cast("Feeds", feeds), options.labels, options.seed)
            options = replace(options, labels=labels)
        batches = batches_of(model.proto.graph, feeds)
        if options.chosen_structure.height > 1:
            model = arranged(model, batches, options.chosen_structure.height, options.keep)
        if judged is not None:
            split = spared_batches(batches, batches_of(model.proto.graph, judged))
        else:
            # where more is done than to solve, or that takes long, it is done once
            is_quick = sum(layer.size for layer in model.layers) <= FOLDED_WEIGHTS
            is_folded = is_quick and not options.finetune and options.precision == "f32"
            split = split_batches(model.proto.graph, batches, options.seed, folded=is_folded)
        return _Pruning(model, split, options, watch or _unwatched, loss).run()


def _unwatched(*_: object) -> None:
    """Show nothing."""


class _Pruning:
    """One model on its way."""

    def __init__(self, model: SourceModel, split: Split, options: PruneOptions, watch: Watch, loss: Loss) -> None:
        self.model, self.options, self.split = model, options, split
        self.watch, self.loss = watch, loss
        self.segmented = SegmentedModel.of(model.proto, model.layers, usable_threads())
        method, structure = options.chosen_method, options.chosen_structure
        self.grid = Grid() if options.precision == "int4" else None
        self.solver = FoldedSolver(self.segmented, model.dense, split, method, structure, loss, watch, self.grid)
        feeds = self._call()
        self.call = CallSizes.of(self.segmented, dict(feeds), model.dense)
        return_free_memory()
        self.prices = LayerPrices(model.layers, options, self.call, machine_for(host_target(), None))
        self.lessons = self._lessons() if options.finetune else None
        self.clock = ModelClock(model.original, feeds, options.threads)
        self.layer_clock = LayerClock(options, self.call)
        self.choice = DensityChoice(
            model, options, self.solver, self.prices, self.clock, self.layer_clock, self.call.rows, watch
        )

    def _call(self) -> Feeds:
        """Return the inputs of a call with the rows that are asked for, which are images where there are any."""
        batch = self.split.fitted[0]
        first = CallSizes.of(self.segmented, dict(batch), self.model.dense)
        rows = self.options.rows or (1 if first.images else ROWS)
        of_batch = first.samples if first.images else first.rows
        return feeds_with_rows(self.model.proto.graph, batch, of_batch, rows)

    def run(self) -> Pruned:
        allocation = self.choice.allocation()
        layers = self.solver.layers(allocation.densities)
        model = self.model.with_weights({name: one.weight for name, one in layers.items()})
        if self.lessons is not None:
            model = self._finetuned(self.lessons, model, allocation.densities)
        state_rows(model, self.call.rows)
        if self.options.precision == "int8":
            self.watch("quantizing", 0, 1)
            model = quantized(model, self.split.fitted)
        if self.grid is not None:
            self.watch("quantizing", 0, 1)
            model = with_codes(model, _codes(layers.values()), self.grid)
        is_solved = self.lessons is None and self.options.precision != "int8"
        losses = self.solver.losses(allocation.densities) if is_solved else self._losses_of(model)
        self.watch("measuring", 0, 1)
        times = self.clock.times(model)
        report = PruneReport(
            self._timed(self._reports(allocation, layers), layers),
            self._estimate(losses),
            self.clock.inputs,
            self.call.rows,
            self.options.threads,
            times,
            allocation.rest_us,
            self._trials(),
            self.choice.obstacle(allocation),
        )
        state_pruning(model, report)
        return Pruned(model, report)

    def _estimate(self, losses: Losses) -> LossEstimate:
        if not self.split.is_spared:
            return LossEstimate(float(losses.mean()), None, 0)
        return LossEstimate.of(losses, self.options.seed, len(self.split.folds))

    def _finetuned(self, lessons: Lessons, model: onnx_ir.Model, densities: Mapping[str, float]) -> onnx_ir.Model:
        """Return the pruned model trained; in stages, the dense one, pruned and trained again and again."""
        options, source = self.options, self.model
        for stage in range(1, options.stages + 1):
            self.watch("training", stage - 1, options.stages)
            if options.stages > 1:
                source = SourceModel.read(model, options.keep) if stage > 1 else source
                # logarithms of densities fall evenly
                sparser = {name: density ** (stage / options.stages) for name, density in densities.items()}
                model = source.with_weights(self._solved(sparser, source))
            is_last, earlier = stage == options.stages, EARLIER if options.stages > 1 else 0.0
            share = 1 - earlier if is_last else earlier / (options.stages - 1)
            model = trained(model, lessons, share * options.finetune, options.seed, options.threads)
        return model

    def _lessons(self) -> Lessons:
        """Return the training data; arrays that do not fit are refused before any work is done."""
        model = self.model.with_weights({})
        dense = Oracle(model, self.options.threads)
        every = lessons_of(self.split.whole, self.options.labels, lambda feeds: dense.run(feeds)[0])
        lessons = every.of_samples(~self.split.is_held_out)
        check_trainable(model, lessons.loss)
        if self.options.stages > 1 and self.options.chosen_structure.density is not None:
            raise ValueError(f"stages: expected 1 for a structure of fixed density, got {self.options.stages}")
        return lessons

    def _losses_of(self, model: onnx_ir.Model) -> Losses:
        names, threads = self.segmented.outputs, self.options.threads
        pruned = Oracle.of(partial(session, model, session_options(threads)))
        dense = Oracle(self.model.with_weights({}), threads)

        def outputs(oracle: Oracle) -> list[dict[str, NDArray[Any]]]:
            judged = self.split.folds[0].judged
            return [dict(zip(names, oracle.run(batch), strict=True)) for batch in judged]

        return self.loss(outputs(pruned), outputs(dense))

    def _solved(self, densities: Mapping[str, float], source: SourceModel) -> Mapping[str, Array]:
        segmented = SegmentedModel.of(source.proto, source.layers, usable_threads())
        start = Trace.start(segmented, self.split.fitted)
        solver = LayerSolver(start, source.dense, self.options.chosen_method, self.options.chosen_structure)
        for done, _ in enumerate(solver.solve(densities), 1):
            return_free_memory()
            self.watch("pruning", done, len(densities))
        return solver.weights

    def _timed(self, reports: Sequence[PrunedLayer], solved: Mapping[str, SolvedLayer]) -> tuple[PrunedLayer, ...]:
        """Return the layers with measured times where the report is to have them."""
        if not self.options.compares:
            return tuple(reports)
        found = list[PrunedLayer]()
        for layer, report in zip(self.model.layers, reports, strict=True):
            one = solved.get(layer.name)
            found.append(report if one is None else replace(report, measured=self.layer_clock.times(layer, one.weight)))
            self.watch("measuring layers", len(found), len(reports))
        return tuple(found)

    def _trials(self) -> tuple[MethodTrial, ...]:
        if not self.options.compares:
            return ()
        structure = self.options.chosen_structure
        total = len(METHODS) * len(trial_densities(structure))
        fitted = self.split.folds[0].fitted
        batches = fitted[: few_batches(fitted)]
        trials = method_trials(
            lambda: Trace.start(self.segmented, batches),
            self.model.dense,
            structure,
            lambda weights: float(self.solver.judged(weights).mean()),
            self.choice.rehearse,
        )
        found = list[MethodTrial]()
        for trial in trials:
            found.append(trial)
            self.watch("comparing methods", len(found), total)
        return tuple(found)

    def _reports(self, allocation: Allocation, solved: Mapping[str, SolvedLayer]) -> list[PrunedLayer]:
        return [
            PrunedLayer(
                layer.name,
                layer.inputs,
                layer.outputs,
                int(
                    np.count_nonzero(
                        solved[layer.name].weight if layer.name in solved else self.model.dense[layer.name]
                    )
                ),
                solved[layer.name].loss if layer.name in solved else 0.0,
                self.prices.dense_us(layer),
                allocation.options[layer.name].us,
            )
            for layer in self.model.layers
        ]


def _codes(layers: Iterable[SolvedLayer]) -> dict[str, Coded]:
    """Return the layers with weights of four bits, by the names of their weights."""
    return {one.layer.weight: Coded(one.weight, one.scales) for one in layers if one.scales is not None}


# A pruned model whose sparse layers compute with integers of eight bits.

SAMPLES: Final = 512
"""Samples that ranges of values are taken from, about."""


def quantized(model: onnx_ir.Model, batches: Sequence[Mapping[str, NDArray[Any]]]) -> onnx_ir.Model:
    """Return the model as `optimize --precision int8` makes it; float layers stay where int8 changes too much."""
    taken = list[Mapping[str, NDArray[Any]]]()
    for batch in batches:
        is_like_first = not taken or all(batch[name].shape[1:] == taken[0][name].shape[1:] for name in batch)
        if is_like_first and sum(min(map(len, one.values())) for one in taken) < SAMPLES:
            taken.append(batch)
    samples = {name: np.concatenate([batch[name] for batch in taken]) for name in taken[0]}
    return optimized(model, Options("optimize", samples=samples)).model

"""`redpebble.prune`: from a dense model and some inputs to a sparse one that is faster, the page to read first here.

```
source_model    the model with its constants folded, its layers and their weights        source_model.py, layers.py
segments        the model cut at its layers, and runs of it on all data                   runs/
sensitivities   what the model loses for each density of each layer                       sensitivities.py
prices          times of layers by density, as predicted, and for a time corrected by the clock   layer_prices.py
budgets         the densities that lose least in a time, or are fastest for a loss        budgets.py, allocation.py
solve_layers    layer after layer pruned and refitted for what comes in now               solve_layers.py, solving/
timing          the original and the pruned model in onnxruntime, in turn                 runs/
```
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from redpebble.foundation.threads import usable_threads
from redpebble.frontend.errors import within_limits
from redpebble.frontend.import_model import Source
from redpebble.model_rows import state_rows
from redpebble.ort.session import session
from redpebble.pruning.allocation import Option
from redpebble.pruning.budgets import Allocation, densities_of, options_of, within_loss, within_time
from redpebble.pruning.finetune import Lessons, lessons_of, trained
from redpebble.pruning.layer_prices import LayerPrices
from redpebble.pruning.losses import Loss, Outputs, variance_lost
from redpebble.pruning.measured_prices import measured_corrections
from redpebble.pruning.method_trials import MethodTrial, method_trials
from redpebble.pruning.method_trials import densities_of as trial_densities
from redpebble.pruning.options import Goal, Precision, PruneOptions
from redpebble.pruning.quantized_result import quantized
from redpebble.pruning.report import Pruned, PrunedLayer, PruneReport, state_pruning
from redpebble.pruning.runs.calibration_data import Split, batches_of, split_batches
from redpebble.pruning.runs.first_run import FirstRun
from redpebble.pruning.runs.layer_times import LayerClock
from redpebble.pruning.runs.segments import SegmentedModel
from redpebble.pruning.runs.timing import MeasuredTimes, ModelClock, feeds_with_rows
from redpebble.pruning.runs.traces import Trace, Weights
from redpebble.pruning.sensitivities import LossCurve, Probe, few_batches, loss_curves
from redpebble.pruning.solve_layers import LayerSolver, SolvedLayer
from redpebble.pruning.solving.methods import METHODS, Method, Sparsity
from redpebble.pruning.solving.structures import Structure
from redpebble.pruning.source_model import SourceModel
from redpebble.runtime.jit import host_target
from redpebble.runtime.memory import return_free_memory
from redpebble.training.native_step import check_trainable
from redpebble.tuning.machines import machine_for
from redpebble.verification.oracle import Oracle, session_options

Array = NDArray[np.float32]
Feeds = Mapping[str, NDArray[Any]]
Watch = Callable[[str, int, int], None]
"""Called with what is done, how many parts of it are, and how many there are."""

EARLIER: Final = 0.5
"""Share of the time to finetune that all stages but the last one have."""

LOSS_ROUNDS: Final = 3
"""Times that all layers are solved until a loss is kept: losses of layers do not quite add up."""


def prune(
    source: Source,
    feeds: Feeds | Iterable[Feeds],
    *,
    speedup: float | None = None,
    time: float | None = None,
    sparsity: float | None = None,
    loss: float | None = None,
    rows: int = 128,
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

    Exactly one goal is given: `speedup` over the original and `time` in milliseconds by onnxruntime's clock, `sparsity`
    of each layer, or the share of the outputs' variance that is the `loss`. Times are for `rows` rows of the layers
    (samples, or all tokens of a call) on so many threads. `keep` names nodes that stay dense. `finetune` is a number of
    seconds to train what is left, for networks that `redpebble.finetune` takes: on `labels` of the samples, classes or
    wanted outputs, or else on what the dense model answers. In more than one of `stages` that is done again and again
    while layers become sparser. With the precision int8 what is left computes with integers of eight bits.

    Raises:
        ModelError: the model is unreadable, or has no layer to prune.
        ValueError: the goal is none or out of reach, or something of the data or the options does not fit.
    """
    goal = Goal.of(speedup, time, sparsity, loss)
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
) -> Pruned:
    """Return what `prune` does, by options; `loss` may be any distance of outputs from those of the dense model.

    Raises:
        ModelError: as `prune`.
        ValueError: as `prune`.
    """
    # two threads of BLAS take ten times as long for a small product as soon as anything else wants a core
    with within_limits(), threadpool_limits(1, "blas"):
        model = SourceModel.read(source, options.keep)
        return_free_memory()
        split = split_batches(model.proto.graph, batches_of(model.proto.graph, feeds))
        return _Pruning(model, split, options, watch or _unwatched, loss).run()


def _unwatched(*_: object) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class _Solved:
    layers: Mapping[str, SolvedLayer]
    loss: float

    @property
    def weights(self) -> Mapping[str, Array]:
        """Weights [inputs, outputs] by layer."""
        return {name: one.weight for name, one in self.layers.items()}


class _Pruning:
    """One model on its way."""

    def __init__(self, model: SourceModel, split: Split, options: PruneOptions, watch: Watch, loss: Loss) -> None:
        self.model, self.options, self.split = model, options, split
        self.batches = batches = split.fitted
        self.watch, self.loss = watch, loss
        self.segmented = SegmentedModel.of(model.proto, model.layers, usable_threads())
        self.first = first = FirstRun.of(self.segmented, dict(batches[0]), model.dense)
        return_free_memory()
        self.prices = LayerPrices(model.layers, options, first, machine_for(host_target(), None))
        self.lessons = self._lessons() if options.finetune else None
        self.options_by_layer: dict[str, list[Option]] = {}
        timed = feeds_with_rows(model.proto.graph, batches[0], first.rows, options.rows)
        self.clock = ModelClock(model.original, timed, options.threads)
        self.layer_clock = LayerClock(options, first)

    def run(self) -> Pruned:
        allocation = self._allocation()
        solved = self._solved(allocation.densities)
        if self.options.goal.measure == "loss":
            allocation, solved = self._until_loss(allocation, solved)
        model, lost = self.model.with_weights(solved.weights), solved.loss
        if self.lessons is not None:
            model = self._finetuned(self.lessons, model, allocation.densities)
            lost = self._loss_of(model)
        state_rows(model, self.options.rows)
        if self.options.precision == "int8":
            self.watch("quantizing", 0, 1)
            model = quantized(model, self.batches)
            lost = self._loss_of(model)
        self.watch("measuring", 0, 1)
        times = self.clock.times(model)
        layers = tuple(self._report_of(name, allocation, solved) for name in self.model.dense)
        if self.options.compares:
            layers = self._timed(layers, solved)
        rows, threads = self.options.rows, self.options.threads
        held_out = int(self.split.is_held_out.sum())
        report = PruneReport(layers, lost, held_out, rows, threads, times, allocation.rest_us, self._trials())
        state_pruning(model, report)
        return Pruned(model, report)

    def _finetuned(self, lessons: Lessons, model: onnx_ir.Model, densities: Mapping[str, float]) -> onnx_ir.Model:
        """Return the pruned model trained; in stages, the dense one, pruned and trained again and again."""
        options, source = self.options, self.model
        for stage in range(1, options.stages + 1):
            self.watch("training", stage - 1, options.stages)
            if options.stages > 1:
                source = SourceModel.read(model, options.keep) if stage > 1 else source
                # logarithms of densities fall evenly
                sparser = {name: density ** (stage / options.stages) for name, density in densities.items()}
                model = source.with_weights(self._solved(sparser, source).weights)
            is_last, earlier = stage == options.stages, EARLIER if options.stages > 1 else 0.0
            share = 1 - earlier if is_last else earlier / (options.stages - 1)
            model = trained(model, lessons, share * options.finetune, options.seed, options.threads)
        return model

    def _lessons(self) -> Lessons:
        """Return what the network is trained by; what does not fit is refused before any work is done."""
        model = self.model.with_weights({})
        dense = Oracle(model, self.options.threads)
        every = lessons_of(self.split.whole, self.options.labels, lambda feeds: dense.run(feeds)[0])
        lessons = every.of_samples(~self.split.is_held_out)
        check_trainable(model, lessons.loss)
        if self.options.stages > 1 and self.options.chosen_structure.density is not None:
            raise ValueError("the structure has one density, stages are for those that have any")
        return lessons

    def _loss_of(self, model: onnx_ir.Model) -> float:
        names, threads = self.segmented.outputs, self.options.threads
        pruned = Oracle.of(partial(session, model, session_options(threads)))
        dense = Oracle(self.model.with_weights({}), threads)

        def outputs(oracle: Oracle) -> list[dict[str, NDArray[Any]]]:
            return [dict(zip(names, oracle.run(batch), strict=True)) for batch in self.split.judged]

        return self.loss(outputs(pruned), outputs(dense))

    @cached_property
    def _expected(self) -> Outputs:
        """The outputs of the dense model for the inputs that are held out."""
        return Trace.start(self.segmented, self.split.judged).finish(self.model.dense)

    def _allocation(self) -> Allocation:
        goal, structure = self.options.goal, self.options.chosen_structure
        if goal.measure == "sparsity":
            density = 1 - goal.value if structure.density is None else structure.density
            if abs(density - (1 - goal.value)) > 1e-6:
                raise ValueError(f"sparsity is {goal.value}, accepted is {1 - density:g}, that of the structure")
            uniform = {one.name: LossCurve((density,), (0.0,)) for one in self.model.layers}
            options = {one.name: options_of(one, uniform[one.name], self.prices)[1] for one in self.model.layers}
            return Allocation(options)
        if goal.measure != "loss":
            # for a loss the clock has no say: the same data gives the same densities
            found = measured_corrections(self.model.layers, structure, self.prices, self.layer_clock, self.watch)
            self.prices.correct(found)
        curves = self._curves()
        options = {one.name: options_of(one, curves.get(one.name), self.prices) for one in self.model.layers}
        if goal.measure == "loss":
            self.options_by_layer = options
            return within_loss(options, goal.value)

        def wanted_us() -> float:
            return 1000 * goal.value if goal.measure == "time" else self.clock.original_us / goal.value

        self.clock.measure_original()
        return within_time(options, self.clock.original_us, wanted_us, self._rehearse)

    def _curves(self) -> dict[str, LossCurve]:
        structure = self.options.chosen_structure
        probe = Probe(
            self.options.chosen_method,
            structure,
            self.loss,
            lambda layer: densities_of(layer, structure, self.prices),
        )
        found: dict[str, LossCurve] = {}
        fitted, judged = (Trace.start(self.segmented, some) for some in (self.batches, self.split.judged))
        for number, (layer, curve) in enumerate(loss_curves(fitted, judged, self.model.dense, probe), 1):
            found[layer.name] = curve
            return_free_memory()
            self.watch("measuring what each layer loses", number, len(self.model.layers))
        return found

    def _rehearse(self, densities: Mapping[str, float]) -> MeasuredTimes:
        """Return the times with as many connections as these densities leave: which ones hardly matters."""
        self.watch("rehearsing", 0, 1)
        structure, magnitude = self.options.chosen_structure, METHODS["magnitude"]
        weights: dict[str, Array] = {
            name: magnitude.solve(self.model.dense[name], np.zeros((0, 0), np.float32), Sparsity(structure, density))
            for name, density in densities.items()
            if density < 1
        }
        model = self.model.with_weights(weights)
        state_rows(model, self.options.rows)
        found = self.clock.times(model)
        return_free_memory()
        return found

    def _solved(self, densities: Mapping[str, float], source: SourceModel | None = None) -> _Solved:
        """Return the layers of a model, the dense one where none is given, pruned to these densities."""
        model = source or self.model
        segmented = (
            self.segmented if source is None else SegmentedModel.of(source.proto, source.layers, usable_threads())
        )
        solver = LayerSolver(
            Trace.start(segmented, self.batches),
            model.dense,
            self.options.chosen_method,
            self.options.chosen_structure,
        )
        layers: dict[str, SolvedLayer] = {}
        total = sum(density < 1 for density in densities.values())
        for one in solver.solve(densities):
            layers[one.layer.name] = one
            return_free_memory()
            self.watch("pruning", len(layers), total)
        return _Solved(layers, self._judged(solver.weights))

    def _judged(self, weights: Weights) -> float:
        """Return the loss on the inputs that are held out."""
        return self.loss(Trace.start(self.segmented, self.split.judged).finish(weights), self._expected)

    def _until_loss(self, allocation: Allocation, solved: _Solved) -> tuple[Allocation, _Solved]:
        """Return what keeps the loss, as close to it as a few rounds come."""
        goal, asked = self.options.goal.value, self.options.goal.value
        best = (allocation, solved) if solved.loss <= goal else None
        for _ in range(LOSS_ROUNDS):
            if 0.9 * goal <= solved.loss <= goal:
                break
            asked *= 0.97 * goal / max(solved.loss, 0.1 * goal)
            allocation = within_loss(self.options_by_layer, asked)
            solved = self._solved(allocation.densities)
            if solved.loss <= goal and (best is None or allocation.layers_us < best[0].layers_us):
                best = (allocation, solved)
        if best is None:
            dense = {name: options[0] for name, options in self.options_by_layer.items()}
            best = (replace(allocation, options=dense), _Solved({}, 0.0))
        return best

    def _timed(self, layers: Sequence[PrunedLayer], solved: _Solved) -> tuple[PrunedLayer, ...]:
        found = list[PrunedLayer]()
        for layer, report in zip(self.model.layers, layers, strict=True):
            one = solved.layers.get(layer.name)
            found.append(report if one is None else replace(report, measured=self.layer_clock.times(layer, one.weight)))
            self.watch("measuring layers", len(found), len(layers))
        return tuple(found)

    def _trials(self) -> tuple[MethodTrial, ...]:
        if not self.options.compares:
            return ()
        structure = self.options.chosen_structure
        total = len(METHODS) * len(trial_densities(structure))
        batches = self.batches[: few_batches(self.batches)]
        trials = method_trials(
            lambda: Trace.start(self.segmented, batches), self.model.dense, structure, self._judged, self._rehearse
        )
        found = list[MethodTrial]()
        for trial in trials:
            found.append(trial)
            self.watch("comparing methods", len(found), total)
        return tuple(found)

    def _report_of(self, name: str, allocation: Allocation, solved: _Solved) -> PrunedLayer:
        layer = next(one for one in self.model.layers if one.name == name)
        weight = solved.layers[name].weight if name in solved.layers else self.model.dense[name]
        return PrunedLayer(
            name,
            layer.inputs,
            layer.outputs,
            int(np.count_nonzero(weight)),
            solved.layers[name].loss if name in solved.layers else 0.0,
            self.prices.dense_us(layer),
            allocation.options[name].us,
        )

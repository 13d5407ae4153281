"""Densities of all layers for a speed, those that lose least: a layer's loss is told by a few runs of the module."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import Final

import torch
from torch import Tensor, nn

from ..pruning.budgets import GRAIN, REHEARSALS, TOO_FAST, TOO_SLOW, WANTED, Option, allocated, time_between, uniform
from ..pruning.sensitivities import QUICK_STEPS, interpolated, nearest_of, some_of
from .attentions.head_budget import Dropped, attention_us, heads_to_drop
from .attentions.heads import Heads, heads_of
from .batches import Batch, Run, device_of, moved, token_mask
from .compiled.rehearsal import Rehearsal
from .depth import blocks_of, drop_layers
from .layer_inputs import layer_inputs
from .layers import Choice, PrunableWeight, prunable_weights
from .losses import Answer
from .masks import Stored
from .prices import Call, Prices
from .report import PrunedWeight, PruneReport, Rehearsed
from .sparsifiers import Sparsifier, damped, inverse_of, loss_of, refitted, solved, sparsifier_of
from .structures import Sparsity, Structure, structure_of

PROBE_SAMPLES: Final = 64
"""Samples, about, that run through the module for each layer and density."""

LEAST_DENSITY: Final = 0.3
"""Density below which a transformer with fewer blocks is better at the same speed, once both are distilled."""


@dataclass(frozen=True)
class SpeedGoal:
    """The times by which a module is to be faster, and in which call.

    Raises:
        ValueError: a number is out of range.
    """

    speedup: float
    call: Call
    rest_us: float | None
    """Microseconds of all that is no layer to prune, less in proportion where blocks are dropped; None to rehearse."""
    shallow: bool
    """Whether blocks may be dropped."""
    heads: bool = False
    """Whether heads may be."""

    def __post_init__(self) -> None:
        if not 1 < self.speedup <= 1000:
            raise ValueError(f"speedup: expected more than 1 and up to 1000, got {self.speedup}")


@dataclass(frozen=True)
class Plan:
    """The share of zeros of each layer that has any, and the predicted times."""

    sparsities: Mapping[str, float]
    prices: Prices
    original_us: float
    rest_us: float
    blocks: tuple[int, ...] | None = None
    rehearsed: Rehearsed | None = None
    heads: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    saved_us: float = 0.0

    def reported(self, report: PruneReport, weights: Sequence[PrunableWeight]) -> PruneReport:
        """Return a report with predicted times, and with the layers that stayed dense."""
        pruned, prices = {one.name: one for one in report.layers}, self.prices
        found = list[PrunedWeight]()
        for weight in weights:
            outputs, inputs = weight.matrix.shape
            one = pruned.get(weight.name) or PrunedWeight(weight.name, outputs, inputs, weight.zeros, None)
            left = (one.size - one.zeros) / prod(weight.live.shape)
            found.append(replace(one, dense_us=prices.dense_us(one.name), us=prices.us(one.name, left)))
        return replace(
            report,
            layers=tuple(found),
            original_us=self.original_us,
            rest_us=self.rest_us,
            blocks=self.blocks,
            rehearsed=self.rehearsed,
            heads=self.heads,
            saved_us=self.saved_us,
        )


def priced(
    module: nn.Module,
    weights: Sequence[PrunableWeight],
    run: Run,
    structure: str | Structure,
    call: Call,
    rest_us: float,
) -> Plan:
    """Return the plan of a module that is pruned to a sparsity: only its times are asked for."""
    prices = Prices.of(module, weights, run, structure, call)
    return Plan({}, prices, sum(map(prices.dense_us, prices.layers)), rest_us)


def planned(
    module: nn.Module, layers: Choice, run: Run, solver: Sparsifier, structure: str | Structure, goal: SpeedGoal
) -> Plan:
    """Return the densities that lose least at a speed; blocks are dropped, in place, where that is better.

    Raises:
        ValueError: the speed is out of reach.
    """
    weights = prunable_weights(module, layers)
    prices = Prices.of(module, weights, run, structure, goal.call)
    original_us, kept, blocks, rehearsal = sum(map(prices.dense_us, prices.layers)), 1.0, None, None
    if goal.rest_us is None:
        rehearsal = Rehearsal.of(module, run, (prices.rows, prices.rows_of_batch), goal.call.threads)
    rest_us = goal.rest_us or 0.0
    if goal.shallow:
        count, wanted_us = len(blocks_of(module)[1]), (original_us + rest_us) / goal.speedup
        keep = _blocks_to_keep(module, prices, wanted_us, rest_us)
        if len(keep) < count:
            drop_layers(module, keep)
            weights, kept, blocks = prunable_weights(module, layers), len(keep) / count, tuple(keep)
            prices = Prices.of(module, weights, run, structure, goal.call)
    form, layers_us = structure_of(structure), (original_us + rest_us) / goal.speedup - kept * rest_us

    def chosen_by(one: _Choice, more_us: float = 0.0) -> tuple[dict[str, Option], Rehearsed | None]:
        if rehearsal is None:
            return one.within(layers_us + more_us), None
        options, us = one.rehearsed(rehearsal, goal.speedup, original_us)
        return options, Rehearsed(rehearsal.original_us, us, rehearsal.inputs)

    choice = _Choice(module, weights, run, prices, solver, form)
    gone, saved_us = _heads_that_go(module, run, choice, layers_us) if goal.heads else ({}, 0.0)
    saved_us = min(saved_us, kept * rest_us)
    if not gone:
        options, rehearsed = chosen_by(choice)
    else:
        refusal, options, rehearsed, least = None, dict[str, Option](), None, inf
        try:
            options, rehearsed = chosen_by(choice)
            least = choice.loss_of(options, choice.dense)
        except ValueError as error:
            refusal = error
        before = Stored.of((weight.modules, weight.attribute) for heads in gone for weight in heads.weights)
        for heads, those in gone.items():
            heads.drop(*those)
        narrower = Prices.of(module, weights, run, structure, goal.call)
        narrow = _Choice(module, weights, run, narrower, solver, form)
        try:
            others, found = chosen_by(narrow, saved_us)
        except ValueError:
            others, found = None, None
        if others is not None and narrow.loss_of(others, choice.dense) < least:
            options, rehearsed, prices = others, found, narrower
        else:
            gone, saved_us = {}, 0.0
            before.restore()
            if refusal is not None:
                raise refusal
    return Plan(
        _sparsities(options),
        prices,
        original_us,
        rest_us,
        blocks,
        rehearsed,
        {heads.name: heads.dropped for heads in gone},
        rest_us * (1 - kept) + saved_us,
    )


def _heads_that_go(
    module: nn.Module, run: Run, choice: "_Choice", layers_us: float
) -> tuple[dict[Heads, Dropped], float]:
    """Return the heads to drop, by what the layers of the dense module lose by zeros, and what their scores took.

    Raises:
        ValueError: no attention of the module is known.
    """
    known = {
        heads: shape
        for heads, shape in heads_of(module, run).items()
        if all(one.name in choice.options for one in heads.weights)
    }
    if not known:
        raise ValueError("heads: expected attentions whose layers are known (see register_attention), got none")
    hessians = layer_inputs(module, [heads.reader for heads in known], run, "products")
    gone = heads_to_drop(known, hessians, choice.options, choice.loss_with, layers_us)
    saved_us = sum(
        attention_us(heads, known[heads], choice.options[heads.reader.name][0].us)
        * (len(those.heads) - len(heads.dropped))
        / heads.count
        for heads, those in gone.items()
    )
    return gone, saved_us


def _sparsities(options: Mapping[str, Option]) -> dict[str, float]:
    return {name: 1 - option.density for name, option in options.items() if option.density < 1}


def _blocks_to_keep(module: nn.Module, prices: Prices, wanted_us: float, rest_us: float) -> list[int]:
    """Return as many blocks as reach a time with no layer sparser than `LEAST_DENSITY`, spread evenly."""
    name, blocks = blocks_of(module)
    count = len(blocks)
    for kept in range(count, 1, -1):
        # halves are rounded up: blocks 0, 3 and 5 of six
        keep = [int(index * (count - 1) / (kept - 1) + 0.5) for index in range(kept)]
        gone = tuple(f"{name}.{index}." for index in range(count) if index not in keep)
        least_us = rest_us * kept / count
        for layer in prices.layers:
            if not layer.startswith(gone):
                some = [one for one in prices.densities_of(layer) if one >= LEAST_DENSITY]
                least_us += min((prices.us(layer, one) for one in some), default=prices.dense_us(layer))
        if least_us <= wanted_us:
            return keep
    return [0]


class _Choice:
    """The choice of densities for a module, with some of its data at hand."""

    def __init__(
        self,
        module: nn.Module,
        weights: Sequence[PrunableWeight],
        run: Run,
        prices: Prices,
        solver: Sparsifier,
        structure: Structure,
    ) -> None:
        self._module, self._weights, self._run, self._structure = module, weights, run, structure
        self._batches = list(_few(run.batches))
        self.dense = self._outputs()
        if solver.reads == "movement":
            # nothing has moved yet
            solver = sparsifier_of("magnitude")
        reads = solver.reads if solver.reads != "nothing" else "norms"
        self._quick = _Quick(solver, structure, layer_inputs(module, weights, run, reads))
        self.options: dict[str, list[Option]] = {}
        for one in weights:
            densities, dense = prices.densities_of(one.name), Option(1.0, prices.dense_us(one.name), 0.0)
            losses = self._losses(one, densities, self._quick) if densities else ()
            points = zip(densities, losses, strict=True)
            self.options[one.name] = [dense, *(Option(at, prices.us(one.name, at), loss) for at, loss in points)]

    def within(self, wanted_us: float) -> dict[str, Option]:
        """Return an option for each layer, which together take so many microseconds.

        Raises:
            ValueError: the time is out of reach.
        """
        found = [choose(list(self.options.values()), wanted_us) for choose in (allocated, uniform)]
        candidates = [dict(zip(self.options, one, strict=True)) for one in found if one is not None]
        if not candidates:
            raise ValueError(
                f"expected {self._least_us / 1000:.3g} ms or more, the time of the layers at the lowest densities, "
                f"got {wanted_us / 1000:.3g} ms"
            )
        return min(candidates, key=lambda one: self.loss_of(one, self.dense))

    @property
    def _least_us(self) -> float:
        return sum(min(one.us for one in some) for some in self.options.values())

    def rehearsed(self, rehearsal: Rehearsal, speedup: float, original_us: float) -> tuple[dict[str, Option], float]:
        """Return an option for each layer by which a session is so much faster, and its microseconds.

        The session's time is taken to be a line over the predicted time of the layers: what prices do not know is the
        start of the line, and how fast the machine is its slope. Between two sides the next trial lies between both.

        Raises:
            ValueError: the speed is out of reach.
        """
        budget_us, tried = original_us / speedup, list[tuple[dict[str, Option], float]]()
        points = [(original_us, rehearsal.original_us)]
        for _ in range(REHEARSALS):
            # the sum of the least options is rounded otherwise by the chooser
            least_us = 1.001 * self._least_us
            options = self.within(max(budget_us, least_us))
            while any(options == known for known, _ in tried) and budget_us < original_us:
                # what is faster than asked for loses more than it has to
                budget_us *= GRAIN
                options = self.within(max(budget_us, least_us))
            densities = {name: one.density for name, one in options.items()}
            us = rehearsal.us(self._module, self._weights, densities, self._structure)
            tried.append((options, us))
            wanted_us = rehearsal.original_us / speedup
            if TOO_FAST <= us / wanted_us <= TOO_SLOW:
                break
            if us > wanted_us and budget_us <= least_us:
                fastest = rehearsal.original_us / us
                raise ValueError(
                    f"speedup: expected up to {fastest:.2f}, that of the lowest densities with {rehearsal.inputs}, "
                    f"got {speedup}"
                )
            points.append((sum(one.us for one in options.values()), us))
            budget_us = _where(points, WANTED * wanted_us)
        wanted_us = rehearsal.original_us / speedup
        return min(tried, key=lambda one: abs(one[1] / wanted_us - WANTED))

    def _losses(self, weight: PrunableWeight, densities: Sequence[float], quick: "_Quick") -> Iterable[float]:
        """Return what the module loses by one layer at all densities, of which some are tried."""
        known = some_of(densities)
        pruned = {one: quick.pruned(weight, one) for one in known}
        own = {one: max(quick.loss(weight, matrix), 1e-12) for one, matrix in pruned.items()}
        shares: dict[float, float] = {}
        for density in nearest_of(known):
            shares[density] = self.loss_with({weight: pruned[density]}) / own[density]
        return [float(one) for one in interpolated(densities, own) * interpolated(densities, shares)]

    def loss_of(self, options: Mapping[str, Option], dense: list[Tensor]) -> float:
        """Return what the module loses by an option for each layer, beside the outputs of a dense one."""
        pruned = {
            one: self._quick.pruned(one, options[one.name].density)
            for one in self._weights
            if options[one.name].density < 1
        }
        return self.loss_with(pruned, dense)

    def loss_with(self, matrices: Mapping[PrunableWeight, Tensor], dense: list[Tensor] | None = None) -> float:
        """Return the share of the outputs' variance that is lost with other matrices in place of some."""
        before = {one: one.values.clone() for one in matrices}
        try:
            with torch.no_grad():
                for one, matrix in matrices.items():
                    one.values.copy_(one.as_stored(matrix))
            found = self._outputs()
        finally:
            with torch.no_grad():
                for one, stored in before.items():
                    one.values.copy_(stored)
        wanted = self.dense if dense is None else dense
        moved_by = sum(float((ours - theirs).square().sum()) for ours, theirs in zip(found, wanted, strict=True))
        every = torch.cat(wanted)
        return moved_by / max(float((every - every.mean(0)).square().sum()), 1e-12)

    def _outputs(self) -> list[Tensor]:
        """Return the first output of each batch, a row for each sample or token that counts."""
        found, was_training = list[Tensor](), self._module.training
        self._module.eval()
        with torch.no_grad():
            for batch in self._batches:
                output = Answer(self._run.forward(self._module, moved(batch, device_of(self._module))), batch).tensor
                mask = token_mask(batch)
                if mask is not None and output.shape[:2] == mask.shape:
                    output = output[mask.to(output.device)]
                found.append(output.flatten(0, -2).float())
        self._module.train(was_training)
        return found


def _where(points: Sequence[tuple[float, float]], wanted_us: float) -> float:
    """Return the predicted time to try next, from those that were and what they measured, in their order."""
    if (between := time_between(points, wanted_us)) is not None:
        return between
    (first, first_us), *others = sorted(points)
    second, second_us = next((one for one in others if one[0] != first), (first, first_us))
    slope = (second_us - first_us) / (second - first) if second != first else 0.0
    # sessions may take none of our code yet, and the line lead nowhere
    return max(first + (wanted_us - first_us) / slope, first / 2) if slope > 0 else 0.7 * first


def _few(batches: Sequence[Batch]) -> Iterable[Batch]:
    samples = 0
    for batch in batches:
        yield batch
        samples += len(Answer(batch, batch).tensor)
        if samples >= PROBE_SAMPLES:
            return


class _Quick:
    """A method about as good as the one asked for, in a fraction of its time, for layers by name."""

    def __init__(self, solver: Sparsifier, structure: Structure, inputs: Mapping[str, Tensor]) -> None:
        self._quick = Sparsifier(self._refitted) if solver.reads == "products" else solver
        self._structure, self._inputs = structure, inputs
        self._diagonals: dict[int, tuple[Tensor, Tensor]] = {}

    def pruned(self, weight: PrunableWeight, density: float) -> Tensor:
        inputs = self._inputs[weight.name]
        return solved(self._quick, weight.matrix.clone(), inputs, Sparsity(self._structure, density), weight.live)

    def _refitted(self, dense: Tensor, inputs: Tensor, sparsity: Sparsity) -> Tensor:
        # layers that read the same values share their products, which are kept: no other tensor has their id
        if id(inputs) not in self._diagonals:
            self._diagonals[id(inputs)] = inputs, inverse_of(damped(inputs)).diagonal()
        mask = sparsity.mask(dense.square() / self._diagonals[id(inputs)][1])
        return refitted(dense, inputs, mask, QUICK_STEPS)

    def loss(self, weight: PrunableWeight, pruned: Tensor) -> float:
        """Return what the layer alone loses."""
        inputs = self._inputs[weight.name]
        return loss_of(weight.matrix, pruned, inputs if inputs.dim() == 2 else torch.diag(inputs))

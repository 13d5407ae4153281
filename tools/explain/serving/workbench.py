"""A model on the workbench: passes left out and kernels chosen by a person, and what becomes of speed and movement."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from ....dialect.ops.constants import constant_matrix
from ....dialect.ops.foreign import ForeignOp
from ....dialect.ops.images import Conv2dOp
from ....dialect.ops.layers import LinearOp, float_layers
from ....dialect.ops.tile_chain import CodeChain, code_chains
from ....dialect.provenance import node_name
from ....driver.compiler import compile as compile_model
from ....driver.native_build import imported_for_reports
from ....foundation.choices import NO_CHOICES, Choices
from ....foundation.threads import usable_threads
from ....frontend.errors import UnsupportedModelError, within_limits
from ....frontend.reading.model_source import read_model
from ....kernels.byte_times import FORMS, LOOKUP, TILES, WINDOWS, predicted
from ....kernels.prediction import all_predicted_us
from ....kernels.tile_widths import PIXELS, WIDTHS
from ....kernels.work import Layer
from ....options import Options
from ....ort.any_model import session
from ....passes.analysis.layer_costs import layer_key, layers_of, layers_of_ops
from ....passes.images.image_layers import tile_widths_of
from ....passes.kernels.choose_quantized_kernels import LINE_FAMILIES, accepted_families
from ....pipeline import passes_of, run_stages, skippable
from ....tuning.measure_kernels import Tuning, measure_kernels
from ....verification.feeds import Feeds, InputChoice
from ....verification.measuring import Budget, Timing, interleave
from ....verification.oracle import Oracle, session_options
from ..lowering_levels import Lowering, lowering_of

MOST_BATCH: Final = 4096
MOST_LAYERS: Final = 100
"""Layers whose kernels can be chosen: those that are predicted to take longest."""

MOST_LOWERINGS: Final = 64
"""Lowerings that are remembered, by settings: each is some numbers of every level."""

KERNEL_SECONDS, CALL_SECONDS = 2.0, 1.0
"""Seconds to measure kernels of all layers, and whole calls."""

Outputs = Callable[[], Sequence[Any]]
"""A call that returns the outputs of a model."""

Wishes = Mapping[tuple[str, int], str]
"""Families by layer and width of a tile."""


@dataclass(frozen=True)
class Settings:
    """All that a person has set."""

    batch: int = 64
    threads: int = 1
    skipped: frozenset[str] = frozenset()
    """Names of passes to leave out."""
    wishes: Wishes = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        for name, value, most in (("batch", self.batch, MOST_BATCH), ("threads", self.threads, usable_threads())):
            if not 1 <= value <= most:
                raise ValueError(f"{name}: expected 1 to {most}, got {value}")


class PassLine(NamedTuple):
    """A pass that may be left out, and what it does in a sentence."""

    name: str
    what: str


@dataclass(frozen=True)
class LayerLine:
    """A layer whose kernel can be chosen, or several that run as one, and families with their times."""

    name: str
    inputs: int
    outputs: int
    density: float
    width: int
    """Width of the tiles in which it runs."""
    unit: str
    """A column of such a tile, in the plural."""
    priced: Mapping[int, str]
    """The families that prices choose, by width."""
    predicted_us: Mapping[str, float]
    """Microseconds of a tile of this width, by family."""
    key: str
    """Name of its pattern, by which measurements are found."""


class Measured(NamedTuple):
    """Whole calls, side by side, and how far the outputs of the last one are from onnxruntime's at most."""

    timings: Mapping[str, Timing]
    difference: float


@dataclass(frozen=True)
class View:
    """The content of the page for settings."""

    settings: Settings
    choices: Choices
    layers: Sequence[LayerLine]
    before: Lowering
    after: Lowering


class Workbench:
    """A model, what was found for settings, and what was measured.

    Raises:
        ModelError: the model is unreadable.
    """

    def __init__(self, model: Path, machine: Tuning) -> None:
        """Begin with a model as it is compiled by default."""
        self.model, self._machine = model, machine
        self.kernel_us: dict[tuple[str, int, str], float] = {}
        """Measured microseconds by key of a layer, width and family."""
        self.measured: Measured | None = None
        self._known: dict[tuple[int, int, Choices], Lowering] = {}
        self._view: View | None = None
        self._view = self._viewed(Settings())

    @cached_property
    def passes(self) -> list[PassLine]:
        """The passes that may be left out, in the order in which they run."""
        names = set(skippable(Options()))
        if self._is_partly_covered:
            names &= set(skippable(Options("optimize")))
        goal = "optimize" if self._is_partly_covered else "compile"
        found = {one.name: type(one).__doc__ or "" for one in passes_of(Options(goal)) if one.name in names}
        return [PassLine(name, " ".join(text.split("\n\n")[0].split())) for name, text in found.items()]

    @property
    def view(self) -> View:
        """The content of the page for the settings of last time."""
        assert self._view is not None
        return self._view

    def set(self, settings: Settings) -> None:
        """Show the model for these settings; what was measured of whole calls is forgotten where they are others.

        Raises:
            ValueError: there is no such pass or layer.
            PassFailedException: a layer has no such kernel.
        """
        view = self._viewed(settings)
        if settings != self.view.settings:
            self.measured = None
        self._view = view

    def measure(self) -> None:
        """Measure the kernels of layers, and whole calls."""
        module = self._prepared(self.view.settings)
        tuning = replace(self._machine, folder=None, seconds=KERNEL_SECONDS, recalls=True)
        for one in measure_kernels(module, tuning):
            place = (one.layer, one.width, one.family)
            # of several numbers of blocks the best counts
            self.kernel_us[place] = min(one.microseconds, self.kernel_us.get(place, one.microseconds))
        self.measured = self._measured_calls()

    @cached_property
    def _is_partly_covered(self) -> bool:
        with within_limits():
            return any(isinstance(op, ForeignOp) for op in imported_for_reports(self.model).module.walk())

    def _options(self, settings: Settings, choices: Choices) -> Options:
        return Options(
            threads=settings.threads, tuning=self._machine, skip_passes=choices.skip_passes, kernels=choices.kernels
        )

    def _viewed(self, settings: Settings) -> View:
        known = [one.name for one in self.passes]
        for name in settings.skipped - set(known):
            raise ValueError(f"pass: expected one of {', '.join(known)}, got {name!r}")
        skipped = tuple(name for name in known if name in settings.skipped)
        choices = Choices(skipped)
        before = self._lowered(settings, NO_CHOICES)
        first = self._lowered(settings, choices) if skipped else before
        last = self._view
        is_other_kernel_alone = last is not None and replace(settings, wishes=last.settings.wishes) == last.settings
        layers = last.layers if last is not None and is_other_kernel_alone else self._layers(settings, first)
        choices = Choices(skipped, _kernels(settings.wishes, layers))
        after = self._lowered(settings, choices) if choices.kernels else first
        return View(settings, choices, layers, before, after)

    def _lowered(self, settings: Settings, choices: Choices) -> Lowering:
        key = settings.batch, settings.threads, choices
        if key not in self._known:
            while len(self._known) >= MOST_LOWERINGS:
                del self._known[next(iter(self._known))]
            self._known[key] = lowering_of(self.model, self._options(settings, choices), (settings.batch,))
        return self._known[key]

    def _prepared(self, settings: Settings) -> ModuleOp:
        """Return the module in which kernels have been chosen, by prices."""
        with within_limits():
            module = imported_for_reports(self.model).module
            run_stages(module, self._options(settings, Choices(tuple(settings.skipped))), until="choose")
        return module

    def _layers(self, settings: Settings, lowering: Lowering) -> list[LayerLine]:
        module, rows = self._prepared(settings), lowering.rows[settings.batch]
        prices = self._machine.machine.prices
        linears = [*float_layers(module.walk())]
        found = [
            self._line(op, layer, max(width for width in WIDTHS if width <= max(1, rows.get(node_name(op), 1))))
            for op, layer in zip(linears, layers_of_ops(linears), strict=True)
        ]
        convolutions = [op for op in module.walk() if isinstance(op, Conv2dOp) and op.times is None]
        found += [self._line(op, layers_of([op.weight])[0], PIXELS) for op in convolutions]
        found += [self._line_of_codes(chain, rows) for chain in code_chains(module.walk())]
        found += [
            _line_of_image(op, prices) for op in module.walk() if isinstance(op, Conv2dOp) and op.times is not None
        ]
        named = [line for line in found if line is not None and line.name not in lowering.left]
        named.sort(key=lambda line: -line.predicted_us[line.priced[line.width]])
        return named[:MOST_LAYERS]

    def _line(self, op: LinearOp | Conv2dOp, layer: Layer, width: int) -> LayerLine | None:
        """Return the line of a layer; None where it cannot be named, or is empty."""
        kernel, name = op.kernel, node_name(op)
        if kernel is None or not name or not layer.inputs or not layer.outputs:
            return None
        widths = tile_widths_of(op, self._machine.machine.lanes) if isinstance(op, Conv2dOp) else WIDTHS
        times = {one: all_predicted_us(layer, one, self._machine.machine) for one in {width, *widths}}
        if any(kernel.family_at(one) not in known for one, known in times.items()):
            # a dense convolution whose last panel would be mostly zeros is priced as a sparse one
            sparse = replace(layer, stored="sparse")
            times = {one: all_predicted_us(sparse, one, self._machine.machine) for one in times}
        accepted = times[width]
        if isinstance(op, Conv2dOp):
            # one family for tiles of all widths
            accepted = {family: us for family, us in accepted.items() if all(family in one for one in times.values())}
        priced = {one: kernel.family_at(one) for one in widths}
        return LayerLine(
            name,
            layer.inputs,
            layer.outputs,
            int(np.sum(layer.counts)) / (layer.inputs * layer.outputs),
            width,
            "pixels" if isinstance(op, Conv2dOp) else "columns",
            priced,
            {priced[width]: times[width][priced[width]], **accepted},
            layer_key(op.weight, layer),
        )

    def _line_of_codes(self, chain: CodeChain, rows: Mapping[str, int]) -> LayerLine | None:
        """Return the line of layers on codes that run as one; None where this machine has one way, or they no name."""
        names = [name for op in chain.linears if (name := node_name(op))]
        weights = [matrix for layer in chain.layers if (matrix := constant_matrix(layer.weight)) is not None]
        entries = sum(weight.shape[0] * weight.shape[1] for weight in weights)
        if chain.kernel is None or not names or not entries:
            return None
        target, prices = self._machine.target, self._machine.machine.prices
        times = predicted(weights, prices, yields_floats=not chain.yields_bytes).by_family
        lacking = {*(() if target.multiplies_bytes else FORMS), *(() if target.looks_up_lines else (WINDOWS,))}
        lacking |= set() if target.multiplies_tiles else {TILES}
        width = max(one for one in times[LOOKUP] if one <= max(1, rows.get(names[0], 1)))
        accepted = [family for family in accepted_families(width, times) if family not in lacking]
        if len(accepted) < 2:
            return None
        priced = {one: chain.kernel.family_at(one) for one in times[LOOKUP]}
        return LayerLine(
            names[0],
            chain.layers[0].inputs,
            chain.layers[-1].outputs,
            sum(len(weight.values) for weight in weights) / entries,
            width,
            "rows",
            priced,
            {family: times[family][width] for family in {priced[width]: None, **dict.fromkeys(accepted)}},
            "",
        )

    def _measured_calls(self) -> Measured:
        settings = self.view.settings
        model = read_model(self.model, any_version=True)
        ((_, feeds),) = InputChoice().of_batches(model, [settings.batch])
        oracle = Oracle(self.model, settings.threads)
        expected = Oracle(self.model, settings.threads, exact=True).run(dict(feeds))
        calls: dict[str, Outputs] = {
            "onnxruntime": lambda: oracle.session.run(None, feeds),
            "as compiled by default": self._call(NO_CHOICES, feeds),
            "as chosen": self._call(self.view.choices, feeds),
        }
        outputs = zip(calls["as chosen"](), expected, strict=True)
        difference = max(
            (float(np.abs(np.subtract(one, other, dtype=np.float64)).max(initial=0)) for one, other in outputs),
            default=0.0,
        )
        return Measured(interleave(calls, Budget(CALL_SECONDS)), difference)

    def _call(self, choices: Choices, feeds: Feeds) -> Outputs:
        """Return a call of native code; of a session, where native code does not cover the model."""
        threads = self.view.settings.threads
        try:
            network = compile_model(self.model, threads=threads, choices=choices)
        except UnsupportedModelError:
            made = session(self.model, session_options(threads), choices=choices)
            return lambda: made.run(None, feeds)
        return lambda: network.run(None, feeds)


def _line_of_image(op: Conv2dOp, prices: str) -> LayerLine | None:
    """Return the line of a convolution on codes; None where it cannot be named, or is empty."""
    weight, name = constant_matrix(op.on_codes.weight), node_name(op)
    if op.kernel is None or weight is None or not name or not weight.shape[0] * weight.shape[1]:
        return None
    times = predicted([weight], prices, yields_floats=False).by_family
    return LayerLine(
        name,
        *weight.shape,
        len(weight.values) / (weight.shape[0] * weight.shape[1]),
        PIXELS,
        "pixels",
        {PIXELS: op.kernel.family_at(PIXELS)},
        {family: times[family][PIXELS] for family in LINE_FAMILIES},
        "",
    )


def _kernels(wishes: Wishes, layers: Sequence[LayerLine]) -> tuple[tuple[str, str], ...]:
    """Return kernels of layers for which a person wants other families than the priced ones, in words of reports."""
    kernels: list[tuple[str, str]] = []
    for line in layers:
        wanted = {width: family for (name, width), family in wishes.items() if name == line.name}
        if not wanted:
            continue
        if 1 not in line.priced:
            # a convolution has one family for all tiles
            kernels.append((line.name, list(wanted.values())[-1]))
            continue
        families = [(width, wanted.get(width, family)) for width, family in line.priced.items()]
        if forms := [(width, family) for width, family in wanted.items() if family in FORMS]:
            # layers are packed for one kind of quads, which all more rows are for
            start, form = forms[-1]
            families = [
                (width, family)
                if family == form or family not in FORMS
                else (width, form if width >= start else LOOKUP)
                for width, family in families
            ]
        others = ("", *(family for _, family in families))
        starts = [one for one, before in zip(families, others, strict=False) if one[1] != before]
        text = starts[0][1] if len(starts) == 1 else ", ".join(f"{family} from {width}" for width, family in starts)
        kernels.append((line.name, text))
    return tuple(kernels)

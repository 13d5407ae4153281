"""Levels of lowering: what a model computes and moves after each pass that changes something of it, and how long."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Final

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass

from ...dialect.ops.attention import Attention
from ...dialect.ops.constants import is_constant
from ...dialect.ops.foreign import ForeignOp
from ...dialect.ops.images import Conv2dOp
from ...dialect.ops.layers import LayerNormOp, LinearOp, NormalizedOp, ReduceMeanOp, RmsNormOp
from ...dialect.ops.recurrences import RecurrenceOp
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.sparse_network import SparseNetworkOp
from ...dialect.ops.tile import TileOp
from ...dialect.provenance import node_name
from ...dialect.reports.layer_numbers import layer_numbers
from ...dialect.symbolic_sizes import DIMS
from ...dialect.tensors import shape_of
from ...driver.extraction import extracted
from ...driver.native_build import imported_for_reports
from ...driver.placement import Placement, nodes_left, placement_of
from ...frontend.errors import within_limits
from ...frontend.import_model import Source
from ...frontend.multiply_adds import value_shapes
from ...kernels.dense_work import dense_us
from ...kernels.machine import Machine
from ...kernels.prediction import candidates, predicted_us
from ...kernels.tile_costs import REDUCED_US, transpose_us
from ...kernels.tile_widths import WIDTHS, time_of_rows
from ...options import Options
from ...passes.analysis.data_movement import ROWS, FreeSizes, Lowered, OpMovement, module_movement
from ...passes.analysis.layer_costs import layer_key, layers_of
from ...passes.tiles.share_tiles import around_layers_us
from ...pipeline import PIPELINE, run_stages
from ...theory.attention_cost import WEIGHT_WORK

BATCHES: Final = (1, WIDTHS[-1])
"""Batches for which movement is told."""

AROUND: Final = "rows to columns and back"
"""The kind of what a tile does beside its layers: transposition, normalizations."""

UNPRICED: Final = "simplify"
"""The stage whose passes gain nothing where nothing less is moved: there no prices are asked for then."""

LEAST_CHANGE: Final = 0.002
"""Share of the time that makes a level of its own."""

IMPORTED: Final = ("import", "import", "The model as its file has it, an op for each node")
"""Stage, name and sentence of the first level."""

REDUCTIONS: Final = (LayerNormOp, RmsNormOp, NormalizedOp, ReduceMeanOp)


@dataclass(frozen=True)
class KindMovement:
    """Movement of all ops of a kind together, in floating-point operations, bytes and microseconds."""

    kind: str
    ops: int
    operations: int
    weight_bytes: int
    activation_bytes: int
    cached_bytes: int
    predicted_us: float

    @staticmethod
    def sum_of(kind: str, parts: Iterable["KindMovement"]) -> "KindMovement":
        """Return several of them together."""
        every = list(parts)
        return KindMovement(
            kind,
            sum(part.ops for part in every),
            sum(part.operations for part in every),
            sum(part.weight_bytes for part in every),
            sum(part.activation_bytes for part in every),
            sum(part.cached_bytes for part in every),
            sum(part.predicted_us for part in every),
        )

    @property
    def moved_bytes(self) -> int:
        """Bytes that come from memory and go there."""
        return self.weight_bytes + self.activation_bytes


@dataclass(frozen=True)
class Level:
    """A model behind a pass: its stage in the pipeline, and what it moves by batch and kind of op, most first."""

    stage: str
    name: str
    what: str
    """The pass in one sentence."""
    kinds: Mapping[int, tuple[KindMovement, ...]]

    def total(self, batch: int) -> KindMovement:
        """Return the movement of all ops together for a batch."""
        return KindMovement.sum_of("all", self.kinds[batch])


@dataclass(frozen=True)
class Lowering:
    """Levels of a model, and where its work lies where native code does not take all of it."""

    levels: tuple[Level, ...]
    placement: Placement | None
    rows: Mapping[int, Mapping[str, int]]
    """Rows of linear layers by batch and name."""
    left: frozenset[str] = frozenset()
    """Names of linear layers that stay with onnxruntime, of a model that is not covered as a whole."""


def lowering_of(source: Source, options: Options, batches: Sequence[int] = BATCHES) -> Lowering:
    """Return the levels of a model on its way to native code; of one that is covered in part, by its sparse networks.

    Movement is told for some batches, one or more.

    Raises:
        ModelError: the model is unreadable.
    """
    # one measure for all levels: only kernels that were chosen may have been timed
    options = replace(options, tuning=options.tuning and replace(options.tuning, recalls=False), on_pass=None)
    with within_limits():
        imported = imported_for_reports(source)
        sizes = {batch: value_shapes(imported.model, batch) for batch in batches}
        recorder = LevelRecorder(options.machine, sizes)
        watched, module, placement = replace(options, on_pass=recorder.on_pass), imported.module, None
        left = frozenset[str]()
        if any(isinstance(op, ForeignOp) for op in module.walk()):
            found = extracted(source, replace(options, goal="optimize"))
            placement, module = placement_of(nodes_left(found.imported.module, found.imported)), found.before
            recorder.take(*IMPORTED, module)
            run_stages(module, replace(watched, goal="optimize"), until="extract")
            recorder.take_networks(module, options)
            left = _left(module)
        else:
            recorder.take(*IMPORTED, module)
            run_stages(module, watched)
    return Lowering(tuple(recorder.levels), placement, recorder.rows, left)


def _left(module: ModuleOp) -> frozenset[str]:
    """Return the names of linear layers outside of sparse networks."""
    outside = [op for op in module.walk() if not isinstance(op.parent_op(), SparseNetworkOp)]
    return frozenset(node_name(op) for op in outside if isinstance(op, LinearOp | Conv2dOp)) - {""}


@dataclass(eq=False)
class LevelRecorder:
    """Levels of a module on its way; a pass that changes no number makes none."""

    machine: Machine
    sizes: Mapping[int, Mapping[str, tuple[int, ...]]]
    """Shapes of ONNX values by batch and name."""
    levels: list[Level] = field(default_factory=list[Level])
    rows: Mapping[int, Mapping[str, int]] = field(default_factory=dict[int, Mapping[str, int]])
    """Rows of linear layers by batch and name, behind the last pass."""
    _stage: str = ""
    _counted: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    _known: dict[str, Mapping[int, float]] = field(default_factory=dict[str, Mapping[int, float]])

    def on_pass(self, done: ModulePass, module: ModuleOp) -> None:
        """Take the level behind a pass."""
        # some passes stand in several stages: those that are over do not come again
        begun = [stage.name for stage in PIPELINE].index(self._stage) if self._stage else 0
        stages = (stage.name for stage in PIPELINE[begun:] if done.name in _names(stage.passes))
        # what options make a pass of stands in no list: it belongs to the stage of the one before
        self._stage = next(stages, self._stage)
        summary = " ".join((type(done).__doc__ or "").split("\n\n")[0].split()).rstrip(".")
        self.take(self._stage, done.name.removeprefix("pebble-").replace("-", " "), summary, module)

    def take(self, stage: str, name: str, what: str, module: ModuleOp, lowered: Lowered | None = None) -> None:
        """Take the level of a module; networks that are `lowered` count as the functions that they have become."""
        functions = lowered or {}
        moved = {
            batch: module_movement(module, FreeSizes(batch, by_value=sizes), functions)
            for batch, sizes in self.sizes.items()
        }
        counted = [
            (one.operations, one.weight_bytes, one.activation_bytes, one.cached_bytes) for one in moved[min(moved)]
        ]
        if stage == UNPRICED and counted == self._counted:
            return
        lowered_modules = (func.parent_op() for func in functions.values())
        times = self._times([module, *(one for one in lowered_modules if isinstance(one, ModuleOp))])
        kinds = {batch: _by_kind(ops, times, self.machine) for batch, ops in moved.items()}
        level = Level(stage, name, what, kinds)
        if not self.levels or counted != self._counted or _is_faster(level, self.levels[-1]):
            self.levels.append(level)
        self._counted = counted
        self.rows = {
            batch: {one.name: one.rows for one in ops if isinstance(one.op, LinearOp | Conv2dOp)}
            for batch, ops in moved.items()
        }

    def take_networks(self, module: ModuleOp, options: Options) -> None:
        """Take the level of a module whose sparse networks are lowered by `options`, each by itself."""
        networks = [op for op in module.walk() if isinstance(op, SparseNetworkOp)]
        lowered = {op: _lowered(op, options) for op in networks}
        what = "Move layers with sparse weights into sparse networks, and run their layers together in tiles of rows"
        self.take("tile", "form sparse networks and tiles", what, module, lowered)

    def _times(self, modules: Sequence[ModuleOp]) -> dict[Operation, Mapping[int, float]]:
        """Return the microseconds of linear layers by width: of their kernels, or else of the best that there is."""
        times: dict[Operation, Mapping[int, float]] = {}
        for module in modules:
            found = layer_numbers(module)
            times |= {op: numbers.predicted for op, numbers in found.items() if numbers.predicted}
            unknown = [op for op, numbers in found.items() if not numbers.predicted and is_constant(op.weight)]
            constants = [op.weight for op in found if is_constant(op.weight)]
            layers = dict(zip(constants, layers_of(constants), strict=True)) if unknown else {}
            for op in unknown:
                layer = layers[op.weight]
                key = layer_key(op.weight, layer)
                if key not in self._known:
                    self._known[key] = {
                        width: min(
                            predicted_us(family, layer, width, self.machine)
                            for family in candidates(layer, width, self.machine)
                        )
                        for width in WIDTHS
                    }
                times[op] = self._known[key]
        return times


def _names(entries: Iterable[object]) -> set[str]:
    return {entry.name for entry in entries if isinstance(entry, ModulePass)}


def _is_faster(one: Level, other: Level) -> bool:
    times = [(one.total(batch).predicted_us, other.total(batch).predicted_us) for batch in one.kinds]
    return any(abs(now - before) > LEAST_CHANGE * before for now, before in times)


def _by_kind(
    moved: Sequence[OpMovement], times: Mapping[Operation, Mapping[int, float]], machine: Machine
) -> tuple[KindMovement, ...]:
    """Return movement by kind of op, most bytes first."""
    parts = [
        KindMovement(
            one.op.name.removeprefix("pebble.").replace("_", " "),
            1,
            one.operations,
            one.weight_bytes,
            one.activation_bytes,
            one.cached_bytes,
            _microseconds(one, times.get(one.op, {}), machine),
        )
        for one in moved
    ]
    pairs = list(zip(moved, parts, strict=True))
    for tile, members in groupby(pairs, key=lambda pair: pair[0].op.parent_op()):
        if isinstance(tile, TileOp):
            inside = list(members)
            layers_us = sum(part.predicted_us for _, part in inside)
            parts.append(KindMovement(AROUND, 0, 0, 0, 0, 0, _around_us(tile, inside[0][0], layers_us)))
    parts.sort(key=lambda part: part.kind)
    kinds = [KindMovement.sum_of(kind, every) for kind, every in groupby(parts, key=lambda part: part.kind)]
    return tuple(sorted(kinds, key=lambda part: -(part.moved_bytes + part.cached_bytes)))


def _around_us(tile: TileOp, one: OpMovement, layers_us: float) -> float:
    """Return the time of a tile beside its layers; `one` is any op inside, `layers_us` the time of all layers."""
    known = tile.schedule.serial
    if not all(each.width in known for each in one.tiles):
        return sum(each.number * around_layers_us(tile, each.width) for each in one.tiles)
    return max(0.0, sum(each.number * known[each.width] for each in one.tiles) - layers_us)


def _microseconds(one: OpMovement, by_width: Mapping[int, float], machine: Machine) -> float:
    """Return the predicted time of an op; what a tile does beside its layers is known of the tile alone."""
    if isinstance(one.op, Conv2dOp):
        return time_of_rows(by_width, one.rows) if by_width else 0.0
    if isinstance(one.op, LinearOp):
        if one.tiles:
            return sum(each.number * by_width.get(each.width, 0.0) for each in one.tiles)
        # by itself it also has to bring its rows into columns, and back
        features = sum(shape_of(one.op.weight))
        alone = {width: us + (transpose_us(features, width) if width > 1 else 0.0) for width, us in by_width.items()}
        return time_of_rows(alone, one.rows) if alone else 0.0
    if isinstance(one.op, Attention):
        # as its operations are two for each multiply-add of the products
        features = one.op.key_size + one.op.value_size
        return dense_us(ROWS, machine) * one.operations / 2 * (features + WEIGHT_WORK) / features
    if one.tiles:
        return 0.0
    values = one.operations if isinstance(one.op, REDUCTIONS) else 0
    return REDUCED_US * values + machine.far_ns(one.activation_bytes, one.activation_bytes) / 1000


def _lowered(network: SparseNetworkOp, options: Options) -> FuncOp:
    """Return a function that is what native code for a network is made from."""
    body = network.body.block
    inputs, outputs = list(body.arg_types), [value.type for value in network.yielded]
    func = FuncOp("main", (inputs, outputs), Region(Block(arg_types=inputs)))
    func.arg_attrs = ArrayAttr([DictionaryAttr({DIMS: words}) for words in network.dims])
    values: dict[SSAValue, SSAValue] = dict(zip(body.args, func.args, strict=True))
    outside = [value for op in body.ops for value in op.operands if is_constant(value) and value not in values]
    owners = [owner for owner in dict.fromkeys(value.owner for value in outside) if isinstance(owner, Operation)]
    for op in (*(owner for owner in owners if owner.parent is not body), *body.ops):
        if isinstance(op, YieldOp):
            func.body.block.add_op(ReturnOp(*(values[value] for value in op.operands)))
        else:
            func.body.block.add_op(op.clone(values))
    module = ModuleOp([func])
    # what is in a network was priced before, but for a recurrence, whose layers are there from here on
    is_recurrent = any(isinstance(op, RecurrenceOp) for op in module.walk())
    run_stages(module, options, after="simplify" if is_recurrent else "choose")
    return next(op for op in module.walk() if isinstance(op, FuncOp))


def levels_report(lowering: Lowering) -> list[dict[str, object]]:
    """Return levels as the JSON that `explain --report` writes."""
    return [
        {
            "stage": level.stage,
            "name": level.name,
            "what": level.what,
            "kinds": {str(batch): [asdict(part) for part in parts] for batch, parts in level.kinds.items()},
        }
        for level in lowering.levels
    ]

"""The pipeline as data: stages, what may be skipped, and where a build ends."""

import re
from typing import get_args

import onnx
import pytest
from xdsl.passes import ModulePass

import redpebble
from redpebble.dialect.ops.tile import TileOp
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.kernels.machine import Machine
from redpebble.models.zoo import build as zoo_model
from redpebble.options import Goal, Options
from redpebble.pipeline import PIPELINE, build, passes_of, passes_up_to, run_stages
from redpebble.runtime.jit import host_target
from redpebble.tuning.measure_kernels import Tuning
from redpebble.universe import REDPEBBLE_UNIVERSE

SPEC = "ffnn(depth=2, width=24, density=0.2)"
FOREIGN = """
<ir_version: 10, opset_import: ["" : 21]>
graph (float[n, 2] x) => (float[n, 2] y) { y = Sin(x) }
"""


def names(passes: list[ModulePass]) -> list[str]:
    return [one.name for one in passes]


@pytest.mark.parametrize("goal", get_args(Goal))
def test_the_stages_of_a_goal_put_together_are_its_whole_way(goal: Goal) -> None:
    options = Options(goal)
    stages = [stage.name for stage in PIPELINE if goal in stage.goals]
    ends = ["", *stages[:-1]]
    parts = (passes_of(options, after=after, until=until) for after, until in zip(ends, stages, strict=True))
    assert [name for part in parts for name in names(part)] == names(passes_of(options))


def test_no_stage_has_the_name_of_another() -> None:
    stages = [stage.name for stage in PIPELINE]
    assert len({*stages}) == len(stages)


def test_xdsl_opt_knows_the_passes_of_all_stages() -> None:
    known = {*REDPEBBLE_UNIVERSE.all_passes, "canonicalize"}
    assert all({*names(passes_of(Options(goal)))} <= known for goal in get_args(Goal))


def test_options_decide_what_runs() -> None:
    usual = names(passes_of(Options()))
    dropping = names(passes_of(Options(drop_dead_rows=True)))
    tuning = names(passes_of(Options(tuning=Tuning(host_target(), Machine(), None))))
    assert {*dropping} - {*usual} == {"pebble-drop-dead-rows"}
    assert {*tuning} - {*usual} == {"pebble-measure-kernels", "pebble-measure-groups"}
    assert "pebble-form-sparse-networks" not in names(passes_of(Options("optimize", sparse_networks=False)))


def test_a_build_ends_after_the_stage_that_is_asked_for_and_goes_on_from_there() -> None:
    module = build(zoo_model(SPEC), until="choose")
    assert not any(isinstance(op, TileOp) for op in module.walk())
    run_stages(module, Options(), after="choose")
    assert module.is_structurally_equivalent(build(zoo_model(SPEC)))


def test_each_pass_is_told_of_with_the_module_it_left() -> None:
    seen: list[tuple[str, int]] = []
    options = Options(on_pass=lambda done, module: seen.append((done.name, sum(1 for _ in module.walk()))))
    module = build(zoo_model(SPEC), options, until="simplify")
    assert [name for name, _ in seen] == names(passes_of(options, until="simplify"))
    assert seen[-1][1] == sum(1 for _ in module.walk())


def test_what_is_not_covered_is_refused_or_kept() -> None:
    model = onnx.parser.parse_model(FOREIGN)
    with pytest.raises(UnsupportedModelError, match="operator Sin"):
        build(model, until="simplify")
    assert "Sin" in str(build(model, until="simplify", foreign="keep"))


def test_a_stage_names_the_first_goal_that_has_it() -> None:
    assert names(passes_up_to("tile")) == names(passes_of(Options(), until="tile"))
    assert names(passes_up_to("split")) == names(passes_of(Options("optimize")))


STAGES = {
    "compile": "simplify, expand, arrange, choose, tile, schedule",
    "optimize": "simplify, choose, extract, split",
    "neurons": "simplify, choose, flatten",
}


@pytest.mark.parametrize("goal", get_args(Goal))
def test_an_unknown_stage_is_refused_before_the_model_is_read(goal: Goal) -> None:
    with pytest.raises(ValueError, match=rf"^stage: expected one of {STAGES[goal]}, got 'native'$"):
        build("nowhere.onnx", Options(goal), until="native")
    with pytest.raises(ValueError, match=r"^stage: expected one of simplify, .*, split, got 'native'$"):
        passes_up_to("native")


SKIPPABLE = {
    "compile": {"pebble-fuse-layers", "pebble-reorder-neurons", "pebble-schedule-network"},
    "optimize": {"pebble-fuse-layers", "pebble-choose-kernels", "pebble-split-components"},
    "neurons": {"pebble-fuse-layers"},
}
NEEDED = {
    "compile": ("pebble-choose-kernels", "pebble-form-tiles", "pebble-frobnicate"),
    "optimize": ("pebble-form-sparse-networks", "pebble-form-tiles"),
    "neurons": ("pebble-flatten-network", "pebble-choose-kernels"),
}


@pytest.mark.parametrize("goal", get_args(Goal))
def test_passes_that_a_goal_needs_cannot_be_skipped(goal: Goal) -> None:
    skipped = Options(goal, skip_passes=tuple(SKIPPABLE[goal]))
    assert {*names(passes_of(Options(goal)))} - {*names(passes_of(skipped))} == SKIPPABLE[goal]
    for name in NEEDED[goal]:
        with pytest.raises(ValueError, match=rf"^pass: expected one of canonicalize, .*, got '{name}'") as refused:
            passes_of(Options(goal, skip_passes=(name,)))
        accepted = re.findall(r"pebble-[a-z-]+", str(refused.value))[1:]
        assert SKIPPABLE[goal] <= {*accepted}


def test_a_pass_to_be_skipped_is_known_before_the_cache_is_asked() -> None:
    with pytest.raises(ValueError, match=r"^pass: expected one of .*, got 'x'"):
        redpebble.compile("nowhere.onnx", skip_passes=("x",))
    with pytest.raises(ValueError, match=r"^pass: expected one of .*, got 'x'"):
        redpebble.optimize("nowhere.onnx", skip_passes=("x",))


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_options_that_make_no_sense_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"^threads: expected 1 or more, got 0$"):
        Options(threads=0)
    for name in ("reorder_seconds", "schedule_seconds"):
        with pytest.raises(ValueError, match=rf"^{name}: expected 0 or more, got {seconds}$"):
            Options(reorder_seconds=seconds) if name == "reorder_seconds" else Options(schedule_seconds=seconds)

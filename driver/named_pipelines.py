"""Pipelines by name, for `-p` of `xdsl-opt` and `redpebble-opt`: `pebble-compile`, or `pebble-simplify` alone.

`pebble-compile` and `pebble-optimize` run all stages on the way to a goal, the others the passes of one stage. They
choose for the machine that is built in, and do not depend on what was measured on this one.
"""

from abc import abstractmethod
from dataclasses import dataclass

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ..options import Goal, Options
from ..passes.runner import run_passes
from ..pipeline import PIPELINE, passes_of, stages_of


class NamedPipeline(ModulePass):
    """A pass that runs others, in order."""

    @abstractmethod
    def passes(self) -> list[ModulePass]:
        """Return the passes."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        run_passes(ctx, op, self.passes())


@dataclass(frozen=True)
class CompilePipeline(NamedPipeline):
    """All passes before native code, which `-t pebble-llvm` prints then."""

    name = "pebble-compile"

    threads: int = 1
    """The most threads that a call may use."""
    drop_dead_rows: bool = False
    """Whether rows of the batch that have become zeros are dropped on the way."""
    reorder_seconds: float = 0.0
    """Seconds to anneal the order of neurons."""
    schedule_seconds: float = 0.0
    """Seconds to anneal which layers run together."""

    @override
    def passes(self) -> list[ModulePass]:
        options = Options(
            threads=self.threads,
            drop_dead_rows=self.drop_dead_rows,
            reorder_seconds=self.reorder_seconds,
            schedule_seconds=self.schedule_seconds,
        )
        return passes_of(options)


@dataclass(frozen=True)
class OptimizePipeline(NamedPipeline):
    """All passes before a module is written as ONNX."""

    name = "pebble-optimize"

    sparse_networks: bool = True
    """Whether sparse layers become nodes of ours."""

    @override
    def passes(self) -> list[ModulePass]:
        return passes_of(Options("optimize", sparse_networks=self.sparse_networks))


def stage_pipeline(stage: str) -> type[NamedPipeline]:
    """Return the pipeline of one stage, with the options that its passes have by default.

    Raises:
        ValueError: there is no such stage.
    """
    goals: dict[str, Goal] = {one.name: one.goals[0] for one in PIPELINE}
    goal: Goal = goals.get(stage, "compile")
    before = [one.name for one in stages_of(goal, until=stage)][:-1]

    class StagePipeline(NamedPipeline):
        """The passes of one stage."""

        name = f"pebble-{stage}"

        @override
        def passes(self) -> list[ModulePass]:
            return passes_of(Options(goal), after=before[-1] if before else "", until=stage)

    return StagePipeline

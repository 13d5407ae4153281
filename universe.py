"""The dialect, the passes and the target as stock `xdsl-opt` finds them, each loaded only when it is used."""

from functools import partial
from importlib import import_module

from xdsl.ir import Dialect
from xdsl.passes import ModulePass
from xdsl.universe import Universe
from xdsl.utils.target import Target

PASSES = {
    "simplify": (
        "RecognizeLayers",
        "FuseRounding",
        "FoldConstants",
        "FoldBatchNorm",
        "FuseAggregations",
        "FuseCodes",
        "TakeBytes",
        "FuseLayers",
        "DropDeadUnits",
        "MergeEqualUnits",
        "ExpandRecurrences",
        "Sparsify",
        "Associate",
    ),
    "neuron_order": ("OrderTargets", "PermuteNeurons", "ReorderNeurons"),
    "kernels": (
        "DiscoverStructure",
        "ChooseKernels",
        "RoundLayers",
        "ComputeCodesAsFloats",
        "ChooseQuantizedKernels",
        "AnnotateIoBounds",
    ),
    "images": (
        "FuseConvolutions",
        "ReorderChannels",
        "ScaleChannels",
        "FormImageNetworks",
        "ScheduleImages",
    ),
    "tiles": ("FormTiles", "ShareTiles", "ScheduleNetwork", "DropDeadRows"),
    "network": ("FlattenNetwork", "ScheduleConnections"),
    "deployment": ("PartitionNeurons", "FormSparseNetworks", "SplitComponents"),
    "training": ("Differentiate",),
}
"""Classes of passes by stage; `FuseLayers` is in `passes/simplify/fuse_layers.py` and called `pebble-fuse-layers`."""


PIPELINES = (
    "compile",
    "optimize",
    "simplify",
    "expand",
    "arrange",
    "choose",
    "flatten",
    "tile",
    "schedule",
    "extract",
    "split",
)
"""Pipelines without their prefix `pebble-`: all stages on the way to a goal, or one stage of `redpebble.pipeline`."""


def _words(class_name: str) -> list[str]:
    """Return the words of a name such as FuseLayers, in lower case."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in class_name).split()


def _load_pass(stage: str, class_name: str) -> type[ModulePass]:
    return getattr(import_module(f"redpebble.passes.{stage}.{'_'.join(_words(class_name))}"), class_name)


def _load_pipeline(name: str) -> type[ModulePass]:
    from .driver.named_pipelines import CompilePipeline, OptimizePipeline, stage_pipeline

    goals = {"compile": CompilePipeline, "optimize": OptimizePipeline}
    return goals[name] if name in goals else stage_pipeline(name)


def _load_dialect() -> Dialect:
    from .dialect.pebble import Pebble

    return Pebble


def _load_llvm_target() -> type[Target]:
    from .lowering.xdsl_target import PebbleLlvmTarget

    return PebbleLlvmTarget


REDPEBBLE_UNIVERSE = Universe(
    all_dialects={"pebble": _load_dialect},
    all_passes={
        "-".join(("pebble", *_words(name))): partial(_load_pass, stage, name)
        for stage, names in PASSES.items()
        for name in names
    }
    | {f"pebble-{name}": partial(_load_pipeline, name) for name in PIPELINES},
    all_targets={"pebble-llvm": _load_llvm_target},
)

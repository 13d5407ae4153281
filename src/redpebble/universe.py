"""What stock `xdsl-opt` learns from us: the dialect, the passes and the target, each loaded only when it is used."""

from xdsl.ir import Dialect
from xdsl.passes import ModulePass
from xdsl.universe import Universe


def _pebble() -> Dialect:
    from redpebble.dialect.pebble import Pebble

    return Pebble


def _fold_constants() -> type[ModulePass]:
    from redpebble.passes.fold_constants import FoldConstants

    return FoldConstants


def _recognize_layers() -> type[ModulePass]:
    from redpebble.passes.recognize_layers import RecognizeLayers

    return RecognizeLayers


def _fold_batch_norm() -> type[ModulePass]:
    from redpebble.passes.fold_batch_norm import FoldBatchNorm

    return FoldBatchNorm


def _fuse_layers() -> type[ModulePass]:
    from redpebble.passes.fuse_layers import FuseLayers

    return FuseLayers


def _drop_dead_neurons() -> type[ModulePass]:
    from redpebble.passes.drop_dead_neurons import DropDeadNeurons

    return DropDeadNeurons


def _merge_duplicate_neurons() -> type[ModulePass]:
    from redpebble.passes.merge_duplicate_neurons import MergeDuplicateNeurons

    return MergeDuplicateNeurons


def _sparsify() -> type[ModulePass]:
    from redpebble.passes.sparsify import Sparsify

    return Sparsify


def _choose_kernels() -> type[ModulePass]:
    from redpebble.passes.choose_kernels import ChooseKernels

    return ChooseKernels


def _form_tiles() -> type[ModulePass]:
    from redpebble.passes.form_tiles import FormTiles

    return FormTiles


def _annotate_io_bounds() -> type[ModulePass]:
    from redpebble.passes.annotate_io_bounds import AnnotateIoBounds

    return AnnotateIoBounds


REDPEBBLE_UNIVERSE = Universe(
    all_dialects={"pebble": _pebble},
    all_passes={
        "pebble-fold-constants": _fold_constants,
        "pebble-recognize-layers": _recognize_layers,
        "pebble-fold-batch-norm": _fold_batch_norm,
        "pebble-fuse-layers": _fuse_layers,
        "pebble-drop-dead-neurons": _drop_dead_neurons,
        "pebble-merge-duplicate-neurons": _merge_duplicate_neurons,
        "pebble-sparsify": _sparsify,
        "pebble-choose-kernels": _choose_kernels,
        "pebble-form-tiles": _form_tiles,
        "pebble-annotate-io-bounds": _annotate_io_bounds,
    },
)

"""Constants and sizes of a model folded in turn: a size that is known makes constants, and they make sizes known."""

from collections.abc import Mapping, Set
from typing import Final

import onnx_ir

from .folding.fold_branches import fold_branches
from .folding.fold_sizes import READING_SIZES, fold_sizes
from .folding.fold_weights import fold_constants
from .operators.shape_inference import infer_types

MOST_ROUNDS: Final = 16
"""Times that sizes are inferred for others to become known: each takes a walk through the model."""


def fold_model(model: onnx_ir.Model, *, keep_foreign: bool, kept: Set[str] = frozenset()) -> frozenset[str]:
    """Fold constants and known sizes, in place, until nothing changes; return the names of constants that grew.

    `keep_foreign` and `kept` are those of `fold_constants`.
    """
    grown = fold_constants(model, keep_foreign=keep_foreign, kept=kept)
    for _ in range(MOST_ROUNDS):
        reads_sizes = any(node.op_type in READING_SIZES for node in model.graph)
        branched = fold_branches(model)
        if not (reads_sizes and fold_sizes(model, inferred_shapes(model))) and not branched:
            break
        grown |= fold_constants(model, keep_foreign=keep_foreign, kept=kept)
    return grown


def inferred_shapes(model: onnx_ir.Model) -> Mapping[str, onnx_ir.Shape]:
    """Return the shapes, by name, that ONNX infers whatever the model states of its own results."""
    inferred = infer_types(model, trusted=False)
    return {name: found.shape for name, found in inferred.items() if found.shape is not None}

"""Import of an ONNX model as a module of the `pebble` dialect: the page to read first in this folder.

```
read_model          any source, checked                                   reading/model_source.py, model_checks.py
widen               half precision becomes float32 (keep only)            folding/half_precision.py
inline_functions    no model-local functions (refuse only)                reading/model_source.py
fold_constants      what depends on weights alone becomes a weight        folding/fold_weights.py
fold_sizes          sizes that are the same in every call, likewise       folding/fold_sizes.py
translate           a node at a time, by the table of converters          translation.py, operators/table.py
```
"""

from collections.abc import Mapping, Set
from typing import Final, Literal, NamedTuple

import onnx_ir
from xdsl.dialects.builtin import ModuleOp

from redpebble.frontend.errors import reading
from redpebble.frontend.folding.fold_sizes import READING_SIZES, fold_sizes
from redpebble.frontend.folding.fold_weights import fold_constants
from redpebble.frontend.folding.half_precision import widen
from redpebble.frontend.operators.shape_inference import check_operators, infer_types
from redpebble.frontend.reading.model_source import Source, inline_functions, read_model
from redpebble.frontend.translation import translate

__all__ = ["Imported", "Source", "import_model"]


MOST_ROUNDS: Final = 16
"""Times that sizes are inferred for others to become known: each takes a walk through the model."""


class Imported(NamedTuple):
    """A module, and the model that its `pebble.foreign` ops point into by their position in `list(model.graph)`."""

    module: ModuleOp
    model: onnx_ir.Model
    expanded: frozenset[str]
    """Names of nodes whose values are moved for the sake of a layer."""
    reasons: Mapping[int, str]
    """Position of a node that stays -> what is not accepted of it."""
    widened: bool
    """Whether `model` computes in float32 what the source computes in half precision."""


def import_model(source: Source, *, foreign: Literal["keep", "refuse"], whole: Set[str] | None = None) -> Imported:
    """Return the model as a module with one function `@main`.

    `refuse` covers every node or fails; `keep` leaves what is not covered as `pebble.foreign`, also a node that would
    have its values moved and is named in `whole`: all such nodes where that is None.

    Raises:
        InvalidModelError: the model is unreadable or contradicts itself.
        UnsupportedModelError: something is not covered.
    """
    with reading():
        return _imported(read_model(source), whole, keep_foreign=foreign == "keep")


def _imported(original: onnx_ir.Model, whole: Set[str] | None, *, keep_foreign: bool) -> Imported:
    if not keep_foreign:
        inline_functions(original)
    widened = keep_foreign and widen(original)
    check_operators(original)
    kept: frozenset[str] = frozenset()
    while True:
        model = original.clone() if keep_foreign else original
        grown = _fold(model, keep_foreign=keep_foreign, kept=kept)
        translated = translate(model, keep_foreign=keep_foreign, whole=whole)
        wasted = grown - translated.constants - kept
        if not keep_foreign or not wasted:
            return Imported(translated.module, model, translated.expanded, translated.reasons, widened)
        # these would only make the file larger: no op of ours uses them
        kept |= wasted


def _fold(model: onnx_ir.Model, *, keep_foreign: bool, kept: Set[str]) -> frozenset[str]:
    """Fold constants and known sizes, in place, until nothing changes; return the names of constants that grew."""
    grown = fold_constants(model, keep_foreign=keep_foreign, kept=kept)
    for _ in range(MOST_ROUNDS):
        reads_sizes = any(node.op_type in READING_SIZES for node in model.graph)
        if not reads_sizes or not fold_sizes(model, _shapes(model)):
            break
        grown |= fold_constants(model, keep_foreign=keep_foreign, kept=kept)
    return grown


def _shapes(model: onnx_ir.Model) -> dict[str, onnx_ir.Shape]:
    inferred = infer_types(model, trusted=False)
    return {name: found.shape for name, found in inferred.items() if found.shape is not None}

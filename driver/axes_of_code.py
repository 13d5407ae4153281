"""The axes of inputs whose sizes decide on code: those that convolutions need to know the sizes of their images."""

from typing import Final

import onnx_ir

from ..frontend.errors import ModelError
from ..frontend.import_model import import_model
from ..frontend.reading.axis_names import Axes, words_of
from ..frontend.reading.free_axes import axes_in_question, dims_of, state_sizes
from ..frontend.sparse_weights import graph_of, has_sparse_convolution
from .placement import NodesLeft

TRIED: Final = 192
"""Size of the axes in question in a trial: large enough for windows that shrink an image many times."""


def sizes_to_wait_for(left: NodesLeft | None) -> Axes:
    """Return the axes whose sizes sparse convolutions of a model wait for, which are no part of its networks yet."""
    if left is None or not left.waiting or not has_sparse_convolution(graph_of(left.model)):
        return {}
    return axes_of_code(left.model, left.waiting)


def axes_of_code(model: onnx_ir.Model, waiting: int) -> Axes:
    """Return the axes that most of the nodes that wait for sizes need to know, as few as possible; none if none help.

    Images that are inputs have heights and widths; which axes an image depends on that is computed is found out by
    stating sizes, in copies of the model.
    """
    asked = axes_in_question(dims_of(model))
    if asked.images and asked.images == asked.others:
        return asked.images
    best: Axes = {}
    tried: list[Axes] = [{}]
    for axes in asked:
        if not waiting or axes in tried:
            continue
        tried.append(axes)
        left = _waiting_with(model, axes)
        if left < waiting:
            best, waiting = axes, left
    return best


def axes_of_all(model: onnx_ir.Model) -> Axes:
    """Return the axes whose sizes all of a model needs to be native code, as few as possible; none if none help."""
    for axes in axes_in_question(dims_of(model)):
        if axes and _is_native_with(model, axes):
            return axes
    return {}


def _is_native_with(model: onnx_ir.Model, axes: Axes) -> bool:
    copy = model.clone()
    state_sizes(copy, dict.fromkeys(words_of(axes), TRIED))
    try:
        import_model(copy, foreign="prologue")
    except ModelError:
        return False
    return True


def _waiting_with(model: onnx_ir.Model, axes: Axes) -> int:
    copy = model.clone()
    state_sizes(copy, dict.fromkeys(words_of(axes), TRIED))
    try:
        return len(import_model(copy, foreign="keep", whole=frozenset()).waiting)
    except ModelError:
        return 1 << 30  # such sizes contradict the model

"""Axes of inputs that a model leaves to each call, and the model with the sizes of some of them stated.

Windows, pads and places of pixels are laid out for images of one size: code is made for sizes that are known. An image
may be an input, or be computed: of letters [batch, length], samples [batch, time], features [batch, time, channels].
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import onnx_ir

from ...dialect.ops.images import is_image_rank
from .axis_names import Axes, Dims, check_sizes, every_free_axis, words_of

SIZES_FROM: Final = 2
"""The first axis of an image behind the number of images and their channels."""


def dims_of(model: onnx_ir.Model) -> Dims:
    """Return the sizes of a model's inputs; an axis that is called as others are has their size."""
    values = [value for value in model.graph.inputs if not value.is_initializer() and value.shape is not None]
    return {
        value.name or "": [size if isinstance(size, int) else size.value for size in value.shape or ()]
        for value in values
    }


class AxesInQuestion(NamedTuple):
    """Axes whose sizes images may depend on, fewest first."""

    images: Axes
    """Heights and widths of inputs that are images."""
    others: Axes
    """All axes but the batch, which is the first of inputs that have more."""
    every: Axes


def axes_in_question(inputs: Dims) -> AxesInQuestion:
    """Return the axes whose sizes images may depend on; inputs without such axes are left out."""
    names = every_free_axis(inputs)
    batches = {words[0] for words in names.values() if len(words) > 1}
    images = {name for name, sizes in inputs.items() if is_image_rank(len(sizes)) and isinstance(sizes[1], int)}
    heights = {
        name: tuple(word if axis >= SIZES_FROM else "" for axis, word in enumerate(words))
        for name, words in names.items()
        if name in images
    }
    others = {name: tuple("" if word in batches else word for word in words) for name, words in names.items()}
    found = ({name: words for name, words in axes.items() if any(words)} for axes in (heights, others, names))
    return AxesInQuestion(*found)


def size_options(model: onnx_ir.Model) -> str:
    """Return the options that state the sizes a model leaves open on the command line; empty where there are none."""
    asked = axes_in_question(dims_of(model))
    return " ".join(f"--size {name}=N" for name in words_of(asked.images or asked.others))


def state_sizes(model: onnx_ir.Model, sizes: Mapping[str, int]) -> None:
    """Let inputs of a model have these sizes by name; what they make of other shapes is no longer declared.

    Raises:
        ValueError: no input has a free axis of that name, or its size is less than 1.
    """
    inputs = dims_of(model)
    check_sizes(inputs, sizes)
    names = every_free_axis(inputs)
    for value in model.graph.inputs:
        words = names.get(value.name or "")
        if value.shape is not None and words is not None:
            value.shape = onnx_ir.Shape([sizes.get(word, size) for word, size in zip(words, value.shape, strict=True)])
    open_words = {*words_of(names)} - set(sizes)
    outputs = set(model.graph.outputs)
    for node in model.graph:
        for value in node.outputs:
            _forget_sizes(value, open_words, is_output=value in outputs)


def _forget_sizes(value: onnx_ir.Value, known: set[str], *, is_output: bool) -> None:
    """Leave open what a value's shape says of other sizes than those `known`; outputs keep their rank."""
    if value.shape is None or all(isinstance(size, int) or str(size.value) in known for size in value.shape):
        return
    kept = [size if isinstance(size, int) or str(size.value) in known else None for size in value.shape]
    value.shape = onnx_ir.Shape(kept) if is_output else None

"""Sizes of images that a model leaves to each call, and the model with some of them stated.

Windows, pads and places of pixels are laid out for images of one size: code is made for sizes that are known.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import onnx_ir

from ...dialect.ops.images import is_image_rank

MOST_SIZES: Final = 8
"""Sizes for which there is code at a time: each takes seconds to make, and memory for weights of its own."""

SIZES_FROM: Final = 2
"""The first axis of an image behind the number of images and their channels."""


def free_sizes(model: onnx_ir.Model) -> dict[str, tuple[str, ...]]:
    """Return the names of each input's sizes that calls choose, those of images of known channels; no others.

    A size without a name is called as its input and axis are: `x.2`.
    """
    found = {value.name or "": tuple(_names(value)[SIZES_FROM:]) for value in _images(model)}
    return {name: sizes for name, sizes in found.items() if any(sizes)}


def size_options(model: onnx_ir.Model) -> str:
    """Return the options that state the sizes of a model's images on the command line; empty where none are free."""
    names = dict.fromkeys(name for sizes in free_sizes(model).values() for name in sizes if name)
    return " ".join(f"--size {name}=N" for name in names)


def sizes_of(free: Mapping[str, Sequence[str]], shapes: Mapping[str, Sequence[int]]) -> dict[str, int] | None:
    """Return the sizes in inputs of these shapes by name; None where a call cannot have them."""
    sizes: dict[str, int] = {}
    for name, words in free.items():
        extents = shapes.get(name, ())[SIZES_FROM:]
        if len(extents) != len(words):
            return None
        for word, extent in zip(words, extents, strict=True):
            if word and sizes.setdefault(word, extent) != extent:
                return None
    return sizes


def state_sizes(model: onnx_ir.Model, sizes: Mapping[str, int]) -> None:
    """Let images of a model have these sizes by name; what they make of other shapes is no longer declared.

    Raises:
        ValueError: no image has a free size of that name, or it is less than 1.
    """
    free = dict.fromkeys(word for words in free_sizes(model).values() for word in words if word)
    for name, size in sizes.items():
        if name not in free:
            raise ValueError(f"no free size of an image is called {name!r}, there are {', '.join(free) or 'none'}")
        if size < 1:
            raise ValueError(f"size {name} is {size}, expected 1 or more")
    for value in model.graph.inputs:
        if value.shape is not None:
            stated = [sizes.get(name, size) for name, size in zip(_names(value), value.shape, strict=True)]
            value.shape = onnx_ir.Shape(stated)
    inputs = {name for value in model.graph.inputs for name in _names(value)}
    outputs = set(model.graph.outputs)
    for node in model.graph:
        for value in node.outputs:
            _forget_sizes(value, inputs - set(sizes), is_output=value in outputs)


def _forget_sizes(value: onnx_ir.Value, known: set[str], *, is_output: bool) -> None:
    """Leave open what a value's shape says of other sizes than those `known`; outputs keep their rank."""
    if value.shape is None or all(isinstance(size, int) or str(size.value) in known for size in value.shape):
        return
    kept = [size if isinstance(size, int) or str(size.value) in known else None for size in value.shape]
    value.shape = onnx_ir.Shape(kept) if is_output else None


def _images(model: onnx_ir.Model) -> list[onnx_ir.Value]:
    """Return the inputs that are images of floats, or of numbers that become floats, with known channels."""
    values = [value for value in model.graph.inputs if not value.is_initializer()]
    shaped = [value for value in values if value.shape is not None and is_image_rank(len(value.shape))]
    return [value for value in shaped if value.shape is not None and isinstance(value.shape[1], int)]


def _names(value: onnx_ir.Value) -> list[str]:
    """Return a name for each axis that calls choose, an empty one for every other."""
    sizes = enumerate(value.shape or ())
    return ["" if isinstance(size, int) else size.value or f"{value.name}.{axis}" for axis, size in sizes]

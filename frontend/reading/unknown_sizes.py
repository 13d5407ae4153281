"""Sizes that files state and nobody knows: a name that stands for "unknown" makes no two of them equal."""

from collections.abc import Iterator
from typing import Final

import onnx_ir

NO_NAMES: Final = frozenset({"", "?", "-1", "None", "none"})
"""Names of dimensions that exporters write where they know no size: Paddle's `?`, as often as there are such sizes."""


def forget_unknown_sizes(model: onnx_ir.Model) -> None:
    """Take the names from sizes that have none, and the numbers from those below 0, in place."""
    for value in _values(model):
        if value.shape is not None and any(map(_is_unknown, value.shape)):
            value.shape = onnx_ir.Shape([None if _is_unknown(size) else size for size in value.shape])


def _is_unknown(size: int | onnx_ir.SymbolicDim) -> bool:
    return size < 0 if isinstance(size, int) else size.value in NO_NAMES


def _values(model: onnx_ir.Model) -> Iterator[onnx_ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
        for node in graph:
            yield from node.outputs

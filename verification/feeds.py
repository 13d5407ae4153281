"""Random inputs for any model, to check and to measure it with."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
import onnx_ir
import onnx_ir as ir
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from ..foundation.regular_files import open_regular
from .decoder_inputs import DecoderInputs

DEFAULT_SIZE: Final = 8
"""Size of every symbolic dimension but the batch."""

_FLAGS: Final = 2
"""int32 and int64 inputs are masks, token kinds or flags unless a Gather says otherwise: 0 and 1 suit all of them."""

_LEVELS: Final = 16
"""Other integer inputs are data, such as quantised pixels."""

_SAME_VALUES: Final = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def inputs_for(
    model: ir.Model,
    batch: int,
    rng: np.random.Generator,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
) -> dict[str, NDArray[Any]]:
    """Random feeds for the inputs of a model that have no initializer, by name.

    Floats are standard normal, int32 and int64 are valid indices where a Gather reads them and 0 or 1 elsewhere, other
    integers are below 16, strings are single letters. A decoder gets tokens behind a past, and a mask of both.

    Args:
        model: any ONNX model.
        batch: size of a first dimension that is symbolic; the same symbol has the same size everywhere.
        rng: source of randomness.
        shapes: whole shapes for inputs by name, instead of the rules above.
        dims: sizes of symbolic dimensions by name, instead of the batch and the size of all others.

    Raises:
        ValueError: an input that is no tensor, has no type, or no known rank and no entry in `shapes`; an entry in
            `shapes` that names no input, or has another number of axes; one in `dims` that names no dimension; a
            negative batch or size.
    """
    if batch < 0:
        raise ValueError(f"batch: expected 0 or more, got {batch}")
    given = shapes or {}
    inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    names = [value.name or "" for value in inputs]
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        raise ValueError(f"expected a shape for {', '.join(names)}, got one for {unknown!r}")
    for name, value in zip(names, inputs, strict=True):
        if name in given and value.shape is not None and len(given[name]) != len(value.shape):
            raise ValueError(f"input {name!r}: expected a shape of {len(value.shape)} axes, got {len(given[name])}")
    checked = _checked(inputs, dims or {})
    decoder = None if given else DecoderInputs.of(model)
    if decoder is not None:
        return dict(decoder.random(batch, rng, checked, DEFAULT_SIZE))
    sizes = _symbol_sizes(inputs, batch) | checked
    return {
        # one value without axes would be numpy's scalar
        name: np.asarray(_random(value, tuple(given[name]) if name in given else _shape(value, batch, sizes), rng))
        for name, value in zip(names, inputs, strict=True)
    }


def _symbol_sizes(inputs: Sequence[ir.Value], batch: int) -> dict[str, int]:
    """Symbol -> size; a symbol that leads any input is a batch, wherever else it stands."""
    firsts = [value.shape[0] for value in inputs if value.shape is not None and len(value.shape) > 0]
    return {dim.value: batch for dim in firsts if isinstance(dim, ir.SymbolicDim) and dim.value is not None}


def _checked(inputs: Sequence[ir.Value], dims: Mapping[str, int]) -> dict[str, int]:
    shapes = [value.shape for value in inputs if value.shape is not None]
    symbols = dict.fromkeys(dim.value for shape in shapes for dim in shape if isinstance(dim, ir.SymbolicDim))
    known = [symbol for symbol in symbols if symbol is not None]
    for name, size in dims.items():
        if name not in known:
            raise ValueError(f"expected a size for {', '.join(known) or 'no dimension'}, got one for {name!r}")
        if size < 0:
            raise ValueError(f"dimension {name!r}: expected 0 or more, got {size}")
    return dict(dims)


def _shape(value: ir.Value, batch: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
    if value.shape is None:
        raise ValueError(f"input {value.name!r}: expected a shape for it, as its rank is unknown, got none")
    unnamed = [batch if axis == 0 else DEFAULT_SIZE for axis in range(len(value.shape))]
    return tuple(
        dim if isinstance(dim, int) else sizes.get(dim.value or "", size)
        for dim, size in zip(value.shape, unnamed, strict=True)
    )


def _random(value: ir.Value, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    dtype = value.dtype if isinstance(value.type, ir.TensorType) else None
    if dtype is None:
        raise ValueError(f"input {value.name!r}: expected a tensor, got {value.type or 'an unknown type'}")
    if dtype == ir.DataType.STRING:
        return rng.choice(np.array(list("abcdefgh"), dtype=object), size=shape)
    if dtype == ir.DataType.BOOL:
        return rng.random(shape) < 0.5
    if dtype.is_floating_point():
        return rng.standard_normal(shape).astype(dtype.numpy())
    if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype.numpy())
    if dtype in (ir.DataType.INT32, ir.DataType.INT64):
        return rng.integers(0, _index_bound(value), shape).astype(dtype.numpy())
    return rng.integers(0, _level_count(dtype), shape).astype(dtype.numpy())


def _level_count(dtype: ir.DataType) -> int:
    """16, or as many values from 0 as a narrower type has."""
    magnitude_bits = dtype.bitwidth - 1 if dtype.is_signed() else dtype.bitwidth
    return min(_LEVELS, 1 << magnitude_bits)


def _index_bound(value: ir.Value) -> int:
    """The smallest axis that a Gather reads with this value, 2 where none does."""
    bounds: list[int] = []
    waiting = [value]
    while waiting:
        for node, position in waiting.pop().uses():
            if node.op_type in _SAME_VALUES and position == 0:
                waiting.append(node.outputs[0])
            elif node.op_type == "Gather" and position == 1:
                bounds.extend(_gathered_axis(node))
    return max(min(bounds, default=_FLAGS), 1)


def _gathered_axis(gather: ir.Node) -> tuple[int, ...]:
    """The size of the axis a Gather picks from, nothing when unknown."""
    data = gather.inputs[0]
    axis = gather.attributes.get_int("axis", 0)
    if data is None or data.shape is None or not -len(data.shape) <= axis < len(data.shape):
        return ()
    size = data.shape[axis]
    return (size,) if isinstance(size, int) else ()


# Choices about the inputs that a model is checked or measured with.

Feeds = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class InputChoice:
    """Whole shapes of inputs by name, sizes of dimensions by name, or the inputs themselves from a file."""

    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    file: Path | None = None
    """An .npz with an array for each input, by its name; then nothing is random."""

    def given(self, model: onnx_ir.Model) -> Feeds | None:
        """Return the inputs in the file, None where there is no file.

        Raises:
            ValueError: the file cannot be read, is no .npz, or its names or shapes are not those of the model's inputs.
        """
        if self.file is None:
            return None
        names = [value.name or "" for value in model.graph.inputs if value.name not in model.graph.initializers]
        arrays = arrays_of(self.file)
        if sorted(arrays) != sorted(names):
            held = ", ".join(sorted(arrays)) or "none"
            raise ValueError(f"{self.file}: expected an .npz with {', '.join(names)}, got {held}")
        for name, shape in _input_shapes(model).items():
            _check_shape(name, arrays[name], shape)
        return arrays

    def random(self, model: onnx_ir.Model, batch: int, rng: np.random.Generator) -> Feeds:
        """Return random inputs for a batch.

        Raises:
            ValueError: a name is none of the model's, or an input cannot be made.
        """
        return inputs_for(model, batch, rng, self.shapes, self.dims)

    def of_batches(self, model: onnx_ir.Model, batches: Sequence[int], seed: int = 0) -> Iterator[tuple[int, Feeds]]:
        """Yield a batch and its inputs: random ones for each of `batches`, or those in the file alone.

        Where no batch changes the inputs they are yielded once, with the batch that they have.
        """
        given = self.given(model)
        if given is None and not self._has_batch(model):
            given = self.random(model, 1, np.random.default_rng(seed))
        if given is not None:
            yield max((len(array) for array in given.values() if array.ndim), default=1), given
            return
        for batch in batches:
            yield batch, self.random(model, batch, np.random.default_rng(seed))

    def _has_batch(self, model: onnx_ir.Model) -> bool:
        """Return whether a first axis of an input is free."""
        firsts = [shape[0] for name, shape in _input_shapes(model).items() if name not in self.shapes and len(shape)]
        return any(not isinstance(first, int) and first.value not in self.dims for first in firsts)

    def assumed(self, model: onnx_ir.Model) -> dict[str, int]:
        """Return the free axes that are no batch and have no size that was given -> the size that they get."""
        if self.file is not None:
            return {}
        shapes = _input_shapes(model)
        batches = {shape[0] for shape in shapes.values() if len(shape)}
        axes = [axis for name, shape in shapes.items() if name not in self.shapes for axis in shape[1:]]
        free = [axis.value for axis in axes if not isinstance(axis, int) and axis not in batches]
        decoder = DecoderInputs.of(model)
        if decoder is not None:
            return {name: DEFAULT_SIZE for name in decoder.axes if name not in self.dims}
        return {name: DEFAULT_SIZE for name in free if name and name not in self.dims}


def _check_shape(name: str, array: NDArray[Any], shape: onnx_ir.Shape) -> None:
    """Check that an array has the sizes of an input that are known.

    Raises:
        ValueError: names both.
    """
    known = [size if isinstance(size, int) else None for size in shape]
    fits = len(known) == array.ndim and all(
        size in (None, found) for size, found in zip(known, array.shape, strict=True)
    )
    if not fits:
        sizes = ", ".join("any" if size is None else str(size) for size in known)
        raise ValueError(f"input {name!r} of the data: expected shape ({sizes}), got {array.shape}")


def _input_shapes(model: onnx_ir.Model) -> dict[str, onnx_ir.Shape]:
    """Return the shapes of a model's inputs, of which the rank is known."""
    given = model.graph.initializers
    return {value.name or "": value.shape for value in model.graph.inputs if value.shape and value.name not in given}


def arrays_of(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz by name, none of another kind of file.

    Raises:
        ValueError: the file cannot be read, or not understood.
    """
    try:
        with open_regular(path) as content:
            loaded = np.load(content, allow_pickle=False)
            return {name: loaded[name] for name in loaded.files} if isinstance(loaded, NpzFile) else {}
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, EOFError, BadZipFile, zlib.error, KeyError, RuntimeError, MemoryError) as error:
        # RuntimeError: it is encrypted, or compressed in a way that Python does not know
        # numpy advises to trust what is no array, and to run its code
        reason = "expected an .npz of numbers" if "pickle" in str(error) else str(error)
        raise ValueError(f"{path} holds no arrays: {reason}") from error

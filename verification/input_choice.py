"""Choices about the inputs that a model is checked or measured with."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import onnx_ir
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from ..foundation.regular_files import open_regular
from .feeds import DEFAULT_SIZE, inputs_for

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
            raise ValueError(f"{self.file} holds {held}, expected an .npz with {', '.join(names)}")
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
        raise ValueError(f"input {name!r} of the data has shape {array.shape}, expected ({sizes})")


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

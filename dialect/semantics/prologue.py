"""The prologue of a network: what it computes from its inputs before the first layer, by numpy.

Ids become rows of tables, a mask of ones and zeros becomes numbers that hide keys, and lengths become positions. It is
some ten steps on small arrays; what takes time comes behind it, as native code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from redpebble.dialect.semantics.array_operators import OPERATORS, Operator
from redpebble.dialect.symbolic_sizes import SymbolicShape, bind_symbols

Array = NDArray[Any]


class PrologueInput(NamedTuple):
    """An input of the model: its name, the name of its dtype, and its sizes."""

    name: str
    dtype: str
    shape: SymbolicShape


class PrologueStep(NamedTuple):
    """A node: its name in the model, its operator, what it reads ("" for what is left out) and yields."""

    node: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Prologue:
    """Steps in the order in which they run, and the names of what the native code reads: one for each of its inputs."""

    inputs: tuple[PrologueInput, ...]
    steps: tuple[PrologueStep, ...]
    results: tuple[str, ...]
    constants: Mapping[str, Array] = field(repr=False)

    def run(self, feeds: Mapping[str, ArrayLike]) -> list[Array]:
        """Return the arrays that the native code reads.

        Raises:
            ValueError: an input has another dtype or shape, or a node does not accept what it gets.
        """
        values: dict[str, Array | None] = {**self.constants, "": None}
        given = [checked(value, feeds[value.name]) for value in self.inputs]
        bind_symbols({value.name: value.shape for value in self.inputs}, [array.shape for array in given])
        values.update((value.name, array) for value, array in zip(self.inputs, given, strict=True))
        for step, operator in self._operators:
            try:
                found = operator(step.attributes, *[values[name] for name in step.inputs])
            except (ValueError, IndexError, TypeError, OverflowError) as error:
                raise ValueError(f"node {step.node!r}: operator {step.operator}: {error}") from error
            if isinstance(found, list):
                values.update(zip(step.outputs, found, strict=True))
            else:
                # numpy yields numbers where ONNX has arrays without axes
                values[step.outputs[0]] = np.asarray(found)
        return [_as_read(np.asarray(values[name])) for name in self.results]

    @cached_property
    def _operators(self) -> list[tuple[PrologueStep, Operator]]:
        """The function of each step: calls do not look it up."""
        return [(step, OPERATORS[step.operator]) for step in self.steps]


def _as_read(array: Array) -> Array:
    """Return an array as native code reads it: floats, or numbers of nodes."""
    return np.asarray(array, dtype=np.int32 if array.dtype == np.int32 else np.float32, order="C")


def checked(value: PrologueInput, array: ArrayLike) -> Array:
    """Return the array of an input.

    Raises:
        ValueError: it has another dtype.
    """
    known: Array = np.asarray(array)
    if not isinstance(array, np.ndarray):
        return known.astype(value.dtype)
    if known.dtype != value.dtype:
        raise ValueError(f"input {value.name!r} has dtype {known.dtype}, expected {value.dtype}")
    return known

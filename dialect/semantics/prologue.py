"""The prologue of a network: what it computes from its inputs before the first layer, by numpy.

Ids become rows of tables, a mask of ones and zeros becomes numbers that hide keys, and lengths become positions. It is
some ten steps on small arrays; what takes time comes behind it, as native code. Most steps compute positions and sizes,
which are the same in every call of the same shapes: they are kept for a few shapes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..symbolic_sizes import SymbolicShape, bind_symbols
from .array_operators import OPERATORS, Operator

Array = NDArray[Any]
Shapes = tuple[tuple[int, ...], ...]


MOST_SHAPES: Final = 8
"""Shapes of inputs for which results are kept."""

READING_SHAPES: Final = frozenset({"Shape", "Size", "Sizes"})
"""Operators that read the shapes of arrays alone."""

MADE_TO_MEASURE: Final = frozenset({"ConstantOfShape", "EdgeList", "NonZero", "Range"})
"""Operators whose result has a shape that the values of their first input say."""

BROADCASTING: Final = frozenset(
    {"Add", "And", "Concat", "Div", "Equal", "Gather", "GatherElements", "Greater", "GreaterOrEqual"}
    | {"Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Where"}
)
"""Operators whose result has a shape that follows from those of all inputs."""


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

    kept: dict[Shapes, dict[str, Array | None]] = field(
        default_factory=dict[Shapes, dict[str, Array | None]], repr=False
    )
    """Results of steps that read no value of an input, by the shapes of all inputs."""

    def run(self, feeds: Mapping[str, ArrayLike]) -> list[Array]:
        """Return the arrays that the native code reads.

        Raises:
            ValueError: an input has another dtype or shape, or a node does not accept what it gets.
        """
        given = [checked(value, feeds[value.name]) for value in self.inputs]
        named = {value.name: array for value, array in zip(self.inputs, given, strict=True)}
        shapes = tuple([array.shape for array in given])
        kept = self.kept.get(shapes)
        if kept is not None:
            values = self._done(self.of_values.steps, {**kept, **named})
        else:
            bind_symbols({value.name: value.shape for value in self.inputs}, shapes)
            values = self._done(self._operators, {**self.constants, "": None, **named})
            if len(self.kept) >= MOST_SHAPES:
                # the list is made at once: other threads add and remove shapes meanwhile
                for oldest in [*self.kept][:1]:
                    self.kept.pop(oldest, None)
            self.kept[shapes] = {name: values[name] for name in self.of_values.known}
        return [_as_read(np.asarray(values[name])) for name in self.results]

    @staticmethod
    def _done(
        steps: Sequence[tuple[PrologueStep, Operator]], values: dict[str, Array | None]
    ) -> dict[str, Array | None]:
        """Return values with those that steps yield."""
        for step, operator in steps:
            try:
                found = operator(step.attributes, *[values[name] for name in step.inputs])
            except (ValueError, IndexError, TypeError, OverflowError) as error:
                raise ValueError(f"node {step.node!r}: operator {step.operator}: {error}") from error
            if isinstance(found, list):
                values.update(zip(step.outputs, found, strict=True))
            else:
                # numpy yields numbers where ONNX has arrays without axes
                values[step.outputs[0]] = np.asarray(found)
        return values

    @cached_property
    def _operators(self) -> list[tuple[PrologueStep, Operator]]:
        """The function of each step: calls do not look it up."""
        return [(step, OPERATORS[step.operator]) for step in self.steps]

    @cached_property
    def of_values(self) -> "_OfValues":
        """The steps that calls of known shapes run."""
        known, shaped = {*self.constants, ""}, {*self.constants, "", *(value.name for value in self.inputs)}
        steps: list[tuple[PrologueStep, Operator]] = []
        for step, operator in self._operators:
            reads_shapes = step.operator in READING_SHAPES and shaped.issuperset(step.inputs)
            if reads_shapes or known.issuperset(step.inputs):
                known.update(step.outputs)
                shaped.update(step.outputs)
                continue
            steps.append((step, operator))
            if _has_known_shape(step, known, shaped):
                shaped.update(step.outputs)
        return _OfValues(steps, known)


class _OfValues(NamedTuple):
    """Steps that read values of inputs, and names of what is the same in all calls of the same shapes."""

    steps: list[tuple[PrologueStep, Operator]]
    known: set[str]


def _has_known_shape(step: PrologueStep, same: set[str], shaped: set[str]) -> bool:
    """Return whether a result has the same shape in all calls of the same shapes."""
    if step.operator in MADE_TO_MEASURE or not shaped.issuperset(step.inputs):
        return False
    return step.operator in BROADCASTING or same.issuperset(step.inputs[1:])


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
        raise ValueError(f"input {value.name!r}: expected dtype {value.dtype}, got {known.dtype}")
    return known

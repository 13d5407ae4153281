"""LSTM, GRU and RNN: layers whose weights every step of a sequence reads."""

from collections.abc import Iterator, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.foreign import INT32
from ...dialect.ops.recurrences import CELLS, DIRECTIONS, Cell, RecurrenceInputs, RecurrenceOp
from ...sparse.densities import STORED_SPARSE
from ..folding.known_sizes import is_known, shape_words
from .conversion import Conversion, Converter, NotCovered
from .onnx_types import describe

ACTIVATIONS: Final = MappingProxyType[str, tuple[str, tuple[float, ...]]](
    {
        "elu": ("elu", (1.0,)),
        "hardsigmoid": ("hard_sigmoid", (0.2, 0.5)),
        "leakyrelu": ("leaky_relu", (0.01,)),
        "relu": ("relu", ()),
        "sigmoid": ("sigmoid", ()),
        "softplus": ("softplus", ()),
        "tanh": ("tanh", ()),
    }
)
"""Word of an operator, in lower case -> the activation, and alpha and beta where it has them and they are left out."""

STEPS_RANK: Final = 3

NO_KERNEL: Final = "no sparse kernel is predicted to be faster for every batch"
"""The reason of a layer that more zeros would make faster."""


def _convert(kind: str, conversion: Conversion) -> Sequence[SSAValue]:
    cell, samples_first = _cell(kind, conversion), conversion.integer("layout", 0) == 1
    if samples_first and not conversion.scope.all_native:
        raise NotCovered("expected layout=0, the only one that onnxruntime has, got 1")
    x = _samples_second(conversion, conversion.tensor(0), swapped=samples_first)
    weight, recurrent = _weights(conversion)
    if not is_known(conversion.sizes(x)[-1]):
        raise NotCovered(f"expected {weight.shape[-1]} inputs of a step, got steps {shape_words(conversion.sizes(x))}")
    stated = conversion.integer("hidden_size", recurrent.shape[-1])
    if stated != recurrent.shape[-1]:
        raise NotCovered(f"expected hidden_size={recurrent.shape[-1]} as the recurrent weight has, got {stated}")
    starts = [
        None
        if index >= CELLS[kind].states + 5 or not conversion.has_input(index)
        else _samples_second(conversion, conversion.tensor(index), swapped=samples_first)
        for index in (5, 6)
    ]
    if starts[0] is None and starts[1] is not None:
        raise NotCovered("expected initial_h where initial_c is given, got none")
    peepholes = _constant(conversion, 7) if kind == "lstm" else None
    constants = _emitted(conversion, 1, weight), _emitted(conversion, 2, recurrent), _constant(conversion, 3)
    inputs = RecurrenceInputs(x, *constants, _lengths(conversion, x), *starts)
    op = conversion.emit(RecurrenceOp(inputs._replace(peepholes=peepholes), cell))
    if not samples_first:
        return op.outputs
    every, *last = op.outputs
    return [conversion.transpose(every, (2, 0, 1, 3)), *(conversion.transpose(one, (1, 0, 2)) for one in last)]


def _cell(kind: str, conversion: Conversion) -> Cell:
    direction = conversion.text("direction", "forward").lower()
    if direction not in DIRECTIONS:
        raise NotCovered(f"expected direction of {', '.join(DIRECTIONS)}, got {direction}")
    clip = conversion.number("clip", 0.0)
    if conversion.attribute("clip") is not None and not clip > 0:
        raise NotCovered(f"expected a positive clip, got {clip}")
    before = kind == "gru" and conversion.integer("linear_before_reset", 0) != 0
    return Cell(kind, direction, tuple(_activations(kind, direction, conversion)), clip, before)


def _activations(kind: str, direction: str, conversion: Conversion) -> Iterator[ActivationAttr]:
    """Yield the activations of each direction; parameters go to those that have some, one after the other."""
    stated = conversion.attribute("activations")
    alphas, betas = (
        iter(() if attribute is None else attribute.as_floats())
        for attribute in (conversion.attribute(f"activation_{name}") for name in ("alpha", "beta"))
    )
    count = len(CELLS[kind].activations) * len(DIRECTIONS[direction])
    words = [*CELLS[kind].activations] * count if stated is None else list(stated.as_strings())
    if stated is not None and len(words) != count:
        raise NotCovered(f"expected {count} activations, got {len(words)}")
    for word in words[:count]:
        name, parameters = ACTIVATIONS.get(word.lower(), ("", ()))
        if not name:
            raise NotCovered(f"expected activations of {', '.join(ACTIVATIONS)}, got {word}")
        values = (next(given, default) for given, default in zip((alphas, betas), parameters, strict=False))
        yield ActivationAttr(name, tuple(values))


def _weights(conversion: Conversion) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return both weights, where something may be gained by the zeros of one of them."""
    weight, recurrent = conversion.constant(1), conversion.constant(2)
    if weight is None or recurrent is None:
        raise NotCovered("expected constant weights W and R of floats, got computed ones or other types")
    if weight.ndim != STEPS_RANK or recurrent.ndim != STEPS_RANK:
        raise NotCovered(f"expected weights of rank 3, got {weight.ndim} and {recurrent.ndim}")
    if conversion.scope.all_native:
        return weight, recurrent
    if not conversion.scope.has_networks:
        raise NotCovered("there are no sparse networks")
    density = min(np.count_nonzero(one) / max(1, one.size) for one in (weight, recurrent))
    if density >= STORED_SPARSE:
        raise NotCovered(NO_KERNEL)
    return weight, recurrent


def _samples_second(conversion: Conversion, x: SSAValue, *, swapped: bool) -> SSAValue:
    """Return steps, or states, whose second axis holds samples."""
    if len(conversion.sizes(x)) != STEPS_RANK:
        raise NotCovered(f"expected steps and states of rank 3, got {shape_words(conversion.sizes(x))}")
    return conversion.transpose(x, (1, 0, 2)) if swapped else x


def _lengths(conversion: Conversion, x: SSAValue) -> SSAValue | None:
    """Return the lengths of sequences; None where there are none, or constants that are all steps of all samples."""
    value, known = conversion.input(4), conversion.any_constant(4)
    steps, samples = (size.constant for size in conversion.sizes(x)[:2])
    if value is None:
        return None
    if known is not None and steps is not None and known.shape == (samples,) and bool((known == steps).all()):
        return None
    lengths = conversion.scope.value_of(value)
    if lengths is None or lengths.type != INT32:
        kind = f"constants for {samples} samples of {steps} steps" if known is not None else describe(value.type)
        raise NotCovered(f"expected sequence_lens of all steps, or tensor(int32) that is computed, got {kind}")
    return lengths


def _constant(conversion: Conversion, index: int) -> SSAValue | None:
    if not conversion.has_input(index):
        return None
    array = conversion.constant(index)
    if array is None:
        raise NotCovered(f"expected a constant of floats as input {index}, got a computed one")
    return _emitted(conversion, index, array)


def _emitted(conversion: Conversion, index: int, array: NDArray[np.float32]) -> SSAValue:
    value = conversion.input(index)
    return conversion.emit_constant(array, "" if value is None else value.name or "")


RECURRENCE_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {("", facts.operator): partial(_convert, kind) for kind, facts in CELLS.items()}
)

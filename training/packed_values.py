"""Trained values in packed weights: their places, found by numbers put there, and how new values are written."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


class PackedPlaces(NamedTuple):
    """Places of floats in a packed `array`, by its index: the number of each, and the part of the value there."""

    array: int
    places: Indices
    numbers: Indices
    parts: Floats


def packed_places(
    first: Sequence[NDArray[np.generic]], second: Sequence[NDArray[np.generic]], count: int
) -> Iterator[PackedPlaces]:
    """Yield the places of each packed array that holds values to be trained.

    `first` and `second` are packed from the same model with numbers in the two orders. Some families store a value in
    parts, its half and twice its quarter: the parts are powers of two, so each is a number times one of them.
    """
    for index, (one, other) in enumerate(zip(first, second, strict=True)):
        if one.dtype != np.float32 or not one.size or not count:
            continue
        numbers, following = (array.ravel().astype(np.float64) for array in (one, other))
        # the number behind the last one is 1, so there the part itself stands in the second order
        parts = np.where(following > numbers, following - numbers, following)
        is_number = (parts > 0) & (parts <= 1) & (np.frexp(parts)[0] == 0.5)
        numbers = np.divide(numbers, parts, out=np.zeros_like(numbers), where=is_number)
        is_number &= (numbers >= 1) & (numbers <= count) & (numbers == np.floor(numbers))
        is_number &= following == (numbers % count + 1) * parts
        places = np.flatnonzero(is_number)
        if len(places):
            yield PackedPlaces(index, places, numbers[places].astype(np.int64), parts[places].astype(np.float32))


class _Packed(NamedTuple):
    """A packed array, places in it, and the trained values there, by their number from 0 on.

    `parts` are the shares of a value that places hold, None where every place holds the whole value.
    """

    array: Floats
    places: Indices
    values: Indices
    parts: Floats | None


class PackedValues:
    """Packed arrays into which values are written in place."""

    def __init__(self, arrays: Sequence[NDArray[np.generic]], places: Iterable[PackedPlaces], ranks: Indices) -> None:
        """Take the places of all values; value `ranks[n - 1]` is where the number n was."""
        self._packed = [
            _Packed(
                arrays[one.array].view(np.float32).reshape(-1),
                one.places,
                ranks[one.numbers - 1],
                None if np.all(one.parts == 1) else one.parts,
            )
            for one in places
        ]

    def put(self, values: Floats) -> None:
        """Write the values [values] to their places."""
        for packed in self._packed:
            if len(packed.places) == len(packed.array):
                np.take(values, packed.values, out=packed.array, mode="clip")
            else:
                packed.array[packed.places] = values[packed.values]
            if packed.parts is not None:
                packed.array[packed.places] *= packed.parts

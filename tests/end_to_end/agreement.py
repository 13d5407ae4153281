"""What it means that two runs of a model agree, and float64 as the judge where float32 rounds too much."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redpebble.dialect.semantics.interpreter import interpret
from redpebble.frontend.import_model import Source, import_model

Arrays = Mapping[str, NDArray[Any]]

RTOL = 1e-4
ATOL = 1e-5


def assert_close(actual: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], label: str = "") -> None:
    """Every output has the same shape and dtype and differs by at most ATOL + RTOL * |expected|; NaN equals NaN."""
    assert len(actual) == len(expected)
    for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        assert ours.shape == theirs.shape, f"{label} output {index}"
        assert ours.dtype == theirs.dtype, f"{label} output {index}"
        np.testing.assert_allclose(ours, theirs, rtol=RTOL, atol=ATOL, err_msg=f"{label} output {index}")


class Float64:
    """A model that is covered completely, computed in float64 by the dialect's interpreter."""

    def __init__(self, source: Source) -> None:
        self._module = import_model(source, foreign="refuse").module

    def run(self, feeds: Arrays) -> list[NDArray[np.float64]]:
        """All outputs."""
        wide = {name: array.astype(np.float64) for name, array in feeds.items()}
        return [np.asarray(array, dtype=np.float64) for array in interpret(self._module, wide)]


def largest_error(outputs: Sequence[NDArray[Any]], reference: Sequence[NDArray[np.float64]]) -> float:
    """The largest absolute error of any output."""
    return max(
        float(np.max(np.abs(output - exact), initial=0.0)) for output, exact in zip(outputs, reference, strict=True)
    )


def assert_close_for_float32(
    source: Source, feeds: Arrays, outputs: tuple[Sequence[NDArray[Any]], Sequence[NDArray[Any]]], label: str
) -> None:
    """Outputs (found, expected) agree in the scale of all; where float32 rounds too much, float64 judges."""
    found, expected = outputs
    scale = max(1.0, *(float(np.max(np.abs(output), initial=0.0)) for output in expected))
    close = all(
        ours.shape == theirs.shape and np.allclose(ours, theirs, RTOL, RTOL * scale, equal_nan=True)
        for ours, theirs in zip(found, expected, strict=True)
    )
    if not close:
        exact = Float64(source).run(feeds)
        assert largest_error(found, exact) <= 8 * largest_error(expected, exact), label

"""Prologues: what is kept of the shapes of a call, and what is computed anew."""

import numpy as np
from numpy.typing import NDArray

from redpebble.dialect.semantics.prologue import Prologue, PrologueInput, PrologueStep
from redpebble.dialect.symbolic_sizes import Size


def step(operator: str, inputs: str, output: str, **attributes: object) -> PrologueStep:
    return PrologueStep(output, operator, tuple(inputs.split()), (output,), attributes)


def prologue(*steps: PrologueStep, results: str) -> Prologue:
    x = PrologueInput("x", "int64", (Size.symbol("n"), Size.symbol("m")))
    constants = {"zero": np.array(0), "one": np.array(1), "table": np.arange(20.0, dtype=np.float32).reshape(10, 2)}
    return Prologue((x,), steps, tuple(results.split()), constants)


def numbers(*rows: list[int]) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64)


def test_sizes_are_kept_and_values_are_not() -> None:
    made = prologue(
        step("Gather", "table x", "looked_up", axis=0),
        step("Shape", "looked_up", "sizes"),
        step("Gather", "sizes one", "length", axis=0),
        step("Range", "zero length one", "places"),
        step("Add", "x places", "both"),
        step("Cast", "both", "y", to="float32"),
        results="y looked_up",
    )
    for x in (numbers([1, 2, 3]), numbers([4, 5, 6]), numbers([1, 2], [3, 4]), numbers([0, 9, 0]), numbers([7], [8])):
        found, looked_up = made.run({"x": x})
        np.testing.assert_array_equal(found, x + np.arange(len(x[0])))
        np.testing.assert_array_equal(looked_up[..., 0], 2 * x)
    assert [one.operator for one, _ in made.of_values.steps] == ["Gather", "Add", "Cast"]


def test_sizes_that_values_say_are_not_kept() -> None:
    made = prologue(
        step("NonZero", "x", "places"), step("Shape", "places", "sizes"), step("Cast", "sizes", "y", to="float32"),
        results="y",
    )  # fmt: skip
    for x, count in ((numbers([1, 0, 3]), 2), (numbers([0, 0, 0]), 0), (numbers([1, 1, 1]), 3)):
        np.testing.assert_array_equal(made.run({"x": x})[0], [2, count])


def test_results_are_kept_for_some_shapes_only() -> None:
    made = prologue(step("Shape", "x", "sizes"), step("Cast", "sizes", "y", to="float32"), results="y")
    for width in [*range(1, 12), 1, 5]:
        np.testing.assert_array_equal(made.run({"x": np.zeros((1, width), np.int64)})[0], [1, width])
    assert len(made.kept) <= 8

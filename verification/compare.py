"""Comparing two ways to run a model on random inputs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from redpebble.verification.input_choice import Feeds, InputChoice
from redpebble.verification.oracle import Comparison, Tolerance, compare, worst

Run = Callable[[Feeds], Sequence[Any]]


@dataclass(frozen=True)
class CheckPlan:
    """Random inputs to compare on: `runs` for each batch size, and how far results may be apart."""

    batches: Sequence[int]
    runs: int
    seed: int
    tolerance: Tolerance
    inputs: InputChoice = field(default_factory=InputChoice)

    def __post_init__(self) -> None:
        if self.runs < 0:
            raise ValueError(f"{self.runs} runs, expected 0 or more")
        if not self.batches or min(self.batches) < 1:
            raise ValueError(f"batches are {', '.join(map(str, self.batches)) or 'none'}, expected 1 or more each")

    def feeds(self, model: onnx_ir.Model) -> Iterator[Feeds]:
        """Yield inputs by name, in the model's shapes, the same for the same seed; or once those in a file."""
        given = self.inputs.given(model)
        if given is not None:
            yield given
            return
        rng = np.random.default_rng(self.seed)
        for batch in self.batches:
            for _ in range(self.runs):
                yield self.inputs.random(model, batch, rng)


def compare_runs(plan: CheckPlan, model: onnx_ir.Model, expected: Run, actual: Run) -> list[Comparison]:
    """Return for each output of `model` how far `actual` is from `expected`, at worst over all inputs of the plan."""
    names = [output.name or "" for output in model.graph.outputs]
    comparisons = [
        compare(name, _as_array(right), _as_array(wrong), plan.tolerance)
        for feeds in plan.feeds(model)
        for name, right, wrong in zip(names, expected(feeds), actual(feeds), strict=True)
    ]
    return worst(comparisons)


def agree(comparisons: Sequence[Comparison]) -> bool:
    """Return whether no value of any output is too far off."""
    return not any(comparison.mismatches for comparison in comparisons)


def _as_array(output: object) -> NDArray[Any]:
    """Return an output as an array; a sequence of maps, as classifiers yield, becomes a row of values a map."""
    if isinstance(output, list):
        entries = cast("list[object]", output)
        if entries and all(isinstance(entry, dict) for entry in entries):
            return np.array([list(cast("dict[object, float]", entry).values()) for entry in entries])
    return np.asarray(output)

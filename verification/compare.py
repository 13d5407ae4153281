"""Comparing two ways to run a model on random inputs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ..dialect.attributes.few_bits import ROUNDED_INPUTS
from .feeds import Feeds, InputChoice
from .oracle import Comparison, Oracle, Tolerance, compare, distance, worst

LAST_UNITS: Final = 4
"""Units of the last place by which weights are moved: a sum of some hundred products is off by a few."""

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
            raise ValueError(f"runs: expected 0 or more, got {self.runs}")
        if not self.batches or min(self.batches) < 1:
            raise ValueError(f"batches: expected 1 or more each, got {', '.join(map(str, self.batches)) or 'none'}")

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


def compare_runs(plan: CheckPlan, model: onnx_ir.Model, oracle: Oracle, actual: Run) -> list[Comparison]:
    """Return for each output of `model` how far `actual` is from onnxruntime, at worst over all inputs of the plan.

    Where a model rounds to bytes, onnxruntime gives other results with its optimizations than without, and
    results that jump with the last bit of an input: so far apart results agree. So they do where they are no farther
    apart than results of weights that differ in their last bits: deep networks add up large products that cancel.
    """
    names = [output.name or "" for output in model.graph.outputs]
    rounds = any(is_rounding(node) for node in model.graph.all_nodes())
    comparisons: list[Comparison] = []
    for feeds in plan.feeds(model):
        both = zip(oracle.run(feeds), actual(feeds), strict=True)
        pairs = [(_as_array(one), _as_array(other)) for one, other in both]
        if any(_holds_no_number(array) for array in feeds.values()):
            pairs = [(one, _left_open(one, other)) for one, other in pairs]
        found = [compare(name, *pair, plan.tolerance) for name, pair in zip(names, pairs, strict=True)]
        if not agree(found):
            slack = moved_by_weights(model, oracle, feeds)
            if rounds:
                slack = list(map(max, slack, oracle.unrest(feeds)))
            wider = zip(names, pairs, slack, strict=True)
            found = [compare(name, *pair, plan.tolerance, one) for name, pair, one in wider]
        comparisons += found
    return worst(comparisons)


def moved_by_weights(model: onnx_ir.Model, oracle: Oracle, feeds: Feeds) -> list[float]:
    """Return for each output how far it moves when each float weight moves by a few units of its last place.

    A result of rounded sums is the exact one of such weights (backward error): another order of sums gives another.
    """
    rng, moved = np.random.default_rng(0), model.clone()
    for name, value in moved.graph.initializers.items():
        if value.const_value is not None and value.const_value.dtype == onnx_ir.DataType.FLOAT:
            array = value.const_value.numpy()
            units = rng.choice(np.array([-LAST_UNITS, LAST_UNITS], np.float32), array.shape)
            value.const_value = onnx_ir.tensor(array * (1 + units * np.finfo(np.float32).eps), name=name)
    return [
        distance(one, np.asarray(other)) for one, other in zip(Oracle(moved).run(feeds), oracle.run(feeds), strict=True)
    ]


def is_rounding(node: onnx_ir.Node) -> bool:
    """Return whether a node rounds to integers, so that two right ways to compute it may be a step apart."""
    if node.op_type == "MatMulNBits":
        return node.attributes.get_int("accuracy_level", 0) == ROUNDED_INPUTS
    return "Quantize" in node.op_type or node.op_type.startswith("Q") or node.op_type == "Round"


def agree(comparisons: Sequence[Comparison]) -> bool:
    """Return whether no value of any output is too far off."""
    return not any(comparison.mismatches for comparison in comparisons)


def _holds_no_number(array: NDArray[Any]) -> bool:
    return bool(np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all())


def _left_open(expected: NDArray[Any], actual: NDArray[Any]) -> NDArray[Any]:
    """Return results in which what is NaN for onnxruntime is NaN, too.

    The product of a zero weight with infinity or NaN counts as 0 or as NaN: kernels that skip zeros have numbers there.
    """
    if expected.shape != actual.shape or not np.issubdtype(expected.dtype, np.inexact):
        return actual
    return np.where(np.isnan(expected), expected, actual)


def _as_array(output: object) -> NDArray[Any]:
    """Return an output as an array; a sequence of maps, as classifiers yield, becomes a row of values a map."""
    if isinstance(output, list):
        entries = cast("list[object]", output)
        if entries and all(isinstance(entry, dict) for entry in entries):
            return np.array([list(cast("dict[object, float]", entry).values()) for entry in entries])
    return np.asarray(output)

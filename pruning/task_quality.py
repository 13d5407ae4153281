"""Quality of a task by onnxruntime: a model beside the one that it was made from, on samples in their order."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ..frontend.reading.model_source import Source, read_runnable_model
from ..verification.oracle import Oracle
from .intervals import Interval, difference_interval
from .metrics import Answers, Metric
from .runs.calibration_data import check_feeds

Arrays = Mapping[str, NDArray[Any]]

SAMPLES: Final = 32
"""Samples that run at once, where the model takes any number."""


class TaskQuality(NamedTuple):
    """Numbers by name, the first one of which is better the larger it is; and of how many samples they are."""

    dense: Mapping[str, float]
    sparse: Mapping[str, float]
    samples: int
    interval: Interval | None = None
    """95 % of the difference of the first number."""

    def __str__(self) -> str:
        """Return a line."""
        numbers = ", ".join(f"{name} {self.dense[name]:.4g} -> {value:.4g}" for name, value in self.sparse.items())
        sure = "" if self.interval is None else f" (difference {self.interval} with 95 %)"
        return f"{numbers} on {self.samples} samples{sure}"


def task_quality(
    dense: Source, sparse: onnx_ir.Model, feeds: Arrays, labels: NDArray[Any] | None, metric: Metric
) -> TaskQuality:
    """Return the quality of both models on samples that lie along the first axes of all arrays.

    Raises:
        ValueError: arrays or labels do not fit.
    """
    original = read_runnable_model(dense)
    inputs = [onnx_ir.to_proto(one) for one in original.graph.inputs if one.name not in original.graph.initializers]
    check_feeds(inputs, feeds)
    counts = {len(value) if value.ndim else 0 for value in (*feeds.values(), *(() if labels is None else (labels,)))}
    if len(counts) != 1 or 0 in counts:
        raise ValueError("expected one or more samples along the first axes of all arrays, got other numbers")
    (count,) = counts
    firsts = [one.type.tensor_type.shape.dim[0] for one in inputs if one.type.tensor_type.shape.dim]
    size = next((one.dim_value for one in firsts if one.HasField("dim_value")), SAMPLES)
    fixed = any(one.HasField("dim_value") for one in firsts)
    whole = count - count % size if fixed else count
    if not whole:
        raise ValueError(f"expected {size} samples or more, those of a call, got {count}")
    batches = [{name: one[at : min(at + size, whole)] for name, one in feeds.items()} for at in range(0, whole, size)]
    theirs, ours = (outputs_of(one, batches) for one in (original, sparse))
    own = None if labels is None else labels[:whole]
    answers = [Answers(outputs, batches, theirs, own) for outputs in (theirs, ours)]
    reached, kept = map(metric, answers)
    return TaskQuality(reached, kept, whole, difference_interval(metric, *answers))


def outputs_of(model: onnx_ir.Model, batches: Sequence[Arrays]) -> list[dict[str, NDArray[Any]]]:
    """Return what onnxruntime makes of batches: floating outputs by name."""
    names, oracle = [one.name or "" for one in model.graph.outputs], Oracle(model)
    return [floating(dict(zip(names, oracle.run(feeds), strict=True))) for feeds in batches]


def floating(outputs: Arrays) -> dict[str, NDArray[Any]]:
    """Return floating outputs as float32, without the keys and values that decoders hand on."""
    found = {name: value for name, value in outputs.items() if np.asarray(value).dtype.kind == "f"}
    kept = {name: value for name, value in found.items() if not name.startswith("present")}
    return {name: value.astype(np.float32) for name, value in (kept or found).items()}

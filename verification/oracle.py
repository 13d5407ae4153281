"""onnxruntime as the judge: the same model on the same inputs, and how far apart two results are."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir
import onnxruntime
from numpy.typing import ArrayLike, NDArray

from ..export.loadable_model import loadable
from ..foundation.errors import RedpebbleError

Array = NDArray[Any]
Feeds = Mapping[str, Array]

NUDGES = 4
"""Times that inputs are moved by their last bits, to see how far results move."""


class OracleError(RedpebbleError):
    """onnxruntime refuses a model or its inputs; the message is its own, in one line."""


@dataclass(frozen=True)
class Tolerance:
    """Two values agree when they differ by at most absolute * scale + relative * |expected|.

    The scale is the median size of the output's values, at least 1: sums of large products that cancel round like them.
    """

    relative: float = 1e-4
    absolute: float = 1e-5

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.relative), ("atol", self.absolute)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name}: expected 0 or more, as nothing would differ, got {value}")


@dataclass(frozen=True)
class Comparison:
    """One output compared: the largest and the mean absolute difference, and how many values do not agree."""

    name: str
    max_error: float
    mean_error: float
    mismatches: int


class Oracle:
    """An onnxruntime session of a model, on the CPU."""

    def __init__(self, model: str | os.PathLike[str] | onnx_ir.Model, threads: int = 1, *, exact: bool = False) -> None:
        """Load `model`, of a file or in memory; `exact` is for comparisons, `exact_session` says what it does.

        Raises:
            OracleError: onnxruntime refuses the model.
        """
        if exact:
            self._load(lambda: exact_session(lambda options: _with_options(model, options), threads))
        else:
            self._load(lambda: _loaded(model, threads))
        self._as_written = lambda: _loaded(model, threads, as_written=True)

    @classmethod
    def of(cls, make: Callable[[], onnxruntime.InferenceSession]) -> "Oracle":
        """Return the session that `make` makes as a judge.

        Raises:
            OracleError: onnxruntime refuses the model.
        """
        oracle = cls.__new__(cls)
        oracle._load(make)
        return oracle

    def _load(self, make: Callable[[], onnxruntime.InferenceSession]) -> None:
        try:
            self.session = make()
        except Exception as error:  # onnxruntime's errors share no base class of their own
            raise OracleError(_one_line(error)) from error
        self.output_names: tuple[str, ...] = tuple(output.name for output in self.session.get_outputs())

    def run(self, feeds: Feeds) -> list[Any]:
        """Return all outputs.

        Raises:
            OracleError: onnxruntime refuses the inputs.
        """
        try:
            return self.session.run(None, dict(feeds))
        except Exception as error:
            raise OracleError(_one_line(error)) from error

    def unrest(self, feeds: Feeds) -> list[float]:
        """Return for each output how far onnxruntime's own results are apart, for want of a rule how to round.

        Compared are the model as it is written, and with onnxruntime's optimizations; and inputs that differ in
        their last bits, which turns values that lie between two bytes.

        Raises:
            OracleError: onnxruntime refuses the inputs.
        """
        rng, expected = np.random.default_rng(0), self.run(feeds)
        others = [Oracle.of(self._as_written).run(feeds)]
        others += [self.run({name: _nudged(array, rng) for name, array in feeds.items()}) for _ in range(NUDGES)]
        return [
            max(distance(one, np.asarray(right)) for one in results)
            for right, *results in zip(expected, *others, strict=True)
        ]


def _nudged(array: Array, rng: np.random.Generator) -> Array:
    if not np.issubdtype(array.dtype, np.floating):
        return array
    ends = rng.choice(np.array([-np.inf, np.inf], array.dtype), array.shape)
    return np.nextafter(array, ends)


def distance(one: ArrayLike, other: Array) -> float:
    """Return how far floating results are apart at most; 0 for results of other kinds."""
    if not np.issubdtype(other.dtype, np.floating) or np.shape(one) != other.shape:
        return 0.0
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(np.asarray(one, np.float64) - other), initial=0.0))


def session_options(threads: int) -> onnxruntime.SessionOptions:
    """Return options of a session on so many threads, which says nothing and leaves the cores alone between calls."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # idle threads that spin would take a core from whoever is measured next
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def _loaded(
    model: str | os.PathLike[str] | onnx_ir.Model, threads: int, *, as_written: bool = False
) -> onnxruntime.InferenceSession:
    options = session_options(threads)
    if as_written:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return _with_options(model, options)


def exact_session(
    make: Callable[[onnxruntime.SessionOptions], onnxruntime.InferenceSession], threads: int = 1
) -> onnxruntime.InferenceSession:
    """Return the session that `make` makes with options for exact sums of products of bytes.

    On x86 without VNNI onnxruntime adds pairs of products of unsigned and signed bytes in 16 bits, where they saturate.
    Operators that do not take its option against that, such as QGemm, run without it.
    """
    options = session_options(threads)
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return make(options)
    except Exception:  # onnxruntime's errors share no base class of their own
        return make(session_options(threads))


def _with_options(
    model: str | os.PathLike[str] | onnx_ir.Model, options: onnxruntime.SessionOptions
) -> onnxruntime.InferenceSession:
    if not isinstance(model, onnx_ir.Model):
        return _session(os.fspath(model), options)
    with loadable(model) as source:
        return _session(source, options)


def _session(source: str | bytes, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


NO_MEMORY: Final = re.compile(r"(?:running (\w+) node. Name:'(.*?)' .*)?Failed to allocate .* of size (\d+)$")
"""onnxruntime's words for a buffer that does not fit: the operator and node that ask for it, and its bytes."""


def _one_line(error: Exception) -> str:
    words = " ".join(str(error).split())
    if found := NO_MEMORY.search(words):
        operator, name, size = found.groups()
        node = f"{operator} node '{name}'" if operator else "the model"
        return f"onnxruntime: {node} asks for {size} bytes at once, more than there are"
    return f"onnxruntime: {words}"


def compare(name: str, expected: Array, actual: Array, tolerance: Tolerance, slack: float = 0.0) -> Comparison:
    """Compare two outputs; infinities and NaN agree with their like, and what is no number must be equal.

    Values that are less than `slack` apart agree.
    """
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return Comparison(name, float("inf"), float("inf"), max(expected.size, 1))
    if not np.issubdtype(expected.dtype, np.inexact):
        return Comparison(name, 0.0, 0.0, int(np.count_nonzero(expected != actual)))
    with np.errstate(invalid="ignore", over="ignore"):
        absolute = max(slack, tolerance.absolute * max(1.0, _usual_size(expected)))
        close = np.isclose(actual, expected, tolerance.relative, absolute, equal_nan=True)
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        errors = np.where(same, 0.0, np.abs(actual.astype(np.float64) - expected.astype(np.float64)))
    if errors.size == 0:
        return Comparison(name, 0.0, 0.0, 0)
    return Comparison(name, float(np.max(errors)), float(np.mean(errors)), int(np.count_nonzero(~close)))


def _usual_size(expected: Array) -> float:
    """Return the median size of values that are neither zero nor infinite; masked scores do not count."""
    sizes = np.abs(expected[np.isfinite(expected) & (expected != 0)])
    return float(np.median(sizes)) if sizes.size else 0.0


def worst(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return one comparison an output: the largest errors and all mismatches of several runs."""
    names = list(dict.fromkeys(comparison.name for comparison in comparisons))
    groups = [[comparison for comparison in comparisons if comparison.name == name] for name in names]
    return [
        Comparison(
            name,
            max(c.max_error for c in group),
            max(c.mean_error for c in group),
            sum(c.mismatches for c in group),
        )
        for name, group in zip(names, groups, strict=True)
    ]

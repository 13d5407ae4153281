"""LSTM and GRU with zeros in their weights: sessions beside onnxruntime's, of whole sequences and of a step a call.

Run `python -m redpebble.bench.suites.recurrence_bench [256,512,1024] [--operators LSTM,GRU] [--sparsities .7,.8,.9]
[--batches 1,8] [--steps 100]`. As many inputs as there are values of a state; with `--steps 1` states are inputs, as in
streaming.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import onnx
import onnxruntime
import typer
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble

from ...tools.benching.engines.aligned import aligned
from ...verification.measuring import Budget, Call, interleave
from ..results.page_tables import PageTable, Write

GATES: Final = {"LSTM": 4, "GRU": 3}
STATES: Final = {"LSTM": ("h", "c"), "GRU": ("h",)}

RECURRENCES: Final = PageTable("recurrences", ("operator, state", "batch"))


class Recurrence(NamedTuple):
    """One node: its operator, the values of a state and of an input, and the share of zeros in both weights."""

    operator: str
    hidden: int
    sparsity: float


class RecurrenceRow(NamedTuple):
    """A recurrence at a batch: microseconds of a call in onnxruntime, and in a session of ours."""

    recurrence: Recurrence
    batch: int
    runtime_us: float
    ours_us: float


def model_of(recurrence: Recurrence) -> onnx.ModelProto:
    """Return a model of one recurrence whose first states are inputs, and whose results are all of the node's."""
    operator, hidden, sparsity = recurrence
    rng, gates = np.random.default_rng(0), GATES[operator] * hidden
    scale = 1 / np.sqrt(max(1.0, hidden * (1 - sparsity)))

    def weight() -> NDArray[np.float32]:
        kept = rng.random((1, gates, hidden)) >= sparsity
        return (scale * kept * rng.standard_normal((1, gates, hidden))).astype(np.float32)

    arrays = {"w": weight(), "r": weight(), "b": np.zeros((1, 2 * gates), np.float32)}
    states = STATES[operator]
    # torch and Keras multiply a GRU's state before they reset it
    attributes: dict[str, Any] = {"linear_before_reset": 1} if operator == "GRU" else {}
    results = ["y", *(f"last_{state}" for state in states)]
    node = helper.make_node(operator, ["x", *arrays, "", *states], results, hidden_size=hidden, **attributes)
    state = [1, "batch", hidden]
    inputs = [("x", ["steps", "batch", hidden]), *((name, state) for name in states)]
    outputs = [("y", ["steps", 1, "batch", hidden]), *((name, state) for name in results[1:])]
    graph = helper.make_graph(
        [node],
        "recurrence",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def feeds_of(recurrence: Recurrence, steps: int, batch: int) -> dict[str, NDArray[Any]]:
    """Return a sequence and first states."""
    rng, shape = np.random.default_rng(1), (1, batch, recurrence.hidden)
    x = rng.standard_normal((steps, batch, recurrence.hidden), np.float32)
    states = {name: rng.uniform(-0.5, 0.5, shape).astype(np.float32) for name in STATES[recurrence.operator]}
    return {name: aligned(array) for name, array in {"x": x, **states}.items()}


def bench_recurrence(
    recurrence: Recurrence, batches: Sequence[int], steps: int, seconds: float = 2.0
) -> Iterator[RecurrenceRow]:
    """Yield a row for each batch, on one thread, measured for so many seconds."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = model_of(recurrence)
    sessions = {
        "runtime": onnxruntime.InferenceSession(model.SerializeToString(), options),
        "ours": redpebble.session(model, options),
    }
    for batch in batches:
        feeds = feeds_of(recurrence, steps, batch)
        calls: dict[str, Call] = {name: partial(one.run, None, feeds) for name, one in sessions.items()}
        times = interleave(calls, Budget(seconds))
        yield RecurrenceRow(recurrence, batch, times["runtime"].median_us, times["ours"].median_us)


def main(
    sizes: Annotated[str, typer.Argument(help="Values of a state.")] = "256,512,1024",
    operators: Annotated[str, typer.Option(help="LSTM, GRU.")] = "LSTM,GRU",
    sparsities: Annotated[str, typer.Option(help="Shares of zeros.")] = "0.7,0.8,0.9",
    batches: str = "1,8",
    steps: Annotated[int, typer.Option(help="Steps of a call.")] = 100,
    *,
    write: Write = False,
) -> None:
    """Print a row for each recurrence and batch, a column for each share of zeros."""
    shares = sparsities.split(",")
    with RECURRENCES.rows(*shares, f"us at {shares[-1]}", write=write) as add:
        for operator, hidden in product(operators.split(","), map(int, sizes.split(","))):
            found = [
                list(bench_recurrence(Recurrence(operator, hidden, float(share)), _numbers(batches), steps))
                for share in shares
            ]
            for rows in zip(*found, strict=True):
                last, ratios = rows[-1], (f"{row.runtime_us / row.ours_us:.1f}x" for row in rows)
                add(f"{operator} {hidden}", last.batch, *ratios, f"{last.runtime_us:.0f} -> {last.ours_us:.0f}")


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


if __name__ == "__main__":
    typer.run(main)

"""Transformers that are pruned and quantized, beside onnxruntime's integers and floats, in the same rounds.

`python -m redpebble.bench.quantized_transformers_bench [NAME ...] [--forms products,sums,all,dynamic] [--sizes
1x128,8x128] [--sparsity 0.9] [--seconds 3] [--thread-time]`: exports of torch's exporter with random weights, of
which a share is zero in each layer, as onnxruntime's quantizer writes them with a scale an output: `products` are
MatMul and Gemm, `sums` also Add, `all` each operator that it knows, but for the sum with the mask; `dynamic` finds
scales at each call. Sessions on one thread take turns in one process; a session of the same pruned file of floats
runs beside them. The deviation from onnxruntime's integers is the root of its mean square, as a share of the
outputs'.
"""

import tempfile
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import onnx
import onnxruntime
import typer
from onnxruntime.quantization import QuantType, quantize_dynamic

import redpebble

from ..models.exports.stored import random_feeds, stored_export
from ..verification.measuring import Budget, interleave
from .quantized_images_bench import Feed, quantized
from .results.page_tables import PageTable, Write

NETWORKS: Final = PageTable(
    "transformers in eight bits", ("network", "form", "size", "ms", "int8", "fp32", "deviation")
)

OPERATORS: Final[dict[str, list[str] | None]] = {
    "products": ["MatMul", "Gemm"],
    "sums": ["MatMul", "Gemm", "Add"],
    "all": None,
}

CLOSE: Final = 0.05
"""Deviation up to which a result is right: a value next to a tie changes all that is rounded behind it."""


def as_quantized(model: onnx.ModelProto, form: str) -> onnx.ModelProto:
    """Return a model in one of the forms."""
    if form == "dynamic":
        return _dynamic(model)
    scores = {node.input[0] for node in model.graph.node if node.op_type == "Softmax"}
    for index, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{index}"
    but = [node.name for node in model.graph.node if scores.intersection(node.output)]
    return quantized(model, "qdq", feed_of(model, 2, 32), OPERATORS[form], but)


def _dynamic(model: onnx.ModelProto) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "float.onnx"), Path(folder, "quantized.onnx")
        before.write_bytes(model.SerializeToString())
        quantize_dynamic(before, after, weight_type=QuantType.QInt8, per_channel=True)
        return onnx.load_from_string(after.read_bytes())


def feed_of(model: onnx.ModelProto, batch: int, length: int) -> Feed:
    """Return inputs of so many texts of a length."""
    free = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
    sizes = {name: batch if name.startswith("batch") else length for name in free}
    return dict(random_feeds(model, sizes))


Cells = tuple[str, ...]


def rows_of(export: str, form: str, sizes: list[tuple[int, int]], sparsity: float, budget: Budget) -> list[Cells]:
    """Return rows of the table: medians, and how often ours fits into theirs.

    Raises:
        ValueError: a result differs from that of onnxruntime's integers.
    """
    floats = stored_export(export, sparsity)
    integers, options = as_quantized(floats, form), onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = {
        "ours": redpebble.session(integers, options),
        "int8": onnxruntime.InferenceSession(integers.SerializeToString(), options, providers=["CPUExecutionProvider"]),
        "fp32": onnxruntime.InferenceSession(floats.SerializeToString(), options, providers=["CPUExecutionProvider"]),
    }
    rows: list[Cells] = []
    for batch, length in sizes:
        feed = feed_of(floats, batch, length)
        ours, theirs = (np.asarray(sessions[name].run(None, feed)[0], np.float64) for name in ("ours", "int8"))
        deviation = float(np.sqrt(np.mean((ours - theirs) ** 2) / np.mean(theirs**2)))
        if deviation > CLOSE:
            raise ValueError(f"{export}: results deviate by {deviation:.3f}")
        calls = {name: partial(session.run, None, feed) for name, session in sessions.items()}
        times = {name: timing.median_us for name, timing in interleave(calls, budget).items()}
        ratios = (f"{times[name] / times['ours']:.2f}x" for name in ("int8", "fp32"))
        rows.append((export, form, f"{batch}x{length}", f"{times['ours'] / 1e3:.2f}", *ratios, f"{deviation:.1e}"))
    return rows


def main(
    exports: Annotated[list[str] | None, typer.Argument(help="Stored exports, such as bert_base.dynamo.")] = None,
    forms: Annotated[str, typer.Option(help="products, sums, all, dynamic.")] = "products,all",
    sizes: Annotated[str, typer.Option(help="Texts and their length.")] = "1x128,8x128",
    sparsity: Annotated[float, typer.Option(help="Share of zeros.")] = 0.9,
    seconds: Annotated[float, typer.Option(help="Time for each row.")] = 3.0,
    *,
    thread_time: Annotated[bool, typer.Option(help="Count the time of the thread on its core.")] = False,
    write: Write = False,
) -> None:
    """Print a table of ratios."""
    budget = Budget(seconds, clock=time.thread_time if thread_time else time.perf_counter)
    shapes = [(int(batch), int(length)) for batch, length in (one.split("x") for one in sizes.split(","))]
    with NETWORKS.rows(write=write) as add:
        for export, form in product(exports or ["minilm_size.dynamo"], forms.split(",")):
            for row in rows_of(export, form, shapes, sparsity, budget):
                add(*row)


if __name__ == "__main__":
    typer.run(main)

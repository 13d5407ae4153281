"""Pruned layers in bfloat16 beside themselves in float32, and beside onnxruntime's dense ones, in the same rounds.

`python -m redpebble.bench.bfloat_bench [SHAPE,...] [--sparsities .7,.8,.9,.95] [--batches 32,128,512]
[--seconds 1] [--thread-time]`; single weights at random, a bias and Relu; on one thread, arrays bound once. A layer
that is not predicted to gain by bfloat16 is measured as it is, which the last column says.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Annotated, Final, NamedTuple

import numpy as np
import onnx
import typer
from onnx import TensorProto, helper, numpy_helper

import redpebble

from ..verification.measuring import Budget, interleave
from .bound_onnxruntime import bound_onnxruntime
from .results.page_tables import PageTable, PrintedRows, Write, mean_cells

LAYERS: Final = PageTable("layers in bfloat16", ("rows",))
HEADS: Final = ("layer", "zeros", "rows", "us", "GF", "GF in f32", "over f32", "over fp32", "f32 over fp32")


class Case(NamedTuple):
    """A layer with a batch: cells of its row, and ratios: bf16 over f32, bf16 and f32 over onnxruntime's fp32."""

    sparsity: str
    batch: int
    cells: tuple[object, ...]
    ratios: tuple[float, ...]


def layer(inputs: int, outputs: int, sparsity: float) -> onnx.ModelProto:
    """Return relu(x w + b), x [batch, inputs], with as large a share of zeros in w."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((inputs, outputs)) * (rng.random((inputs, outputs)) >= sparsity) / np.sqrt(inputs)
    arrays = {"w": weight.astype(np.float32), "b": rng.standard_normal(outputs).astype(np.float32)}
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["g"]), helper.make_node("Relu", ["g"], ["y"])]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
        for name, size in (("x", inputs), ("y", outputs))
    )
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "layer", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def cases(shape: str, sparsity: str, batches: Sequence[int], budget: Budget) -> Iterator[Case]:
    """Yield a case for each batch: fastest rounds, ratios, and the change of results."""
    sizes = [int(size) for size in shape.split("x")]
    model = layer(sizes[0], sizes[1], float(sparsity))
    weight = numpy_helper.to_array(model.graph.initializer[0])
    inputs, outputs = weight.shape
    connections = int(np.count_nonzero(weight))
    for batch in batches:
        x = np.random.default_rng(1).standard_normal((batch, inputs), dtype=np.float32)
        halves = redpebble.optimize(model, precision="bf16", rows=batch)
        networks = [redpebble.compile(one, cache=False) for one in (halves.proto, model)]
        rounded, exact = (network.run(None, {"x": x})[0] for network in networks)
        change = float(np.sqrt(np.mean((rounded - exact) ** 2) / np.mean(exact**2)))
        calls = {
            "bf16": networks[0].bind({"x": x}).run,
            "f32": networks[1].bind({"x": x}).run,
            "dense": bound_onnxruntime(model.SerializeToString(), x, np.empty((batch, outputs), np.float32)),
        }
        us = {name: timing.min_us for name, timing in interleave(calls, budget).items()}
        giga = [2e-3 * connections * batch / us[name] for name in ("bf16", "f32")]
        ratios = us["f32"] / us["bf16"], us["dense"] / us["bf16"], us["dense"] / us["f32"]
        left = "" if halves.quantized.startswith("1 of 1 ") else halves.quantized.partition("; ")[2] or halves.obstacle
        share = 1 - connections / weight.size
        cells = (shape, f"{share:.2f}", batch, f"{us['bf16']:.1f}", *(f"{one:.0f}" for one in giga))
        yield Case(sparsity, batch, (*cells, *(f"{one:.2f}x" for one in ratios), f"{change:.2%}", left), ratios)


def main(
    shapes: Annotated[str, typer.Argument(help="Inputs and outputs, such as 768x768,768x3072.")] = "768x768,1024x1024",
    sparsities: Annotated[str, typer.Option(help="Shares of zeros.")] = "0.7,0.8,0.9,0.95",
    batches: Annotated[str, typer.Option(help="Rows.")] = "32,128,512",
    seconds: Annotated[float, typer.Option(help="Time for each case.")] = 1.0,
    *,
    thread_time: Annotated[bool, typer.Option(help="Count the time of the thread on its core.")] = False,
    write: Write = False,
) -> None:
    """Print a table of all layers, and one of the geometric means over shapes, which the page has."""
    budget = Budget(seconds, clock=time.thread_time if thread_time else time.perf_counter)
    measured: list[Case] = []
    single = PrintedRows(*HEADS, "results change by", "left as it is")
    for shape, sparsity in product(shapes.split(","), sparsities.split(",")):
        for case in cases(shape, sparsity, [int(batch) for batch in batches.split(",")], budget):
            measured.append(case)
            single.add(*case.cells)
    with LAYERS.rows(*sparsities.split(","), write=write) as add:
        for batch, cells in mean_cells((case.batch, case.sparsity, case.ratios) for case in measured).items():
            add(batch, *cells.values())


if __name__ == "__main__":
    typer.run(main)

"""A pruned network in a library made ahead of time, at each level of CPU features, beside a session of the same file.

`python -m redpebble.bench.library_bench [768,1024,768,256] [--sparsity .9] [--batches 1,8,128] [--seconds 2]
[--thread-time]`: as floats, as bytes and in bfloat16, as `optimize` makes them of one network with single weights at
random and Relu between its layers. One thread; all sessions take turns in one process. A level that this CPU lacks is
left out, and so is one at which a network has no code of its own.
"""

import ctypes
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import typer
from onnx import TensorProto, helper, numpy_helper

import redpebble

from ..ort.custom_ops.library import level_target
from ..ort.native.tables import LEVEL_VARIABLE, LEVELS
from ..ort.session import write_library
from ..runtime.jit import missing_features
from ..tuning.calibration import prices_of_cpu
from ..tuning.machines import BFLOAT_MACHINES
from ..verification.measuring import Budget, interleave
from .results.page_tables import PageTable, Write

CALLS: Final = PageTable("libraries", ("network of", "library MB", "rows", "session us", *LEVELS["x86_64"]))

SAMPLES = 64
"""Rows from which ranges of values are found."""


def network(sizes: Sequence[int], sparsity: float) -> onnx.ModelProto:
    """Return layers between `sizes` neurons, x [batch, sizes[0]] to the last ones, with as large a share of zeros."""
    rng, nodes, weights, value = np.random.default_rng(0), list[onnx.NodeProto](), list[onnx.TensorProto](), "x"
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        weight = rng.standard_normal((inputs, outputs)) * (rng.random((inputs, outputs)) >= sparsity)
        arrays = {
            f"w{index}": weight / np.sqrt(inputs * (1 - sparsity)),
            f"b{index}": rng.standard_normal(outputs) / 10,
        }
        weights += [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
        nodes += [helper.make_node("Gemm", [value, *arrays], [f"g{index}"], name=f"fc{index}")]
        nodes += [helper.make_node("Relu", [f"g{index}"], [f"a{index}"])]
        value = f"a{index}"
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
        for name, size in (("x", sizes[0]), (nodes[-2].output[0], sizes[-1]))
    )
    graph = helper.make_graph(nodes[:-1], "network", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def sessions(model: onnx.ModelProto, file: Path) -> Mapping[str, onnxruntime.InferenceSession]:
    """Return a session with the library `file`, which is made for the model, for each level that this CPU has."""
    found: dict[str, onnxruntime.InferenceSession] = {}
    for level in filter(has_level, write_library(model, file)):
        options = one_thread()
        options.register_custom_ops_library(str(file))
        ctypes.c_int64.in_dll(ctypes.CDLL(str(file)), LEVEL_VARIABLE).value = LEVELS["x86_64"].index(level)
        found[level] = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return found


def has_level(level: str) -> bool:
    """Return whether this CPU runs code of a level."""
    return not missing_features(level_target(level)) and (level != "zen4" or prices_of_cpu() == BFLOAT_MACHINES[16][0])


def one_thread() -> onnxruntime.SessionOptions:
    """Return options of a session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return options


def cells(
    name: str, model: onnx_ir.Model, file: Path, batches: Sequence[int], budget: Budget
) -> Iterator[tuple[object, ...]]:
    """Yield a row of the table for each batch: medians of the session, and of each level over it."""
    proto = onnx_ir.to_proto(model)
    made: dict[str, Any] = {**sessions(proto, file), "session": redpebble.session(proto, one_thread())}
    features = proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    for batch in batches:
        x = np.random.default_rng(batch).standard_normal((batch, features), dtype=np.float32)
        times = interleave({key: partial(one.run, None, {"x": x}) for key, one in made.items()}, budget)
        us = times["session"].median_us
        ratios = [f"{times[level].median_us / us:.2f}" if level in times else "" for level in LEVELS["x86_64"]]
        yield name, f"{file.stat().st_size / 1e6:.1f}", batch, f"{us:.1f}", *ratios


def main(
    neurons: Annotated[str, typer.Argument(help="Neurons of each layer.")] = "768,1024,768,256",
    sparsity: Annotated[float, typer.Option(help="Share of zeros.")] = 0.9,
    batches: Annotated[str, typer.Option(help="Rows.")] = "1,8,128",
    seconds: Annotated[float, typer.Option(help="Time for each line.")] = 2.0,
    *,
    thread_time: Annotated[bool, typer.Option(help="Count the time of the thread on its core.")] = False,
    write: Write = False,
) -> None:
    """Print a table of ratios."""
    sizes, budget = (
        [int(size) for size in neurons.split(",")],
        Budget(seconds, clock=time.thread_time if thread_time else time.perf_counter),
    )
    floats = network(sizes, sparsity)
    x = np.random.default_rng(0).standard_normal((SAMPLES, sizes[0]), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder, CALLS.rows(write=write) as add:
        for name, model in {
            "floats": redpebble.optimize(floats),
            "bytes": redpebble.optimize(floats, samples={"x": x}),
            "bfloat16": redpebble.optimize(floats, precision="bf16"),
        }.items():
            file = Path(folder, f"{name}.so")
            for row in cells(name, model.model, file, [int(n) for n in batches.split(",")], budget):
                add(*row)


if __name__ == "__main__":
    typer.run(main)

"""Layers of four bits, with zeros among their codes or none, beside onnxruntime's MatMulNBits, in sessions.

`python -m redpebble.bench.suites.few_bits_bench [SHAPE,...] [--sparsities 0,.5,.8,.9,2:4] [--rows 1,2,4,8]
[--accuracy 4] [--copies 3] [--threads 1] [--seconds 1]`. Groups have 32 inputs, zeros are anywhere or two of four. Both
engines go through `copies` of the layer in turn, each with weights of its own, so that these come from memory once they
are larger than the cache.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Final

import numpy as np
import onnx
import onnxruntime
import typer
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble

from ...verification.measuring import Budget, Call, interleave
from ..bound_onnxruntime import bound_session
from ..results.page_tables import PageTable, Write

SIZE: Final = 32
"""Inputs of a group."""

OURS, THEIRS = "redpebble", "onnxruntime"

LAYERS: Final = PageTable(
    "layers of four bits", ("layer", "zeros", "rows", "redpebble us", "MatMulNBits us", "ratio", "of the least")
)


@dataclass(frozen=True)
class FewBitsLayer:
    """A layer of random codes of four bits."""

    inputs: int
    outputs: int
    sparsity: str
    accuracy: int

    def model(self, seed: int) -> onnx.ModelProto:
        """Return a model of the layer."""
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, 16, (self.outputs, self.inputs)).astype(np.uint8)
        codes[self._zeros(rng)] = 8
        packed = codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)
        scales = rng.uniform(0.01, 0.02, self.outputs * self.inputs // SIZE).astype(np.float32)
        held = {"codes": packed.reshape(self.outputs, -1, SIZE // 2), "scales": scales}
        node = helper.make_node("MatMulNBits", ["x", *held], ["y"], "layer", domain="com.microsoft")
        numbers = {"K": self.inputs, "N": self.outputs, "bits": 4, "block_size": SIZE, "accuracy_level": self.accuracy}
        node.attribute.extend(helper.make_attribute(name, number) for name, number in numbers.items())
        x, y = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])
            for name, size in (("x", self.inputs), ("y", self.outputs))
        )
        graph = helper.make_graph([node], "layer", [x], [y], [numpy_helper.from_array(a, n) for n, a in held.items()])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _zeros(self, rng: np.random.Generator) -> NDArray[np.bool_]:
        shape = (self.outputs, self.inputs)
        if self.sparsity == "2:4":
            order = rng.random((self.outputs, self.inputs // 4, 4)).argsort(axis=2)
            return (order < 2).reshape(shape)
        return rng.random(shape) < float(self.sparsity)

    def sessions(self, copies: int, threads: int) -> dict[str, list[onnxruntime.InferenceSession]]:
        """Return the sessions of each engine."""
        found: dict[str, list[onnxruntime.InferenceSession]] = {OURS: [], THEIRS: []}
        model = self.model(seed=0)
        for _ in range(copies):
            options = [onnxruntime.SessionOptions() for _ in found]
            for one in options:
                one.intra_op_num_threads = threads
            found[OURS].append(redpebble.session(model, options[0]))
            found[THEIRS].append(onnxruntime.InferenceSession(model.SerializeToString(), options[1]))
        return found

    def call(self, sessions: Sequence[onnxruntime.InferenceSession], rows: int) -> Call:
        """Return a call of all copies."""
        x = np.random.default_rng(1).standard_normal((rows, self.inputs), dtype=np.float32)
        calls = [bound_session(one, x, np.empty((rows, self.outputs), np.float32)) for one in sessions]

        def run() -> None:
            for call in calls:
                call()

        return run


def main(
    shapes: Annotated[str, typer.Argument(help="Inputs and outputs.")] = "2048x2048,4096x4096",
    sparsities: Annotated[str, typer.Option(help="Shares of zeros, or 2:4.")] = "0,0.5,0.8,0.9,2:4",
    rows: Annotated[str, typer.Option(help="Rows.")] = "1,2,4,8",
    accuracy: Annotated[int, typer.Option(help="Accuracy level: 4 rounds inputs, 0 does not.")] = 4,
    copies: Annotated[int, typer.Option(help="Layers that are called in turn.")] = 3,
    threads: Annotated[int, typer.Option(help="Threads of a session.")] = 1,
    seconds: Annotated[float, typer.Option(help="Time for each case.")] = 1.0,
    *,
    write: Write = False,
) -> None:
    """Print a table of microseconds of a layer, by medians, and the ratio of the shortest times as well.

    One thread is timed by what it works itself, without what other programs take.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    with LAYERS.rows(write=write) as add:
        for shape, sparsity in product(shapes.split(","), sparsities.split(",")):
            inputs, outputs = (int(size) for size in shape.split("x"))
            layer = FewBitsLayer(inputs, outputs, sparsity, accuracy)
            sessions = layer.sessions(copies, threads)
            for count in map(int, rows.split(",")):
                calls = {name: layer.call(own, count) for name, own in sessions.items()}
                timed = interleave(calls, Budget(seconds, clock=clock))
                ours, theirs = (timed[name].median_us / copies for name in (OURS, THEIRS))
                least = timed[THEIRS].min_us / timed[OURS].min_us
                words = (f"{ours:.0f}", f"{theirs:.0f}", f"{theirs / ours:.2f}x", f"{least:.2f}x")
                add(shape, sparsity, count, *words)


if __name__ == "__main__":
    typer.run(main)

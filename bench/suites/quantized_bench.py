"""Pruned layers of eight bits beside onnxruntime's dense ones, of eight bits and of floats, in the same rounds.

`python -m redpebble.bench.suites.quantized_bench [SHAPE,...] [--sparsities .8,.9] [--batches 1,8,128] [--seconds 1]
[--structure rows:4|blocks:4]`, where outputs share their inputs, or inputs come in blocks, not single weights; on
one thread, arrays bound once. onnxruntime's layer of eight bits is the faster one of two: `MatMulInteger`, whose sums
nobody scales or rounds, and `QGemm` between floats, as ours is. Both have unsigned inputs and signed weights. With
`--sparseml` ours, and the latter, are as SparseML writes a layer: `MatMulInteger` of unsigned weights, Add, Cast, Mul.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import onnx
import typer
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.bench.engines.bound_onnxruntime import bound_onnxruntime
from redpebble.bench.measure.measuring import Budget, Call, interleave
from redpebble.bench.results.console import console

Array = NDArray[np.generic]

ZERO, SCALE, STEP = 128, np.float32(0.02), np.float32(0.01)
"""Zero and scale of inputs, and the scale of weights."""


@dataclass(frozen=True)
class QuantizedLayer:
    """A layer of random weights of eight bits, and a random mask whose entries hold for a `tile` of weights each."""

    inputs: int
    outputs: int
    sparsity: float
    tile: tuple[int, int] = (1, 1)
    is_sparseml: bool = False

    def weight(self) -> NDArray[np.int8]:
        """Return the weight [inputs, outputs]."""
        rng = np.random.default_rng(0)
        inside, across = self.tile
        few = rng.random((-(-self.inputs // inside), -(-self.outputs // across))) >= self.sparsity
        kept = few.repeat(inside, 0).repeat(across, 1)[: self.inputs, : self.outputs]
        return np.where(kept, rng.integers(-127, 128, kept.shape), 0).astype(np.int8)

    def integer_model(self) -> bytes:
        """Return MatMulInteger alone."""
        zero = numpy_helper.from_array(np.array(ZERO, np.uint8), "zero")
        nodes = [helper.make_node("MatMulInteger", ["x", "w", "zero"], ["y"])]
        return self._model(nodes, [zero, numpy_helper.from_array(self.weight(), "w")], TensorProto.UINT8)

    def float_model(self) -> bytes:
        """Return MatMul of floats."""
        weight = numpy_helper.from_array(self.weight().astype(np.float32), "w")
        return self._model([helper.make_node("MatMul", ["x", "w"], ["y"])], [weight], TensorProto.FLOAT)

    def quantized_model(self) -> bytes:
        """Return Gemm between QuantizeLinear and DequantizeLinear."""
        arrays: dict[str, Array] = {
            "xs": np.array(SCALE),
            "xz": np.array(ZERO, np.uint8),
            "w": self.weight(),
            "ws": np.full(self.outputs, STEP),
            # without zeros onnxruntime makes no QGemm of the layer
            "wz": np.zeros(self.outputs, np.int8),
            "b": np.zeros(self.outputs, np.int32),
            "bs": np.full(self.outputs, SCALE * STEP),
            "ys": np.array(0.5, np.float32),
        }
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1),
            helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"], axis=0),
            helper.make_node("Gemm", ["d", "wd", "bd"], ["g"], name="layer"),
            helper.make_node("QuantizeLinear", ["g", "ys", "xz"], ["r"]),
            helper.make_node("DequantizeLinear", ["r", "ys", "xz"], ["y"]),
        ]
        return self._model(
            nodes, [numpy_helper.from_array(array, name) for name, array in arrays.items()], TensorProto.FLOAT
        )

    def sparseml_model(self) -> bytes:
        """Return MatMulInteger of unsigned weights, whose zero is 128, between QuantizeLinear and a scale."""
        arrays: dict[str, Array] = {
            "xs": np.array(SCALE),
            "xz": np.array(ZERO, np.uint8),
            "w": (self.weight().astype(np.int16) + ZERO).astype(np.uint8),
            "wz": np.array(ZERO, np.uint8),
            "b": np.zeros(self.outputs, np.int32),
            "s": np.array(SCALE * STEP),
        }
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
            helper.make_node("MatMulInteger", ["q", "w", "xz", "wz"], ["p"]),
            helper.make_node("Add", ["p", "b"], ["a"]),
            helper.make_node("Cast", ["a"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["f", "s"], ["y"]),
        ]
        return self._model(
            nodes, [numpy_helper.from_array(array, name) for name, array in arrays.items()], TensorProto.FLOAT
        )

    def _model(self, nodes: Sequence[onnx.NodeProto], weights: Sequence[onnx.TensorProto], kind: int) -> bytes:
        result = TensorProto.INT32 if kind == TensorProto.UINT8 else TensorProto.FLOAT
        x = helper.make_tensor_value_info("x", kind, ["batch", self.inputs])
        y = helper.make_tensor_value_info("y", result, ["batch", self.outputs])
        graph = helper.make_graph(nodes, "layer", [x], [y], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return model.SerializeToString()

    def calls(self, batch: int) -> dict[str, Call]:
        """Return a call of each engine for a batch."""
        floats = np.random.default_rng(1).standard_normal((batch, self.inputs), dtype=np.float32)
        codes = np.clip(np.rint(floats / SCALE) + ZERO, 0, 255).astype(np.uint8)
        shape = (batch, self.outputs)
        between_floats = self.sparseml_model() if self.is_sparseml else self.quantized_model()
        return {
            "ours": redpebble.compile(between_floats, cache=False).bind({"x": floats}).run,
            "MatMulInteger": bound_onnxruntime(self.integer_model(), codes, np.empty(shape, np.int32)),
            "between floats": bound_onnxruntime(between_floats, floats, np.empty(shape, np.float32)),
            "fp32": bound_onnxruntime(self.float_model(), floats, np.empty(shape, np.float32)),
        }


def lines(layer: QuantizedLayer, batches: Sequence[int], budget: Budget) -> Iterator[str]:
    """Yield a row of the table for each batch: fastest rounds, and how often ours fits into theirs."""
    connections = int(np.count_nonzero(layer.weight()))
    for batch in batches:
        times = {name: timing.min_us for name, timing in interleave(layer.calls(batch), budget).items()}
        ours, int8 = times["ours"], min(times["MatMulInteger"], times["between floats"])
        giga = 2e-3 * connections * batch / ours
        ratios = [f"{time / ours:.2f}x" for time in (int8, times["between floats"], times["fp32"])]
        shape = f"{layer.inputs}x{layer.outputs}"
        yield f"| {shape} | {layer.sparsity:g} | {batch} | {ours:.1f} | {giga:.0f} | {' | '.join(ratios)} |"


def main(
    shapes: Annotated[str, typer.Argument(help="Inputs and outputs, such as 768x768,768x3072.")] = "768x768,1024x1024",
    sparsities: Annotated[str, typer.Option(help="Shares of zeros.")] = "0.8,0.9,0.95,0.99",
    batches: Annotated[str, typer.Option(help="Rows.")] = "1,8,32,128",
    seconds: Annotated[float, typer.Option(help="Time for each case.")] = 1.0,
    structure: Annotated[str, typer.Option(help="rows:N, blocks:N, or free for single weights.")] = "free",
    *,
    sparseml: Annotated[bool, typer.Option(help="Layers as SparseML writes them.")] = False,
    thread_time: Annotated[bool, typer.Option(help="Count the time of the thread on its core.")] = False,
) -> None:
    """Print a table of ratios."""
    console.print(
        "| layer | sparsity | rows | us | GOP/s | fastest int8 | between floats | fp32 |\n" + "|---" * 8 + "|"
    )
    kind, _, count = structure.partition(":")
    tile = {"free": (1, 1), "rows": (1, int(count or 1)), "blocks": (int(count or 1), 1)}[kind]
    budget = Budget(seconds, clock=time.thread_time if thread_time else time.perf_counter)
    for shape in shapes.split(","):
        inputs, outputs = (int(size) for size in shape.split("x"))
        for sparsity in sparsities.split(","):
            layer = QuantizedLayer(inputs, outputs, float(sparsity), tile, sparseml)
            for line in lines(layer, [int(batch) for batch in batches.split(",")], budget):
                console.print(line, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)

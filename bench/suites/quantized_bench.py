"""Pruned layers of eight bits beside onnxruntime's dense ones, of eight bits and of floats, in the same rounds.

`python -m redpebble.bench.suites.quantized_bench [SHAPE,...] [--sparsities .8,.9] [--batches 1,8,128] [--seconds 1]
[--structure rows:4|blocks:4]`, where outputs share their inputs, or inputs come in blocks, not single weights; on
one thread, arrays bound once. Ours takes unsigned codes and yields some: sums are scaled and rounded. onnxruntime's
layer of eight bits is the fastest one of three: `MatMulInteger`, whose sums nobody scales or rounds, `QLinearMatMul`
and `QGemm`, which do what ours does. All have signed weights, with a scale an output.

With `--signed` codes are signed, with `--floats` layers take and yield floats, which are rounded at both ends. With
`--sparseml` ours, and the one beside it, are as SparseML writes a layer: `MatMulInteger` of unsigned weights, Add,
Cast, Mul, with `QuantizeLinear` behind it. `--session` times our calls through onnxruntime, too.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import onnx
import onnxruntime
import typer
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble

from ...runtime.memory import FLOAT32
from ...verification.measuring import Budget, Call, interleave
from ..bound_onnxruntime import bound_onnxruntime, bound_session
from ..results.page_tables import PageTable, PrintedRows, Write, mean_cells

Array = NDArray[np.generic]

ZERO, SCALE, STEP = 128, np.float32(0.02), np.float32(0.01)
"""Zero and scale of inputs, and the scale of weights."""

OURS, SAME, SESSION = "ours", "same layer", "session"

HEADS: Final = ("fastest int8", SAME, "fp32")

LAYERS: Final = PageTable("layers of eight bits", ("rows",))
"""Geometric means over shapes of our speed over each of `HEADS`."""


Arrays = dict[str, Array]


class Ends(NamedTuple):
    """Types of what a layer takes and yields."""

    are_floats: bool = False
    are_signed: bool = False

    @property
    def codes(self) -> np.dtype[Any]:
        return np.dtype(np.int8 if self.are_signed else np.uint8)

    @property
    def zero(self) -> int:
        return 0 if self.are_signed else ZERO


UNSIGNED: Final = Ends()


@dataclass(frozen=True)
class QuantizedLayer:
    """A layer of random weights of eight bits, and a random mask whose entries hold for a `tile` of weights each."""

    inputs: int
    outputs: int
    sparsity: float
    tile: tuple[int, int] = (1, 1)
    ends: Ends = UNSIGNED

    def weight(self) -> NDArray[np.int8]:
        """Return the weight [inputs, outputs]."""
        rng = np.random.default_rng(0)
        inside, across = self.tile
        few = rng.random((-(-self.inputs // inside), -(-self.outputs // across))) >= self.sparsity
        kept = few.repeat(inside, 0).repeat(across, 1)[: self.inputs, : self.outputs]
        return np.where(kept, rng.integers(-127, 128, kept.shape), 0).astype(np.int8)

    def _constants(self) -> Arrays:
        return {
            "xs": np.array(SCALE),
            "xz": np.array(self.ends.zero, self.ends.codes),
            "w": self.weight(),
            "ws": np.full(self.outputs, STEP),
            # without zeros onnxruntime makes no QGemm of the layer
            "wz": np.zeros(self.outputs, np.int8),
            "b": np.zeros(self.outputs, np.int32),
            "bs": np.full(self.outputs, SCALE * STEP),
            "ys": np.array(0.5, np.float32),
        }

    def integer_model(self) -> bytes:
        """Return MatMulInteger alone."""
        node = helper.make_node("MatMulInteger", ["x", "w", "xz"], ["y"])
        return self._model([node], self._constants(), self.ends.codes, np.dtype(np.int32))

    def float_model(self) -> bytes:
        """Return MatMul of floats."""
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
        return self._model(nodes, {"w": self.weight().astype(np.float32)}, FLOAT32, FLOAT32)

    def operator_model(self) -> bytes:
        """Return QLinearMatMul."""
        node = helper.make_node("QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ys", "xz"], ["y"])
        return self._model([node], self._constants(), self.ends.codes, self.ends.codes)

    def quantized_model(self) -> bytes:
        """Return Gemm between DequantizeLinear and QuantizeLinear."""
        nodes = [
            helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1),
            helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"], axis=0),
            helper.make_node("Gemm", ["d", "wd", "bd"], ["g"], name="layer"),
            helper.make_node("QuantizeLinear", ["g", "ys", "xz"], ["r"]),
        ]
        return self._between_ends(nodes, self._constants())

    def sparseml_model(self) -> bytes:
        """Return MatMulInteger of unsigned weights, whose zero is 128, a scale and QuantizeLinear."""
        unsigned = {
            "w": (self.weight().astype(np.int16) + ZERO).astype(np.uint8),
            "wz": np.array(ZERO, np.uint8),
            "s": np.array(SCALE * STEP),
        }
        nodes = [
            helper.make_node("MatMulInteger", ["q", "w", "xz", "wz"], ["p"]),
            helper.make_node("Add", ["p", "b"], ["a"]),
            helper.make_node("Cast", ["a"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["f", "s"], ["g"]),
            helper.make_node("QuantizeLinear", ["g", "ys", "xz"], ["r"]),
        ]
        return self._between_ends(nodes, self._constants() | unsigned)

    def _between_ends(self, nodes: Sequence[onnx.NodeProto], constants: Arrays) -> bytes:
        """Return nodes from codes q to codes r, which are input and output, or made of floats and made floats of."""
        if self.ends.are_floats:
            before = helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"])
            behind = helper.make_node("DequantizeLinear", ["r", "ys", "xz"], ["y"])
            return self._model([before, *nodes, behind], constants, FLOAT32, FLOAT32)
        names = {"q": "x", "r": "y"}
        for node in nodes:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        return self._model(nodes, constants, self.ends.codes, self.ends.codes)

    def _model(
        self, nodes: Sequence[onnx.NodeProto], constants: Arrays, read: np.dtype[Any], made: np.dtype[Any]
    ) -> bytes:
        known = {name for node in nodes for name in node.input}
        weights = [numpy_helper.from_array(array, name) for name, array in constants.items() if name in known]
        kinds = [helper.np_dtype_to_tensor_dtype(kind) for kind in (read, made)]
        x = helper.make_tensor_value_info("x", kinds[0], ["batch", self.inputs])
        y = helper.make_tensor_value_info("y", kinds[1], ["batch", self.outputs])
        graph = helper.make_graph(nodes, "layer", [x], [y], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return model.SerializeToString()

    def calls(self, batch: int, form: str, *, session: bool = False) -> dict[str, Call]:
        """Return a call of each engine for a batch; `form` is what ours is made of."""
        floats = np.random.default_rng(1).standard_normal((batch, self.inputs), dtype=np.float32)
        ends, codes = np.iinfo(self.ends.codes), np.rint(floats / SCALE) + self.ends.zero
        given = {np.dtype(np.float32): floats}
        given[self.ends.codes] = np.clip(codes, ends.min, ends.max).astype(self.ends.codes)
        outer = FLOAT32 if self.ends.are_floats else self.ends.codes
        shape = (batch, self.outputs)
        models = {"sparseml": self.sparseml_model, "operator": self.operator_model, "layer": self.quantized_model}
        compiled, own = models[form](), given[outer]

        def theirs(model: bytes, read: np.dtype[Any], made: np.dtype[Any]) -> Call:
            return bound_onnxruntime(model, given[read], np.empty(shape, made))

        calls = {
            OURS: redpebble.compile(compiled, cache=False).bind({"x": own}).run,
            "MatMulInteger": theirs(self.integer_model(), self.ends.codes, np.dtype(np.int32)),
            SAME: theirs(compiled, outer, outer),
            "fp32": theirs(self.float_model(), FLOAT32, FLOAT32),
        }
        if not self.ends.are_floats and form != "operator":
            calls["QLinearMatMul"] = theirs(self.operator_model(), self.ends.codes, self.ends.codes)
        if session:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            calls[SESSION] = bound_session(redpebble.session(compiled, options), own, np.empty(shape, outer))
        return calls


class Row(NamedTuple):
    """A case, and how often ours fits into the time of others."""

    sparsity: float
    batch: int
    us: float
    giga: float
    ratios: tuple[float, ...]


def rows(layer: QuantizedLayer, batches: Sequence[int], form: str, budget: Budget, *, session: bool) -> Iterator[Row]:
    """Yield a row of the table for each batch, of the fastest rounds."""
    connections = int(np.count_nonzero(layer.weight()))
    for batch in batches:
        timed = interleave(layer.calls(batch, form, session=session), budget)
        times = {name: timing.min_us for name, timing in timed.items()}
        ours = times[OURS]
        fastest = min(times[name] for name in times if name not in (OURS, SESSION, "fp32"))
        ratios = [time / ours for time in (fastest, times[SAME], times["fp32"])]
        ratios += [fastest / times[SESSION]] if session else []
        yield Row(layer.sparsity, batch, ours, 2e-3 * connections * batch / ours, tuple(ratios))


def main(
    shapes: Annotated[str, typer.Argument(help="Inputs and outputs, such as 768x768,768x3072.")] = "768x768,1024x1024",
    sparsities: Annotated[str, typer.Option(help="Shares of zeros.")] = "0.8,0.9,0.95,0.99",
    batches: Annotated[str, typer.Option(help="Rows.")] = "1,8,32,128",
    seconds: Annotated[float, typer.Option(help="Time for each case.")] = 1.0,
    structure: Annotated[str, typer.Option(help="rows:N, blocks:N, or free for single weights.")] = "free",
    *,
    floats: Annotated[bool, typer.Option(help="Layers that take and yield floats.")] = False,
    signed: Annotated[bool, typer.Option(help="Signed codes.")] = False,
    sparseml: Annotated[bool, typer.Option(help="Layers as SparseML writes them.")] = False,
    operator: Annotated[bool, typer.Option(help="Ours from a QLinearMatMul, which is the one beside it.")] = False,
    session: Annotated[bool, typer.Option(help="Time our calls in a session, too, over the fastest int8.")] = False,
    thread_time: Annotated[bool, typer.Option(help="Count the time of the thread on its core.")] = False,
    write: Write = False,
) -> None:
    """Print a table of ratios, and one of their geometric means over the shapes, which the page has."""
    if write and (structure != "free" or signed or sparseml or operator or session):
        raise typer.BadParameter("--write: expected layers of single weights and unsigned codes, got others")
    single = PrintedRows("layer", "zeros", "rows", "us", "GOP/s", *HEADS, *(["session"] if session else []))
    kind, _, count = structure.partition(":")
    tile = {"free": (1, 1), "rows": (1, int(count or 1)), "blocks": (int(count or 1), 1)}[kind]
    budget = Budget(seconds, clock=time.thread_time if thread_time else time.perf_counter)
    form = "sparseml" if sparseml else "operator" if operator else "layer"
    measured: list[Row] = []
    for shape in shapes.split(","):
        inputs, outputs = (int(size) for size in shape.split("x"))
        for sparsity in sparsities.split(","):
            layer = QuantizedLayer(inputs, outputs, float(sparsity), tile, Ends(floats, signed))
            for row in rows(layer, [int(batch) for batch in batches.split(",")], form, budget, session=session):
                measured.append(row)
                ratios = [f"{ratio:.2f}x" for ratio in row.ratios]
                single.add(shape, sparsity, row.batch, f"{row.us:.1f}", f"{row.giga:.0f}", *ratios)
    with LAYERS.rows(*sparsities.split(","), write=write) as add:
        for batch, cells in mean_cells((row.batch, row.sparsity, row.ratios) for row in measured).items():
            add(batch, *cells.values())


if __name__ == "__main__":
    typer.run(main)

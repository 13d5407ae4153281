"""Models of one LSTM, GRU or RNN, with zeros in its weights."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Floats = NDArray[np.float32]

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OUTPUTS = {"LSTM": ("y", "y_h", "y_c"), "GRU": ("y", "y_h"), "RNN": ("y", "y_h")}


@dataclass(frozen=True)
class Recurrent:
    """A recurrence of one node: its sizes, the share of weights that are no zeros, and what it has beside them."""

    operator: str
    hidden: int
    inputs: int
    density: float = 0.2
    direction: str = "forward"
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    bias: bool = True
    lengths: bool = False
    starts: int = 0
    peepholes: bool = False
    outputs: tuple[str, ...] = ()
    """Names of the results that are asked for; all where none is named."""
    seed: int = 0

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def model(self) -> onnx.ModelProto:
        rng, count, hidden = np.random.default_rng(self.seed), self.directions, self.hidden
        gates = GATES[self.operator] * hidden

        def weight(*shape: int) -> Floats:
            scale = 1 / np.sqrt(max(1.0, shape[-1] * self.density))
            kept = rng.random(shape) < self.density
            return (rng.standard_normal(shape) * kept * scale).astype(np.float32)

        held = {"w": weight(count, gates, self.inputs), "r": weight(count, gates, hidden)}
        if self.bias:
            held["b"] = (0.3 * rng.standard_normal((count, 2 * gates))).astype(np.float32)
        if self.peepholes:
            held["p"] = (0.3 * rng.standard_normal((count, 3 * hidden))).astype(np.float32)
        read = ["x", "w", "r", "b" if self.bias else "", "lengths" if self.lengths else ""]
        read += ["h0" if self.starts else "", "c0" if self.starts > 1 else "", "p" if self.peepholes else ""]
        while not read[-1]:
            read.pop()
        asked = self.outputs or OUTPUTS[self.operator]
        yielded = [name if name in asked else "" for name in OUTPUTS[self.operator]]
        node = helper.make_node(
            self.operator,
            read,
            yielded,
            name="cell",
            hidden_size=hidden,
            direction=self.direction,
            **self.attributes,
        )
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", "batch", self.inputs])]
        if self.lengths:
            inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]))
        inputs += [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [count, "batch", hidden])
            for name in ("h0", "c0")[: self.starts]
        ]
        shapes = {"y": ["steps", count, "batch", hidden]}
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes.get(name, [count, "batch", hidden]))
            for name in yielded
            if name
        ]
        initializers = [numpy_helper.from_array(array, name) for name, array in held.items()]
        graph = helper.make_graph([node], "recurrence", inputs, outputs, initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    def feeds(self, steps: int, batch: int, seed: int = 1) -> dict[str, NDArray[Any]]:
        rng = np.random.default_rng(seed)
        found: dict[str, NDArray[Any]] = {"x": rng.standard_normal((steps, batch, self.inputs), np.float32)}
        if self.lengths:
            found["lengths"] = rng.integers(1, steps + 1, batch).astype(np.int32)
        for name in ("h0", "c0")[: self.starts]:
            found[name] = rng.uniform(-0.9, 0.9, (self.directions, batch, self.hidden)).astype(np.float32)
        return found

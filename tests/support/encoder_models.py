"""Small pruned encoders, written as exporters write them, with masks made of integers."""

from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from redpebble.models.pruned_weights import magnitude_mask


@dataclass
class Encoder:
    """Layers of attention and a feed-forward network, after which a normalisation; ids [batch, length] -> rows."""

    features: int = 64
    heads: int = 4
    layers: int = 2
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    tensors: dict[str, NDArray[np.generic]] = field(default_factory=dict[str, NDArray[np.generic]])

    def model(self) -> onnx.ModelProto:
        """Return the model: ids and mask, int64 [batch, length], to y [batch, length, features]."""
        rng = np.random.default_rng(0)
        size = self.features // self.heads
        self.tensors |= {
            "table": rng.standard_normal((50, self.features)).astype(np.float32),
            "apart": np.array([0, 0, self.heads, size]),
            "together": np.array([0, 0, self.features]),
            "axes": np.array([1, 2]),
            "hidden": np.array(-np.inf, np.float32),
            "seen": np.array(0.0, np.float32),
            "root": np.array(size**0.5, np.float32),
            "ones": np.ones(self.features, np.float32),
        }
        self._node("Cast", ["mask"], "is_token", to=TensorProto.BOOL)
        self._node("Unsqueeze", ["is_token", "axes"], "tokens")
        self._node("Where", ["tokens", "seen", "hidden"], "bias")
        x = self._node("Gather", ["table", "ids"], "embedded")
        for number in range(self.layers):
            x = self._layer(x, f"l{number}_", rng)
        self._node("Identity", [x], "y")
        shape = ["batch", "length"]
        graph = helper.make_graph(
            self.nodes,
            "encoder",
            [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("ids", "mask")],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*shape, self.features])],
            [numpy_helper.from_array(array, name) for name, array in self.tensors.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: int | tuple[int, ...]) -> str:
        node = helper.make_node(operator, inputs, [output], name=output)
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        self.nodes.append(node)
        return output

    def _linear(self, x: str, name: str, outputs: int, rng: np.random.Generator) -> str:
        inputs = self.features if outputs != self.features or "down" not in name else 2 * self.features
        weight = (rng.standard_normal((inputs, outputs)) * inputs**-0.5).astype(np.float32)
        self.tensors[f"{name}_weight"] = weight * magnitude_mask(weight, 0.9)
        self.tensors[f"{name}_bias"] = rng.standard_normal(outputs).astype(np.float32)
        product = self._node("MatMul", [x, f"{name}_weight"], f"{name}_product")
        return self._node("Add", [product, f"{name}_bias"], name)

    def _layer(self, x: str, prefix: str, rng: np.random.Generator) -> str:
        for name, order in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
            rows = self._linear(x, prefix + name, self.features, rng)
            heads = self._node("Reshape", [rows, "apart"], f"{rows}_apart")
            self._node("Transpose", [heads], f"{rows}_heads", perm=order)
        scores = self._node("MatMul", [f"{prefix}q_heads", f"{prefix}k_heads"], f"{prefix}scores")
        scaled = self._node("Div", [scores, "root"], f"{prefix}scaled")
        masked = self._node("Add", [scaled, "bias"], f"{prefix}masked")
        weights = self._node("Softmax", [masked], f"{prefix}weights", axis=-1)
        self._node("IsNaN", [weights], f"{prefix}nan")
        guarded = self._node("Where", [f"{prefix}nan", "seen", weights], f"{prefix}guarded")
        result = self._node("MatMul", [guarded, f"{prefix}v_heads"], f"{prefix}result")
        rows = self._node("Transpose", [result], f"{prefix}rows", perm=(0, 2, 1, 3))
        joined = self._node("Reshape", [rows, "together"], f"{prefix}joined")
        out = self._linear(joined, f"{prefix}out", self.features, rng)
        middle = self._normalised(self._node("Add", [out, x], f"{prefix}first_sum"), f"{prefix}middle")
        up = self._node("Relu", [self._linear(middle, f"{prefix}up", 2 * self.features, rng)], f"{prefix}hidden_rows")
        down = self._linear(up, f"{prefix}down", self.features, rng)
        return self._normalised(self._node("Add", [down, middle], f"{prefix}second_sum"), f"{prefix}end")

    def _normalised(self, x: str, name: str) -> str:
        return self._node("LayerNormalization", [x, "ones", "ones"], name, axis=-1)

    @staticmethod
    def feeds(batch: int, length: int) -> dict[str, NDArray[np.int64]]:
        """Return tokens, and a mask that hides the end of every second sample, and all of the third one."""
        rng = np.random.default_rng((batch, length))
        mask = np.ones((batch, length), dtype=np.int64)
        mask[1::2, length // 2 :] = 0
        mask[2:3] = 0
        return {"ids": rng.integers(0, 50, (batch, length)), "mask": mask}

"""Models of one MatMulNBits, and what it means in double precision."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class FewBits:
    """A MatMulNBits: inputs, outputs, bits, inputs of a group, and what else it has."""

    inputs: int
    outputs: int
    bits: int = 4
    size: int = 32
    zeros: float = 0.8
    """The share of codes that are the zero."""
    accuracy: int = 0
    has_zeros: bool = False
    has_bias: bool = False
    seed: int = 0
    rank: int = 2
    of_four: int = 0
    """Weights that are left of each four inputs, instead of a share; 0 for the share."""
    float_zeros: bool = False
    """Whether zeros are floats, one for each group."""
    empty: float = 0.0
    """The share of outputs whose codes are all the zero."""
    above: bool = False
    """Whether the zero is the code 0, above which all others are."""

    @property
    def parts(self) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.uint8]]:
        """Codes [outputs, groups * size], scales and zeros [outputs, groups]."""
        rng, groups = np.random.default_rng(self.seed), -(-self.inputs // self.size)
        codes = rng.integers(0, 1 << self.bits, (self.outputs, groups * self.size)).astype(np.uint8)
        zeros = np.full((self.outputs, groups), 1 << (self.bits - 1), np.uint8)
        if self.has_zeros:
            zeros = rng.integers(0, 1 << self.bits, zeros.shape).astype(np.uint8)
        if self.above:
            zeros, codes = np.zeros_like(zeros), np.maximum(codes, 1)
        pruned = rng.random(codes.shape) < self.zeros
        if self.of_four:
            order = rng.random((self.outputs, codes.shape[1] // 4, 4)).argsort(axis=2)
            pruned = order.reshape(codes.shape) >= self.of_four
        codes[pruned] = zeros.repeat(self.size, axis=1)[pruned]
        # some groups are zeros alone
        codes[:, : self.size] = np.where(rng.random((self.outputs, 1)) < 0.2, zeros[:, :1], codes[:, : self.size])
        scales = rng.uniform(-0.02, 0.02, zeros.shape).astype(np.float32)
        is_empty = rng.random(self.outputs) < self.empty
        codes[is_empty] = zeros.repeat(self.size, axis=1)[is_empty]
        return codes, scales, zeros

    @property
    def bias(self) -> NDArray[np.float32]:
        """[outputs]; zeros where there is none."""
        return np.random.default_rng(self.seed + 1).standard_normal(self.outputs).astype(np.float32) * self.has_bias

    @property
    def steps(self) -> Doubles:
        """Code - zero of each weight, [inputs, outputs]."""
        codes, _, zeros = self.parts
        return (codes.astype(np.float64) - zeros.repeat(self.size, axis=1))[:, : self.inputs].T

    @property
    def weight(self) -> Doubles:
        """The weight [inputs, outputs] that the codes stand for."""
        return self.steps * self.parts[1].repeat(self.size, axis=1)[:, : self.inputs].T

    def truth(self, x: NDArray[np.float32]) -> Doubles:
        """The product in double precision."""
        return x.astype(np.float64) @ self.weight + self.bias

    @property
    def model(self) -> onnx.ModelProto:
        """The model `y = MatMulNBits(x)`, its number of rows free."""
        codes, scales, zeros = self.parts
        groups = scales.shape[1]
        held: dict[str, NDArray[Any]] = {
            "codes": packed(codes, self.bits).reshape(self.outputs, groups, -1),
            "scales": scales.reshape(-1),
        }
        names = ["x", "codes", "scales", "", "", ""]
        if self.has_zeros:
            held["zeros"] = zeros.astype(np.float32) if self.float_zeros else packed(zeros, self.bits).reshape(-1)
            names[3] = "zeros"
        if self.has_bias:
            held["bias"], names[5] = self.bias, "bias"
        while not names[-1]:
            names.pop()
        numbers = {"K": self.inputs, "N": self.outputs, "bits": self.bits, "block_size": self.size}
        node = helper.make_node("MatMulNBits", names, ["y"], "layer", domain="com.microsoft")
        for name, number in {**numbers, "accuracy_level": self.accuracy}.items():
            node.attribute.append(helper.make_attribute(name, number))
        lead = [f"d{axis}" for axis in range(self.rank - 1)]
        x, y = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [*lead, size])
            for name, size in (("x", self.inputs), ("y", self.outputs))
        )
        graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(a, n) for n, a in held.items()])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def packed(codes: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Return rows of codes as bytes."""
    if bits == 8:
        return codes.astype(np.uint8)
    even = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2))).astype(np.uint8)
    return even[:, 0::2] + 16 * even[:, 1::2]

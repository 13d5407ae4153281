"""Small dense networks to prune, and data for them."""

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from redpebble.models.graph_builder import GraphBuilder, Output

Array = NDArray[np.float32]

WIDTH = 96


def weight_of(inputs: int, outputs: int, rng: np.random.Generator) -> Array:
    """Return a weight [inputs, outputs] with few large directions, as trained ones have."""
    low = rng.standard_normal((inputs, 24)) @ rng.standard_normal((24, outputs)) / 24
    return ((low + 0.2 * rng.standard_normal((inputs, outputs))) / inputs**0.5).astype(np.float32)


def branched_network(seed: int = 0) -> ir.Model:
    """Return x [batch, 96] -> two layers side by side, a sum, a layer, and a small head; one is turned."""
    rng, builder = np.random.default_rng(seed), GraphBuilder()
    x = builder.input("x", ("batch", WIDTH))
    bias = builder.constant("bias", np.full(WIDTH, 0.1, np.float32))
    left = builder.op("MatMul", [x, builder.constant("wl", weight_of(WIDTH, WIDTH, rng))], "left")
    right = builder.op(
        "Gemm", [x, builder.constant("wr", weight_of(WIDTH, WIDTH, rng).T.copy()), bias], "right", {"transB": 1}
    )
    hidden = builder.op("Relu", [builder.op("Add", [left, right], "sum")], "relu")
    deep = builder.op("MatMul", [hidden, builder.constant("wd", weight_of(WIDTH, WIDTH, rng))], "deep")
    joined = builder.op("Add", [builder.op("Relu", [deep], "relu2"), hidden], "joined")
    head = builder.op("MatMul", [joined, builder.constant("wh", weight_of(WIDTH, 8, rng))], "head")
    return builder.model("branched", {"y": Output(head, ("batch", 8))})


def samples(count: int, seed: int = 0) -> Array:
    """Return correlated inputs [count, 96]."""
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((count, 32)) @ rng.standard_normal((32, WIDTH)) / 32**0.5
    return (mixed + 0.2 * rng.standard_normal((count, WIDTH))).astype(np.float32)

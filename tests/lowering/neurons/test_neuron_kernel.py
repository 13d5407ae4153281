"""Layers that run together in a depth-first order compute what the reference semantics says, to the last ulps."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.jit import host_target
from redpebble.sparse.csr import CscMatrix
from redpebble.theory.depth_first.depth_first_order import Blocks
from tests.support.lowering_modules import best_target_first, native, run_depth_first, tiled

ACTIVATIONS = (ActivationAttr("relu"), None, ActivationAttr("tanh"), ActivationAttr("leaky_relu", (0.1,)))


def layers(widths: Sequence[int], density: float, rng: np.random.Generator) -> ModuleOp:
    """A tile of random sparse layers."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        value = arguments[0]
        for number, shape in enumerate(pairwise(widths)):
            weight = np.where(rng.random(shape) < density, rng.standard_normal(shape), 0.0).astype(np.float32)
            constants = (
                SparseConstantOp(CscMatrix.from_dense(weight)),
                ConstantOp(rng.standard_normal(shape[1]).astype(np.float32)),
            )
            activation = ACTIVATIONS[number % len(ACTIVATIONS)]
            layer = LinearOp(value, *(constant.result for constant in constants), activation=activation)
            block.add_ops([*constants, layer])
            value = layer.result
        return [value]

    return tiled([f32_tensor((DYNAMIC, widths[0]))], body, (1, 8, 64))


def assert_agrees(widths: Sequence[int], density: float, target: CpuTarget, seed: int) -> None:
    reference, module = (layers(widths, density, np.random.default_rng(seed)) for _ in range(2))
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    run_depth_first(tile, range(len(widths) - 1), Blocks(1 + seed % 5))
    compiled = native(module, target)
    for batch in (0, 1, 7, 70):
        x = np.random.default_rng(seed + batch).standard_normal((batch, widths[0])).astype(np.float32)
        (exact,) = interpret(reference, {"x0": x.astype(np.float64)})
        np.testing.assert_allclose(compiled(x), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_layers_agree_with_the_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert_agrees(rng.integers(1, 12, 4).tolist(), float(rng.uniform(0.05, 0.9)), host_target(), seed)


@pytest.mark.slow
@best_target_first
@pytest.mark.parametrize("seed", [3, 4])
def test_layers_agree_on_every_target(target: CpuTarget, seed: int) -> None:
    assert_agrees([20, 30, 25, 7], 0.2, target, seed)

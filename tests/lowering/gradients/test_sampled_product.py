from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.training.gradients import SampledProductOp, SumRowsOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.network import Network
from redpebble.sparse.csr import CscMatrix
from tests.support.lowering_modules import best_target_first, function, native

SHAPES = ((64, 33, 0.3), (17, 5, 0.5), (3, 1, 1.0), (40, 48, 0.0), (12, 20, 0.9))


def module(inputs: int, outputs: int, density: float) -> ModuleOp:
    """The gradients of a weight and of a bias; above a density of 0.8 the weight is stored dense."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((inputs, outputs), dtype=np.float32)
    weight[rng.random((inputs, outputs)) >= density] = 0

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        constant = ConstantOp(weight) if density > 0.8 else SparseConstantOp(CscMatrix.from_dense(weight))
        product = SampledProductOp(arguments[0], arguments[1], constant.results[0])
        bias = SumRowsOp(arguments[1])
        block.add_ops([constant, product, bias])
        return [product.result, bias.result]

    tensors = [f32_tensor([DYNAMIC, size]) for size in (inputs, outputs)]
    return function(tensors, body, ["ri", "ro"])


@cache
def network(target: CpuTarget, shape: tuple[int, int, float]) -> Network:
    return native(module(*shape), target, threads=2)


@best_target_first
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_any_rows_are_those_in_float64_up_to_rounding(
    target: CpuTarget, shape: tuple[int, int, float]
) -> None:
    rng, reference = np.random.default_rng(1), module(*shape)
    for rows in (0, 1, 7, 17, 64, 129):
        x, y = (rng.standard_normal((rows, size), dtype=np.float32) for size in shape[:2])
        expected = interpret(reference, {"x0": x.astype(np.float64), "x1": y.astype(np.float64)})
        for threads in (1, 2):
            found = network(target, shape).run(None, {"x0": x, "x1": y}, threads=threads)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@best_target_first
def test_not_numbers_reach_the_connections_that_read_them(target: CpuTarget) -> None:
    shape = SHAPES[0]
    x, y = np.ones((5, shape[0]), np.float32), np.ones((5, shape[1]), np.float32)
    x[2, 7] = np.nan
    found, _ = network(target, shape).run(None, {"x0": x, "x1": y})
    (constant,) = [op for op in module(*shape).walk() if isinstance(op, SparseConstantOp)]
    assert np.array_equal(np.isnan(found), constant.weight.rows == 7)


@best_target_first
def test_rows_of_each_sample_are_summed(target: CpuTarget) -> None:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        sums = SumRowsOp(arguments[0])
        block.add_op(sums)
        return [sums.result]

    sums = native(function([f32_tensor([DYNAMIC, DYNAMIC, 37])], body), target)
    for samples, rows in ((0, 3), (3, 0), (1, 1), (7, 17), (2, 130)):
        x = np.random.default_rng(rows).standard_normal((samples, rows, 37), dtype=np.float32)
        (found,) = sums.run(None, {"x0": x})
        np.testing.assert_allclose(found, x.astype(np.float64).sum(1), atol=1e-4)

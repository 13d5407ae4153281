"""Products of computed operands, on every target, against numpy in double precision."""

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.ops.layers import BatchMatmulTransposeBOp
from redpebble.dialect.ops.movement import ReshapeOp, TargetShapeAttr, copied
from redpebble.dialect.tensors import DYNAMIC, Shape, f32_tensor
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.jit import host_target
from tests.support.lowering_modules import best_target_first, function, native


def products(x: Shape, y: Shape) -> ModuleOp:
    def body(block: Block, arguments: tuple[SSAValue, ...]) -> list[SSAValue]:
        op = BatchMatmulTransposeBOp(*arguments)
        block.add_op(op)
        return [op.result]

    return function([f32_tensor(x), f32_tensor(y)], lambda block, given: body(block, tuple(given)))


@best_target_first
@pytest.mark.parametrize(("depth", "outputs"), [(1, 1), (7, 33), (64, 27), (130, 64), (5, 0)])
def test_products_are_numpys(target: CpuTarget, depth: int, outputs: int) -> None:
    network = native(products((DYNAMIC, DYNAMIC, depth), (DYNAMIC, outputs, depth)), target)
    rng = np.random.default_rng(depth)
    for samples, rows in ((0, 3), (1, 1), (7, 27), (17, 9), (2, 0), (3, 130)):
        x, y = (rng.random((samples, size, depth), np.float32) - 0.5 for size in (rows, outputs))
        (found,) = network.run(None, {"x0": x, "x1": y})
        expected = x.astype(np.float64) @ y.astype(np.float64).swapaxes(1, 2)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_is_no_number_stays_where_it_is() -> None:
    network = native(products((1, 5, 3), (1, 5, 3)), host_target())
    x, y = np.ones((1, 5, 3), np.float32), np.ones((1, 5, 3), np.float32)
    x[0, 4, 0], y[0, 4, 2] = np.inf, np.nan
    (found,) = network.run(None, {"x0": x, "x1": y})
    np.testing.assert_array_equal(found, x @ y.swapaxes(1, 2))


def test_samples_of_both_operands_must_be_as_many() -> None:
    def body(block: Block, given: tuple[SSAValue, ...]) -> list[SSAValue]:
        x = ReshapeOp(given[0], TargetShapeAttr([copied(1), copied(0), 4]))
        op = BatchMatmulTransposeBOp(x.result, given[1])
        block.add_ops([x, op])
        return [op.result]

    shapes = [f32_tensor((DYNAMIC, DYNAMIC, 4))] * 2
    network = native(function(shapes, lambda block, given: body(block, tuple(given))), host_target())
    with pytest.raises(ValueError, match="expected equal sizes, got d1 = 3 and d0 = 2"):
        network.run(None, {"x0": np.ones((2, 3, 4), np.float32), "x1": np.ones((2, 3, 4), np.float32)})

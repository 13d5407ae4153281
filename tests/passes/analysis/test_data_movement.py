"""Bytes and operations of a module are those that a run of it counts, op by op and tile by tile."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.movement import ReshapeOp
from redpebble.dialect.ops.network import NetworkOp
from redpebble.dialect.ops.regions import YieldOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.semantics.interpreter import evaluate
from redpebble.frontend.import_model import import_model
from redpebble.kernels.tile_widths import tiles_of
from redpebble.models import zoo
from redpebble.options import Options
from redpebble.passes.analysis.data_movement import ROWS, FreeSizes, OpMovement, module_movement
from redpebble.pipeline import build, run_stages
from redpebble.theory.pebbling.bounds.bounds import lower_bound

Array = NDArray[np.float32]


@dataclass
class Counter:
    """Runs a module on arrays and counts what ops read and write, as an engine would that has no cache but tiles."""

    weight_bytes: int = 0
    activation_bytes: int = 0
    cached_bytes: int = 0

    def run(self, block: Block, arrays: Sequence[Array], *, in_tile: bool = False) -> list[Array]:
        values: dict[SSAValue, Array] = dict(zip(block.args, arrays, strict=True))
        constants: dict[SSAValue, int] = {}
        for op in block.ops:
            if isinstance(op, ConstantOp):
                constants[op.results[0]], values[op.results[0]] = op.array.nbytes, op.array
            elif isinstance(op, SparseConstantOp):
                # an index of a connection takes two bytes
                constants[op.results[0]] = op.weight.values.nbytes + op.weight.rows.astype(np.uint16).nbytes
                values[op.results[0]] = op.weight.to_dense()
            elif isinstance(op, ReturnOp | YieldOp):
                return [values[operand] for operand in op.operands]
            elif isinstance(op, TileOp):
                values.update(zip(op.outputs, self._tiles(op, [values[one] for one in op.inputs]), strict=True))
            else:
                self._op(op, (values, constants), in_tile=in_tile)
        return []

    def _op(self, op: Operation, known: tuple[dict[SSAValue, Array], dict[SSAValue, int]], *, in_tile: bool) -> None:
        values, constants = known
        outer = {operand: _constant(operand) for operand in op.operands if operand not in values}
        operands = [values[one] if one in values else outer[one][1] for one in op.operands]
        results = evaluate(op, operands, np.float32)
        values.update(zip(op.results, results, strict=True))
        if isinstance(op, ReshapeOp):
            return
        moved = {one: constants.get(one, outer[one][0] if one in outer else 0) for one in op.operands}
        rows = prod(results[0].shape[:-1])
        self.weight_bytes += sum(moved.values()) * (-(-rows // ROWS) if isinstance(op, LinearOp) else 1)
        dynamic = sum(values[one].nbytes for one in dict.fromkeys(op.operands) if one in values and not moved[one])
        passed = dynamic + sum(result.nbytes for result in results)
        self.cached_bytes += passed if in_tile else 0
        self.activation_bytes += 0 if in_tile else passed

    def _tiles(self, op: TileOp, inputs: Sequence[Array]) -> list[Array]:
        rows = [array.reshape(-1, array.shape[-1]) for array in inputs]
        outer = sum(array.nbytes for array in inputs)
        start, parts = 0, list[list[Array]]()
        for each in tiles_of(op.schedule.least_rows, len(rows[0])):
            for _ in range(each.number):
                piece = [array[start : start + each.width] for array in rows]
                parts.append(self.run(op.body.block, piece, in_tile=True))
                start += each.width
        results = [np.concatenate(one) for one in zip(*parts, strict=True)]
        outer += sum(result.nbytes for result in results)
        self.activation_bytes += outer
        self.cached_bytes -= outer
        return results


def _constant(value: SSAValue) -> tuple[int, Array]:
    owner = value.owner
    if isinstance(owner, SparseConstantOp):
        return owner.weight.values.nbytes + owner.weight.rows.astype(np.uint16).nbytes, owner.weight.to_dense()
    assert isinstance(owner, ConstantOp)
    return owner.array.nbytes, owner.array


def totals(moved: Sequence[OpMovement]) -> tuple[int, int, int]:
    return (
        sum(one.weight_bytes for one in moved),
        sum(one.activation_bytes for one in moved),
        sum(one.cached_bytes for one in moved),
    )


def counted(module: ModuleOp, batch: int, features: int) -> tuple[int, int, int]:
    counter = Counter()
    (func,) = (op for op in module.walk() if isinstance(op, FuncOp))
    counter.run(func.body.block, [np.ones((batch, features), np.float32)])
    return counter.weight_bytes, counter.activation_bytes, counter.cached_bytes


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    text = """<ir_version: 8, opset_import: ["" : 17]> agraph (float[N, 40] x) => (float[N, 12] y)
    <float[12] s = {1,1,1,1,1,1,1,1,1,1,1,1}, float[12] c = {2,2,2,2,2,2,2,2,2,2,2,2}> {
        a = MatMul (x, w) p = Add (a, b) h = Relu (p) q = MatMul (h, v) n = LayerNormalization (q, s, c)
        r = Add (n, q) y = Softmax (r) }"""
    made, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    for name, shape in (("w", (40, 64)), ("b", (64,)), ("v", (64, 12))):
        array = rng.standard_normal(shape).astype(np.float32) * (rng.random(shape) < 0.2)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    return made


@pytest.mark.parametrize("batch", [1, 7, 64, 150])
def test_the_bytes_of_every_level_are_those_that_a_run_counts(model: onnx.ModelProto, batch: int) -> None:
    module, seen = import_model(model, foreign="keep").module, set[tuple[int, int, int]]()

    def check(left: ModuleOp) -> None:
        found = totals(module_movement(left, FreeSizes(batch)))
        assert found == counted(left, batch, 40)
        seen.add(found)

    check(module)
    run_stages(module, Options(on_pass=lambda _, left: check(left)))
    assert len(seen) >= 4


def test_values_of_a_tiled_network_are_those_that_no_order_can_save() -> None:
    model = zoo.build("ffnn(depth=3, width=32, density=0.2)")
    (network,) = (op.graph for op in build(model, Options("neurons")).walk() if isinstance(op, NetworkOp))
    moved = module_movement(build(model), FreeSizes(1))
    weights = network.connection_count
    weight_bytes, activation_bytes, _ = totals(moved)
    assert (weight_bytes - 2 * weights + activation_bytes) // 4 == lower_bound(network).total
    assert sum(one.operations for one in moved) == 2 * weights

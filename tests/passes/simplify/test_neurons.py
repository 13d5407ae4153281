"""Which neurons go, beyond what tests/filecheck/passes shows in text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor, shape_of
from redpebble.passes.simplify.drop_dead_neurons import DropDeadNeurons
from redpebble.passes.simplify.merge_duplicate_neurons import MergeDuplicateNeurons
from redpebble.sparse.csr import CscMatrix
from tests.passes.pass_texts import all_of, assert_same_function, run

Matrix = NDArray[np.float32]


def chain(weights: Sequence[Matrix], *, sparse: bool = False, last: int = 1) -> ModuleOp:
    """Layers with bias 1 and tanh, one after the other; the `last` ones all read the value before them."""
    block = Block(arg_types=[f32_tensor((DYNAMIC, weights[0].shape[0]))])
    value: SSAValue = block.args[0]
    results: list[SSAValue] = []
    for index, matrix in enumerate(weights):
        weight = SparseConstantOp(CscMatrix.from_dense(matrix)) if sparse else ConstantOp(matrix)
        bias = ConstantOp(np.ones(len(matrix.T), dtype=np.float32))
        layer = LinearOp(value, weight.result, bias.result, ActivationAttr.of("tanh"))
        block.add_ops([weight, bias, layer])
        if index >= len(weights) - last:
            results.append(layer.result)
        else:
            value = layer.result
    block.add_op(ReturnOp(*results))
    types = ([block.args[0].type], [result.type for result in results])
    return ModuleOp([FuncOp("main", types, Region(block))])


def widths(module: ModuleOp) -> list[int]:
    return [shape_of(layer.result)[-1] for layer in all_of(module, LinearOp)]


def check(before: ModuleOp, after: ModuleOp) -> None:
    inputs = shape_of(all_of(before, LinearOp)[0].x)[-1]
    rng = np.random.default_rng(0)
    assert_same_function(before, after, [{"x": rng.standard_normal((batch, inputs))} for batch in (0, 1, 7)])


def test_a_neuron_that_only_one_of_two_readers_ignores_stays() -> None:
    first = np.ones((2, 3), dtype=np.float32)
    left = np.array([[1.0], [0.0], [0.0]], dtype=np.float32)
    right = np.array([[0.0], [2.0], [0.0]], dtype=np.float32)
    before = chain([first, left, right], last=2)
    after = run(before, DropDeadNeurons())
    assert widths(after) == [2, 1, 1]
    check(before, after)


def test_death_travels_back_and_constants_travel_on_through_many_layers() -> None:
    rng = np.random.default_rng(1)
    weights = [(np.eye(6) * rng.standard_normal(6)).astype(np.float32) for _ in range(30)]
    weights[0][:, 1] = 0.0
    weights[-1][2, :] = 0.0
    for sparse in (False, True):
        before = chain([*weights, np.ones((6, 2), dtype=np.float32)], sparse=sparse)
        after = run(before, DropDeadNeurons())
        # the last diagonal layer makes a constant of lane 2 as well, and it goes with the others
        assert widths(after) == [4] * 30 + [2]
        check(before, after)


def test_a_layer_without_any_connection_keeps_one_neuron() -> None:
    before = chain([np.zeros((3, 4), dtype=np.float32), np.ones((4, 2), dtype=np.float32)])
    after = run(before, DropDeadNeurons())
    assert widths(after) == [1, 2]
    check(before, after)


def test_a_model_without_inputs_features_keeps_its_interface() -> None:
    before = chain([np.zeros((3, 2), dtype=np.float32)])
    after = run(before, DropDeadNeurons())
    assert after.is_structurally_equivalent(before)


def test_copies_of_a_network_beside_each_other_merge_into_one() -> None:
    rng = np.random.default_rng(2)
    first = rng.standard_normal((3, 4)).astype(np.float32)
    middle = rng.standard_normal((4, 5)).astype(np.float32)
    last = rng.standard_normal((10, 2)).astype(np.float32)
    twice = np.hstack([first, first])
    apart = np.block([[middle, np.zeros_like(middle)], [np.zeros_like(middle), middle]])
    for sparse in (False, True):
        before = chain([twice, apart, last], sparse=sparse)
        after = run(before, MergeDuplicateNeurons())
        assert widths(after) == [4, 5, 2]
        check(before, after)


def test_neurons_with_nearly_equal_weights_stay_apart() -> None:
    first = np.array([[1.0, np.nextafter(np.float32(1.0), np.float32(2.0))]], dtype=np.float32)
    before = chain([first, np.ones((2, 1), dtype=np.float32)])
    assert widths(run(before, MergeDuplicateNeurons())) == [2, 1]

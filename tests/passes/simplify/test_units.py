"""Which neurons, channels and codes go, beyond what tests/filecheck/passes shows in text."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.passes import ModulePass

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor, shape_of
from redpebble.passes.simplify.drop_dead_units import DropDeadUnits
from redpebble.passes.simplify.merge_equal_units import MergeEqualUnits
from redpebble.sparse.csr import CscMatrix
from tests.passes.pass_texts import all_of, assert_same_function, parse, run

Matrix = NDArray[np.float32]


def chain(weights: Sequence[Matrix], *, sparse: bool = False, last: int = 1) -> ModuleOp:
    """Layers with bias 1 and tanh, one after the other; the `last` ones all read the value before them."""
    block = Block(arg_types=[f32_tensor((DYNAMIC, weights[0].shape[0]))])
    value: SSAValue = block.args[0]
    results: list[SSAValue] = []
    for index, matrix in enumerate(weights):
        weight = SparseConstantOp(CscMatrix.from_dense(matrix)) if sparse else ConstantOp(matrix)
        bias = ConstantOp(np.ones(len(matrix.T), dtype=np.float32))
        layer = LinearOp(value, weight.result, bias.result, ActivationAttr("tanh"))
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
    after = run(before, DropDeadUnits())
    assert widths(after) == [2, 1, 1]
    check(before, after)


def test_death_travels_back_and_constants_travel_on_through_many_layers() -> None:
    rng = np.random.default_rng(1)
    weights = [(np.eye(6) * rng.standard_normal(6)).astype(np.float32) for _ in range(30)]
    weights[0][:, 1] = 0.0
    weights[-1][2, :] = 0.0
    for sparse in (False, True):
        before = chain([*weights, np.ones((6, 2), dtype=np.float32)], sparse=sparse)
        after = run(before, DropDeadUnits())
        # the last diagonal layer makes a constant of lane 2 as well, and it goes with the others
        assert widths(after) == [4] * 30 + [2]
        check(before, after)


def test_a_layer_without_any_connection_keeps_one_neuron() -> None:
    before = chain([np.zeros((3, 4), dtype=np.float32), np.ones((4, 2), dtype=np.float32)])
    after = run(before, DropDeadUnits())
    assert widths(after) == [1, 2]
    check(before, after)


def test_a_model_without_inputs_features_keeps_its_interface() -> None:
    before = chain([np.zeros((3, 2), dtype=np.float32)])
    after = run(before, DropDeadUnits())
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
        after = run(before, MergeEqualUnits())
        assert widths(after) == [4, 5, 2]
        check(before, after)


def test_neurons_with_nearly_equal_weights_stay_apart() -> None:
    first = np.array([[1.0, np.nextafter(np.float32(1.0), np.float32(2.0))]], dtype=np.float32)
    before = chain([first, np.ones((2, 1), dtype=np.float32)])
    assert widths(run(before, MergeEqualUnits())) == [2, 1]


def test_neurons_whose_bias_and_constant_behind_add_up_to_the_same_stay_apart() -> None:
    text = """func.func @main(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
      %w = pebble.constant dense<1.0> : tensor<1x2xf32>
      %b = pebble.constant dense<[0.0, 1.0]> : tensor<2xf32>
      %c = pebble.constant dense<[1.0, 0.0]> : tensor<2xf32>
      %v = pebble.constant dense<1.0> : tensor<2x1xf32>
      %h = pebble.linear %x, %w bias %b activation <relu> : (tensor<?x1xf32>, tensor<1x2xf32>, tensor<2xf32>) ->
          tensor<?x2xf32>
      %s = pebble.add %h, %c : (tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
      %y = pebble.linear %s, %v : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
      func.return %y : tensor<?x1xf32>
    }"""
    assert widths(run(parse(text), MergeEqualUnits())) == [2, 1]


WINDOW = "window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]>"
CODES = ("!pebble.codes<u8 scale 1.0 zero 128>", "!pebble.codes<u8 scale 1.0 zero 0>")
UNITS = {
    "neurons": (
        "tensor<?x1xf32>",
        "%h = pebble.linear %x, %w bias %b : (tensor<?x1xf32>, tensor<1x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>",
        "%y = pebble.linear %h, %v bias %c : (tensor<?x3xf32>, tensor<3x1xf32>, tensor<1xf32>) -> tensor<?x1xf32>",
    ),
    "channels": (
        "tensor<?x1x2x2xf32>",
        f"%h = pebble.conv2d %x, %w bias %b : tensor<3xf32> {WINDOW} "
        ": (tensor<?x1x2x2xf32>, tensor<1x3xf32>) -> tensor<?x3x2x2xf32>",
        f"%y = pebble.conv2d %h, %v bias %c : tensor<1xf32> {WINDOW} "
        ": (tensor<?x3x2x2xf32>, tensor<3x1xf32>) -> tensor<?x1x2x2xf32>",
    ),
    "codes": (
        "tensor<?x1xf32>",
        "%m = pebble.constant dense<1.0> : tensor<3xf32>",
        "%n = pebble.constant dense<1.0> : tensor<1xf32>",
        f"%q = pebble.convert %x : (tensor<?x1xf32>) -> tensor<?x1x{CODES[0]}>",
        "%h = pebble.linear %q, %w bias %b times %m : tensor<3xf32> "
        f": (tensor<?x1x{CODES[0]}>, tensor<1x3xf32>, tensor<3xf32>) -> tensor<?x3x{CODES[1]}>",
        "%y = pebble.linear %h, %v bias %c times %n : tensor<1xf32> "
        f": (tensor<?x3x{CODES[1]}>, tensor<3x1xf32>, tensor<1xf32>) -> tensor<?x1xf32>",
    ),
    "channels of codes": (
        "tensor<?x1x2x2xf32>",
        "%m = pebble.constant dense<1.0> : tensor<3xf32>",
        "%n = pebble.constant dense<1.0> : tensor<1xf32>",
        f"%q = pebble.convert %x : (tensor<?x1x2x2xf32>) -> tensor<?x1x2x2x{CODES[0]}>",
        f"%h = pebble.conv2d %q, %w bias %b : tensor<3xf32> times %m : tensor<3xf32> {WINDOW} "
        f": (tensor<?x1x2x2x{CODES[0]}>, tensor<1x3xf32>) -> tensor<?x3x2x2x{CODES[1]}>",
        '%p = pebble.pool2d "max" %h window <[2, 1] strides [1, 1] dilations [1, 1] pads [1, 0, 0, 0]> '
        f": (tensor<?x3x2x2x{CODES[1]}>) -> tensor<?x3x2x2x{CODES[1]}>",
        f"%y = pebble.conv2d %p, %v bias %c : tensor<1xf32> times %n : tensor<1xf32> {WINDOW} "
        f": (tensor<?x3x2x2x{CODES[1]}>, tensor<3x1xf32>) -> tensor<?x1x2x2xf32>",
    ),
}
"""Two layers with three units between them, on values of a type."""

GREATEST = {"neurons": "3.0e+38", "channels": "3.0e+38", "codes": "255.0", "channels of codes": "255.0"}
"""A weight that a layer may have, but not twice it."""
MOST = {"neurons": "0.0", "channels": "0.0", "codes": f"{1 << 24}.0", "channels of codes": f"{1 << 24}.0"}
"""A bias that may not get 200 times such a weight."""


def units_left(kind: str, single: ModulePass, columns: str, biases: str, rows: str, bias: str) -> int:
    """How many of three units a pass leaves."""
    value, *ops = UNITS[kind]
    constants = (
        f"%w = pebble.constant dense<[[{columns}]]> : tensor<1x3xf32>",
        f"%b = pebble.constant dense<[{biases}]> : tensor<3xf32>",
        f"%v = pebble.constant dense<[{rows}]> : tensor<3x1xf32>",
        f"%c = pebble.constant dense<{bias}> : tensor<1xf32>",
    )
    body = "\n".join((*constants, *ops))
    before = parse(f"func.func @main(%x: {value}) -> {value} {{\n{body}\nfunc.return %y : {value}\n}}")
    after = run(before, single)
    weights = [op.array.shape for op in all_of(after, ConstantOp) if op.array.ndim == 2]
    assert weights in ([(1, 1), (1, 1)], [(1, 2), (2, 1)], [(1, 3), (3, 1)])
    return weights[0][1]


@pytest.mark.parametrize("kind", UNITS)
def test_equal_units_stay_where_the_sum_of_their_weights_is_too_great(kind: str) -> None:
    greatest, single = GREATEST[kind], MergeEqualUnits()
    columns, biases = "1.0, 1.0, 2.0", "4.0, 4.0, 4.0"
    assert units_left(kind, single, columns, biases, f"[{greatest}], [-1.0], [1.0]", "0.0") == 2
    assert units_left(kind, single, columns, biases, f"[{greatest}], [{greatest}], [1.0]", "0.0") == 3


@pytest.mark.parametrize("kind", UNITS)
def test_constants_stay_where_a_bias_cannot_take_them_and_what_nothing_reads_goes(kind: str) -> None:
    greatest, single = GREATEST[kind], DropDeadUnits()
    columns, biases = "1.0, 0.0, 2.0", "4.0, 200.0, 4.0"
    assert units_left(kind, single, columns, biases, f"[1.0], [{greatest}], [0.0]", MOST[kind]) == 2
    assert units_left(kind, single, columns, biases, "[1.0], [2.0], [0.0]", "0.0") == 1

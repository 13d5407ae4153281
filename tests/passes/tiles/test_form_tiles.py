"""Which ops come together in a tile."""

import numpy as np
from xdsl.dialects.func import ReturnOp

from redpebble.dialect.ops.elementwise import AddOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.movement import ReshapeOp, TransposeOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.passes.tiles.form_tiles import FormTiles
from tests.passes.pass_texts import all_of, assert_same_function, only, parse, run


def test_layers_that_read_one_value_share_a_tile() -> None:
    module = parse("""
    func.func @main(%x: tensor<?x3x2xf32>) -> (tensor<?x3x2xf32>, tensor<?x3x1xf32>) {
      %w = pebble.constant dense<1.0> : tensor<2x2xf32>
      %v = pebble.constant dense<2.0> : tensor<2x1xf32>
      %q = pebble.linear %x, %w : (tensor<?x3x2xf32>, tensor<2x2xf32>) -> tensor<?x3x2xf32>
      %k = pebble.linear %x, %v : (tensor<?x3x2xf32>, tensor<2x1xf32>) -> tensor<?x3x1xf32>
      func.return %q, %k : tensor<?x3x2xf32>, tensor<?x3x1xf32>
    }""")
    tile = only(run(module, FormTiles()), TileOp)
    assert len(tile.inputs) == 1
    assert len(tile.outputs) == 2


SUM_OF_TWO = """
func.func @main(%x: tensor<?x2xf32> {pebble.dims = ["NAME", "2"]}, %y: tensor<?x2xf32> {pebble.dims = ["batch", "2"]})
    -> tensor<?x2xf32> {
  %a = pebble.activate <relu> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %b = pebble.activate <relu> %y : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %s = pebble.add %a, %b : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %s : tensor<?x2xf32>
}"""


def test_inputs_with_rows_of_one_name_meet_in_a_tile() -> None:
    tile = only(run(parse(SUM_OF_TWO.replace("NAME", "batch")), FormTiles()), TileOp)
    assert len(tile.inputs) == 2


def test_inputs_whose_rows_may_differ_meet_outside() -> None:
    for name in ("other", ""):
        after = run(parse(SUM_OF_TWO.replace("NAME", name)), FormTiles())
        assert len(all_of(after, TileOp)) == 2
        assert not isinstance(only(after, AddOp).parent_op(), TileOp)


def test_a_way_around_does_not_close_a_circle() -> None:
    """The sum reads the first layer directly and by a transposed way: it must not join the first layer's tile."""
    module = parse("""
    func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %w = pebble.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
      %h = pebble.linear %x, %w : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %t = pebble.transpose %h axes [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
      %y = pebble.add %h, %t : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      func.return %y : tensor<2x2xf32>
    }""")
    after = run(module, FormTiles())
    first, second = all_of(after, TileOp)
    assert only(after, TransposeOp).x is first.outputs[0]
    assert list(second.inputs) == [first.outputs[0], only(after, TransposeOp).result]
    assert_same_function(module, after, [{"x": np.arange(4.0).reshape(2, 2)}])


def test_a_result_in_axes_that_no_operand_has_gets_its_reshape_outside() -> None:
    module = parse("""
    func.func @main(%x: tensor<?x2xf32>) -> tensor<?x3x2xf32> {
      %w = pebble.constant dense<1.0> : tensor<2x2xf32>
      %h = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
      %r = pebble.reshape %h to <[_, 3, 2]> : (tensor<?x2xf32>) -> tensor<?x3x2xf32>
      %y = pebble.linear %r, %w : (tensor<?x3x2xf32>, tensor<2x2xf32>) -> tensor<?x3x2xf32>
      func.return %y : tensor<?x3x2xf32>
    }""")
    after = run(module, FormTiles())
    tile = only(after, TileOp)
    assert len(all_of(after, LinearOp)) == 2
    assert only(after, ReshapeOp).x is tile.outputs[0]
    assert only(after, ReturnOp).operands[0] is only(after, ReshapeOp).result
    assert_same_function(module, after, [{"x": np.ones((rows, 2))} for rows in (0, 3, 6)])


def test_a_vector_is_one_row_and_a_scalar_one_feature() -> None:
    module = parse("""
    func.func @main(%x: tensor<2xf32>, %s: tensor<f32>) -> (tensor<2xf32>, tensor<f32>) {
      %c = pebble.constant dense<3.0> : tensor<f32>
      %y = pebble.softmax %x : (tensor<2xf32>) -> tensor<2xf32>
      %t = pebble.mul %s, %c : (tensor<f32>, tensor<f32>) -> tensor<f32>
      func.return %y, %t : tensor<2xf32>, tensor<f32>
    }""")
    after = run(module, FormTiles())
    assert len(all_of(after, TileOp)) == 2
    assert_same_function(module, after, [{"x": np.array([1.0, 2.0]), "s": np.array(5.0)}])


def test_tiles_stay_as_they_are() -> None:
    once = run(parse(SUM_OF_TWO.replace("NAME", "batch")), FormTiles())
    assert run(once, FormTiles()).is_structurally_equivalent(once)

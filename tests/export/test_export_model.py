from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from redpebble.export.export_model import export_model
from tests.export.export_oracle import answers, exported, module_of, one_node, operators, original_of

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
WEIGHT = np.arange(8, dtype=np.float32).reshape(4, 2) - 3

RICH = """
<ir_version: 8, opset_import: ["" : 17, "custom" : 1], producer_name: "someone", producer_version: "2",
 model_version: 7, doc_string: "a model", metadata_props: ["task" : "demo"]>
rich (float[batch,4] x, int64[batch] unused) => (float[batch,2] y) <float[batch,2] h>
{
  [fc] h = MatMul(x, W)
  [act] y = Relu(h)
}
<domain: "custom", opset_import: ["" : 17]>
Twice (a) => (b) { b = Add(a, a) }
"""
RICH_MODULE = """
func.func @main(%x : tensor<?x4xf32> {pebble.name = "x"}, %u : !pebble.value<"tensor(int64)"> {pebble.name = "unused"})
    -> (tensor<?x2xf32> {pebble.name = "y"}) {
  %w = pebble.constant {pebble.values = ["W"]}
    dense<[[-3.0, -2.0], [-1.0, 0.0], [1.0, 2.0], [3.0, 4.0]]> : tensor<4x2xf32>
  %h = pebble.linear %x, %w {pebble.node = "fc", pebble.values = ["h"]}
    : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  %y = pebble.activate <relu> %h {pebble.node = "act", pebble.values = ["y"]} : (tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
"""
FUSED_MODULE = """
func.func @main(%x : tensor<?x4xf32> {pebble.name = "x"}, %u : !pebble.value<"tensor(int64)"> {pebble.name = "unused"})
    -> (tensor<?x2xf32> {pebble.name = "y"}) {
  %w = pebble.constant {pebble.values = ["W"]}
    dense<[[-3.0, -2.0], [-1.0, 0.0], [1.0, 2.0], [3.0, 4.0]]> : tensor<4x2xf32>
  %y = pebble.linear %x, %w activation <relu> {pebble.node = "fc", pebble.values = ["y"]}
    : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
"""


def rich() -> ir.Model:
    model = original_of(RICH, {"W": WEIGHT, "left_over": np.ones(3, dtype=np.float32)})
    next(iter(model.graph)).metadata_props["origin"] = "layer 1"
    next(iter(model.graph)).doc_string = "the first"
    model.graph.doc_string = "a graph"
    return model


@pytest.mark.parametrize("text", [RICH_MODULE, FUSED_MODULE])
def test_all_that_the_ir_does_not_hold_comes_from_the_original(text: str) -> None:
    original = rich()
    before = ir.to_proto(original)
    proto = exported(text, original)
    assert ir.to_proto(original) == before
    for field in ("ir_version", "producer_name", "producer_version", "model_version", "doc_string"):
        assert getattr(proto, field) == getattr(before, field)
    assert proto.metadata_props == before.metadata_props
    assert proto.opset_import == before.opset_import
    assert proto.functions == before.functions
    assert proto.graph.input == before.graph.input
    assert proto.graph.output == before.graph.output
    assert proto.graph.node == before.graph.node
    assert (proto.graph.name, proto.graph.doc_string) == ("rich", "a graph")
    assert [entry.name for entry in proto.graph.initializer] == ["W"]
    assert [info for info in proto.graph.value_info if info.name == "h"] == [
        info for info in before.graph.value_info if info.name == "h"
    ] or text is FUSED_MODULE


FOREIGN = """
<ir_version: 8, opset_import: ["" : 17]>
mixed (float[N,4] x, bool flag) => (float[N,4] y)
{
  [start] h = Abs(x)
  [choice] z = If (flag) <
    then_branch = yes () => (float[N,4] t) { s = Add(h, shift) t = Mul(s, h) },
    else_branch = no () => (float[N,4] e) { e = Identity(x) }
  >
  [end] y = Neg(z)
}
"""
FOREIGN_MODULE = """
func.func @main(%x : tensor<?x4xf32> {pebble.name = "x"}, %f : !pebble.value<"tensor(bool)"> {pebble.name = "flag"})
    -> (tensor<?x4xf32> {pebble.name = "y"}) {
  %h = pebble.activate <relu> %x {pebble.node = "start", pebble.values = ["RENAMED"]}
    : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %z = pebble.foreign "If" at 1 reads %f, %h, %x as ["flag", "h", "x"] {pebble.node = "choice", pebble.values = ["z"]}
    : (!pebble.value<"tensor(bool)">, tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %y = pebble.activate <neg> %z {pebble.values = ["y"]} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return %y : tensor<?x4xf32>
}
"""
SHIFT = {"shift": np.array([1, 2, 3, 4], dtype=np.float32)}


def test_a_foreign_node_reads_renamed_values_also_inside_its_subgraphs() -> None:
    proto = exported(FOREIGN_MODULE.replace("RENAMED", "hidden"), original_of(FOREIGN, SHIFT))
    assert operators(proto) == ["Relu", "If", "Neg"]
    assert [entry.name for entry in proto.graph.initializer] == ["shift"]
    positive = np.maximum(X, 0)
    for flag, expected in ((True, -(positive + SHIFT["shift"]) * positive), (False, -X)):
        (y,) = answers(proto, {"x": X, "flag": np.array(flag)})
        np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize("taken", ["s", "shift", "z", "x", "t"])
def test_a_name_that_is_taken_is_not_used_twice(taken: str) -> None:
    proto = exported(FOREIGN_MODULE.replace("RENAMED", taken), original_of(FOREIGN, SHIFT))
    assert proto.graph.node[0].output[0] == f"{taken}_1"


def test_a_changed_weight_leaves_the_name_to_a_foreign_node_that_reads_the_old_one() -> None:
    old = '%y = pebble.activate <neg> %z {pebble.values = ["y"]} : (tensor<?x4xf32>) -> tensor<?x4xf32>'
    new = """
    %c = pebble.constant {pebble.values = ["shift"]} dense<7.0> : tensor<4xf32>
    %y = pebble.add %z, %c {pebble.values = ["y"]} : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    """
    proto = exported(FOREIGN_MODULE.replace("RENAMED", "h").replace(old, new), original_of(FOREIGN, SHIFT))
    assert [entry.name for entry in proto.graph.initializer] == ["shift", "shift_1"]
    (y,) = answers(proto, {"x": X, "flag": np.array(True)})
    positive = np.maximum(X, 0)
    np.testing.assert_allclose(y, (positive + SHIFT["shift"]) * positive + 7, rtol=1e-6)


def test_a_constant_that_only_a_foreign_node_reads_is_computed_as_before() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N,4] x) => (float[N,4] y) {
      one = Constant<value = float[1] {1.0}>()
      two = Add(one, one)
      y = Mul(x, two)
    }
    """
    module = """
    func.func @main(%x : tensor<?x4xf32> {pebble.name = "x"}) -> (tensor<?x4xf32> {pebble.name = "y"}) {
      %y = pebble.foreign "Mul" at 2 reads %x as ["x"] {pebble.values = ["y"]} : (tensor<?x4xf32>) -> tensor<?x4xf32>
      func.return %y : tensor<?x4xf32>
    }
    """
    proto = exported(module, original_of(text))
    assert operators(proto) == ["Constant", "Add", "Mul"]
    np.testing.assert_allclose(answers(proto, {"x": X})[0], 2 * X, rtol=1e-6)


OUTPUTS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] x, float[N,4] a, float[N,4] b, float[2] c)
{ a = Relu(x) b = Identity(a) c = Identity(k) }
"""
OUTPUTS_MODULE = """
func.func @main(%x : tensor<?x4xf32> {pebble.name = "x"}) -> (tensor<?x4xf32> {pebble.name = "x"},
    tensor<?x4xf32> {pebble.name = "a"}, tensor<?x4xf32> {pebble.name = "b"}, tensor<2xf32> {pebble.name = "c"}) {
  %c = pebble.constant {pebble.values = ["k"]} dense<[1.0, 2.0]> : tensor<2xf32>
  %a = pebble.activate <relu> %x {pebble.values = ["a"]} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return %x, %a, %a, %c : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<2xf32>
}
"""


def test_an_output_that_is_an_input_a_duplicate_or_a_constant_keeps_its_name() -> None:
    proto = exported(OUTPUTS_MODULE, original_of(OUTPUTS, {"k": np.array([1, 2], dtype=np.float32)}))
    assert [entry.name for entry in proto.graph.output] == ["x", "a", "b", "c"]
    assert operators(proto) == ["Relu", "Identity", "Identity"]
    results = answers(proto, {"x": X})
    for result, expected in zip(results, (X, np.maximum(X, 0), np.maximum(X, 0), np.array([1, 2])), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_an_initializer_that_the_caller_may_override_stays() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N,4] x, float[4] s) => (float[N,4] y) { y = Mul(x, s) }
    """
    module = """
    func.func @main(%x : tensor<?x4xf32> {pebble.name = "x"}, %s : tensor<4xf32> {pebble.name = "s"})
        -> (tensor<?x4xf32> {pebble.name = "y"}) {
      %y = pebble.mul %x, %s {pebble.values = ["y"]} : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
      func.return %y : tensor<?x4xf32>
    }
    """
    proto = exported(module, original_of(text, {"s": np.full(4, 3, dtype=np.float32)}))
    np.testing.assert_allclose(answers(proto, {"x": X})[0], 3 * X, rtol=1e-6)
    np.testing.assert_allclose(answers(proto, {"x": X, "s": np.ones(4, dtype=np.float32)})[0], X, rtol=1e-6)


def test_before_ir_version_4_every_initializer_is_listed_as_an_input() -> None:
    text = """
    <ir_version: 3, opset_import: ["" : 8]>
    g (float[N,4] x, float[4,2] W, float[3] gone) => (float[N,2] y) { y = MatMul(x, W) }
    """
    module = """
    func.func @main(%x : tensor<?x4xf32> {pebble.name = "x"}) -> (tensor<?x1xf32> {pebble.name = "y"}) {
      %w = pebble.constant {pebble.values = ["W"]} dense<[[1.0], [2.0], [3.0], [4.0]]> : tensor<4x1xf32>
      %b = pebble.constant dense<5.0> : tensor<1xf32>
      %y = pebble.linear %x, %w bias %b {pebble.values = ["y"]}
        : (tensor<?x4xf32>, tensor<4x1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
      func.return %y : tensor<?x1xf32>
    }
    """
    original = original_of(text, {"W": WEIGHT, "gone": np.ones(3, dtype=np.float32)})
    original.graph.outputs[0].shape = ir.Shape(["N", 1])
    proto = exported(module, original)
    assert proto.ir_version == 3
    assert [entry.name for entry in proto.graph.input] == ["x", "W", "bias"]
    (y,) = answers(proto, {"x": X})
    np.testing.assert_allclose(y, X @ np.array([[1], [2], [3], [4]]) + 5, rtol=1e-5)


def test_literals_are_taken_from_the_original_where_it_has_them() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N,4] x) => (float[N,4] y) { [limit] y = Clip(x, low, high) }
    """
    module = """
    func.func @main(%x : tensor<?x4xf32> {pebble.name = "x"}) -> (tensor<?x4xf32> {pebble.name = "y"}) {
      %y = pebble.activate <clip(0.0, 6.0)> %x {pebble.node = "limit", pebble.values = ["y"]}
        : (tensor<?x4xf32>) -> tensor<?x4xf32>
      func.return %y : tensor<?x4xf32>
    }
    """
    bounds = {"low": np.array(0, dtype=np.float32), "high": np.array(6, dtype=np.float32)}
    original = original_of(text, bounds)
    assert exported(module, original) == ir.to_proto(original)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('pebble.name = "x"', 'pebble.name = "w"', "argument 'w' is no input of the original model"),
        ("at 1", "at 7", "If at 7, the original has 3 nodes"),
        ("at 1", "at 0", "If at 0, the original has Abs there"),
        ('["flag", "h", "x"]', '["flag", "q", "x"]', "If reads 'q', which the original does not have"),
        ("@main", "@other", "the module has no function @main"),
        ('{pebble.name = "x"}', "", "function @main: expected a pebble.name for each argument, got arguments without"),
        ("func.return %y : tensor<?x4xf32>", "func.return %y, %y : tensor<?x4xf32>, tensor<?x4xf32>",
         "function @main returns 2 values, the original has 1"),
    ],
)  # fmt: skip
def test_a_module_of_another_model_is_refused(old: str, new: str, message: str) -> None:
    text = FOREIGN_MODULE.replace("RENAMED", "h").replace(old, new, 1)
    if "%y, %y" in text:
        text = text.replace('-> (tensor<?x4xf32> {pebble.name = "y"})', "-> (tensor<?x4xf32>, tensor<?x4xf32>)", 1)
    with pytest.raises(ValueError, match=message):
        export_model(module_of(text), original_of(FOREIGN, SHIFT))


def test_a_model_without_a_standard_opset_is_refused() -> None:
    original = original_of(one_node(17))
    del original.graph.opset_imports[""]
    module = """
    func.func @main(%x : tensor<?x4xf32> {pebble.name = "x"}) -> (tensor<?x4xf32> {pebble.name = "y"}) {
      %y = pebble.activate <relu> %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
      func.return %y : tensor<?x4xf32>
    }
    """
    with pytest.raises(ValueError, match=r"expected the standard opset, .*, got a model that imports none"):
        export_model(module_of(module), original)


def test_onnxruntime_fuses_what_was_decomposed_again(tmp_path: Path) -> None:
    module = """
    func.func @main(%x : tensor<?x4xf32> {pebble.name = "x"}) -> (tensor<?x4xf32> {pebble.name = "y"}) {
      %s = pebble.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
      %n = pebble.layer_norm %x scale %s bias %s epsilon 0.01
        : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
      %y = pebble.activate <gelu> %n : (tensor<?x4xf32>) -> tensor<?x4xf32>
      func.return %y : tensor<?x4xf32>
    }
    """
    proto = exported(module, original_of(one_node(13)))
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    fused = onnx.load_from_string((tmp_path / "optimized.onnx").read_bytes())
    assert operators(fused) == ["LayerNormalization", "Gelu"]

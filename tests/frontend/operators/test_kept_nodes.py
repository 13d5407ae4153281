import numpy as np
import onnx
import onnx.parser
import pytest
from xdsl.dialects.func import FuncOp

from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.provenance import node_name, value_name
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model
from tests.frontend.import_oracle import assert_agrees, imported, model, normal

SQUARE = "(float[n,4] x) => (float[n,4] y)"


def kept(proto: onnx.ModelProto) -> str:
    return str(import_model(proto, foreign="keep").module)


@pytest.mark.parametrize(
    ("node", "operator"),
    [
        ("MatMul(w, x)", "MatMul"),
        ("Gemm<transA=1>(x, w)", "Gemm"),
        ("Softmax<axis=0>(x)", "Softmax"),
        ("ReduceMean<axes=[0]>(x)", "ReduceMean"),
        ("LayerNormalization<axis=0>(x, w)", "LayerNormalization"),
    ],
)
def test_a_node_whose_values_would_be_moved_stays(node: str, operator: str) -> None:
    weights = {"w": normal(4, 4), "row": normal(4, 1), "three": np.array(3, np.float32)}
    proto = model(
        "(float[4,4] x) => (float[*] y)".replace("[*]", "[a,b]"), f"[it] y = {node}", opset=17, weights=weights
    )
    assert f'"ai.onnx::{operator}" at 0 reads %x as ["x"]' in kept(proto)
    assert "foreign" not in str(imported(proto))


@pytest.mark.parametrize("node", ["Gemm(x, w, row)", "Pow(x, three)"])
def test_a_node_that_becomes_several_ops_in_place_is_taken(node: str) -> None:
    weights = {"w": normal(4, 4), "row": normal(4, 1), "three": np.array(3, np.float32)}
    proto = model("(float[4,4] x) => (float[a,b] y)", f"[it] y = {node}", opset=17, weights=weights)
    assert "foreign" not in kept(proto)
    assert_agrees(proto)


def test_values_are_moved_for_a_layer_that_may_gain() -> None:
    weights = {"w": np.eye(4, dtype=np.float32)}
    proto = model("(float[4,4] x) => (float[4,4] y)", "[it] y = MatMul(w, x)", weights=weights)
    imported_model = import_model(proto, foreign="keep", whole=frozenset())
    assert "pebble.linear" in str(imported_model.module)
    assert imported_model.expanded == {"it"}
    assert "foreign" in str(import_model(proto, foreign="keep", whole={"it"}).module)
    proto.graph.node[0].name = ""
    nameless = import_model(proto, foreign="keep", whole=frozenset())
    assert "pebble.node = @y" in str(nameless.module)
    assert nameless.expanded == {"y"}
    assert "foreign" in str(import_model(proto, foreign="keep", whole={"y"}).module)


def test_a_node_that_fits_no_known_size_stays() -> None:
    # onnxruntime finds out at run time whether the last axis is 4
    proto = model("(float[n,m] x) => (float[n,4] y)", "[it] y = MatMul(x, w)", weights={"w": normal(4, 4)})
    assert '"ai.onnx::MatMul" at 0 reads %x as ["x"]' in kept(proto)


def test_foreign_nodes_stand_between_layers() -> None:
    proto = model(
        "(float[n,4] x) => (float[n,3] y)",
        "[a] h = MatMul(x, w) [top] v, i = TopK(h, k) [b] y = Relu(v)",
        weights={"w": normal(4, 4), "k": np.array([3])},
    )
    module = import_model(proto, foreign="keep").module
    foreign = next(op for op in module.walk() if isinstance(op, ForeignOp))
    assert foreign.position.value.data == 1
    assert isinstance(foreign.reads[0].owner, LinearOp)
    assert node_name(foreign) == "top"
    assert [value_name(result) for result in foreign.results] == ["v", "i"]
    assert [str(result.type) for result in foreign.results] == ["tensor<?x3xf32>", '!pebble.value<"tensor(int64)">']
    assert "pebble.activate <relu>" in str(module)


def test_a_foreign_node_reads_what_its_subgraphs_capture() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n,4] x, bool c) => (float[n,4] y) <float[1] w = {2.0}>
        {
            h = Relu(x)
            y = If (c) <
                then_branch = t () => (float[n,4] a) { a0 = Mul(h, w)  a = Add(a0, h) },
                else_branch = e () => (float[n,4] b) { b = Identity(x) }
            >
        }""")
    assert '"ai.onnx::If" at 1 reads %c, %h, %x as ["c", "h", "x"]' in kept(proto)


def test_an_unknown_domain_stays_and_its_types_come_from_the_model() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "our.own" : 1]>
        g (float[n,4] x) => (float[n,4] y) <float[n,4] h>
        { h = our.own.Mystery(x)  y = Relu(h) }""")
    text = kept(proto)
    assert '"our.own::Mystery" at 0' in text
    assert "pebble.activate <relu> %h" in text


def test_values_of_unknown_type_stay_opaque() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "our.own" : 1]>
        g (float[n,4] x) => (float[n,4] y) { h = our.own.Mystery(x)  y = Relu(h) }""")
    assert '(!pebble.value<"">) -> tensor<?x4xf32>' in kept(proto)


def test_a_call_of_a_local_function_stays_or_is_written_out() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        g (float[n,4] x) => (float[n,4] y) { h = own.Twice(x)  y = Relu(h) }
        <domain: "own", opset_import: ["" : 21]> Twice (a) => (b) { b = Add(a, a) }""")
    assert '"own::Twice" at 0' in kept(proto)
    assert "pebble.add" in str(imported(proto))
    assert_agrees(proto)


def test_a_function_of_another_opset_is_refused() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        g (float[n,4] x) => (float[n,4] y) { y = own.Twice(x) }
        <domain: "own", opset_import: ["" : 18]> Twice (a) => (b) { b = Add(a, a) }""")
    with pytest.raises(UnsupportedModelError, match=r"^a model-local function cannot be written out: Opset mismatch"):
        import_model(proto, foreign="refuse")


def test_nodes_that_only_computed_a_reshapes_target_are_gone() -> None:
    nodes = "s = Shape(x) b = Slice(s, zero, one) t = Concat<axis=0>(b, open) y = Reshape(x, t)"
    weights = {"zero": np.array([0]), "one": np.array([1]), "open": np.array([-1])}
    assert "foreign" not in kept(model("(float[n,2,2] x) => (float[n,4] y)", nodes, weights=weights))


def test_nodes_that_computed_a_shape_stay_where_a_kept_node_reads_it() -> None:
    nodes = "s = Shape(x) y = Expand(row, s)"
    text = kept(model("(float[n,4] x) => (float[n,4] y)", nodes, weights={"row": normal(4)}))
    assert '"ai.onnx::Shape"' in text
    assert '"ai.onnx::Expand"' in text


def test_a_sequence_that_is_passed_on_stays() -> None:
    proto = model("(float[n] x) => (seq(float[n]) y)", "s = SequenceConstruct(x) y = Identity(s)")
    assert '"ai.onnx::Identity" at 1' in kept(proto)
    assert '!pebble.value<"seq(tensor(float))">' in kept(proto)


def test_a_dead_node_that_is_not_covered_is_no_obstacle() -> None:
    assert "foreign" not in str(imported(model(SQUARE, "y = Relu(x) [dead] z = Cos(x)")))


def test_a_node_that_is_not_covered_is_named() -> None:
    nodes = "h = Relu(x) [conv1] c = LpNormalization(h) y = Relu(c)"
    proto = model("(float[n,1,8] x) => (float[n,1,8] y)", nodes, opset=13, weights={"w": normal(1, 1, 1)})
    with pytest.raises(UnsupportedModelError) as refusal:
        import_model(proto, foreign="refuse")
    assert str(refusal.value) == (
        "node 'conv1': operator LpNormalization (ai.onnx 13) is not covered: no native code, "
        "a session leaves it to onnxruntime"
    )


def test_a_node_without_a_name_is_named_by_its_index() -> None:
    with pytest.raises(UnsupportedModelError, match=r"^node 1: operator Cos \(ai.onnx 21\) is not covered"):
        import_model(model(SQUARE, "h = Relu(x) y = Cos(h)"), foreign="refuse")


def test_arguments_and_results_carry_their_names() -> None:
    proto = model(
        "(float[batch,4] x, int64[n] ids) => (float[batch,4] y, int64[n] out)", "y = Relu(x) out = Identity(ids)"
    )
    function = next(op for op in import_model(proto, foreign="keep").module.walk() if isinstance(op, FuncOp))
    header = str(function).splitlines()[0]
    assert 'tensor<?x4xf32> {pebble.name = "x", pebble.dims = ["batch", "4"]}' in header
    assert '!pebble.value<"tensor(int64)"> {pebble.name = "ids", pebble.dims = ["n"]}' in header
    assert '(tensor<?x4xf32> {pebble.name = "y"}, !pebble.value<"tensor(int64)"> {pebble.name = "out"})' in header


def test_an_unnamed_dimension_has_an_empty_name() -> None:
    proto = model(SQUARE, "y = Relu(x)")
    proto.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    assert 'pebble.dims = ["", "4"]' in str(imported(proto))


def test_an_output_that_is_a_constant_of_another_type_gets_a_node() -> None:
    proto = model("(float[n] x) => (float[n] y, int64[1] k)", "y = Relu(x)", weights={"k": np.array([7])})
    result = import_model(proto, foreign="keep")
    assert '"ai.onnx::Identity" at 1' in str(result.module)
    assert [output.name for output in result.model.graph.outputs] == ["y", "k"]
    with pytest.raises(
        UnsupportedModelError, match=r"^expected output k as a value computed here, got a tensor\(int64\)"
    ):
        import_model(proto, foreign="refuse")


def test_positions_point_into_the_returned_model() -> None:
    nodes = "m = Mul(v, v) a = Cos(x) b = MatMul(a, m) [it] y = Sin(b)"
    result = import_model(model(SQUARE, nodes, weights={"v": normal(4, 4)}), foreign="keep")
    listed = list(result.model.graph)
    for op in result.module.walk():
        if isinstance(op, ForeignOp):
            assert op.operator.data == f"ai.onnx::{listed[op.position.value.data].op_type}"

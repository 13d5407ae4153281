import numpy as np
import onnx
import onnx.parser
import onnx_ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from redpebble.frontend.fold_model import fold_branches, fold_model

TEXT = """
agraph (float[2] x) => (float[2] y) {
    a = If (known) <
        then_branch = g1 () => (b) { b = Neg (x) },
        else_branch = g2 () => (b) { c = Exp (x) b = Identity (c) }
    >
    y = Relu (a)
}
"""


def model(condition: bool | None) -> onnx_ir.Model:
    graph = onnx.parser.parse_graph(TEXT)
    if condition is None:
        graph.input.append(helper.make_tensor_value_info("known", onnx.TensorProto.BOOL, []))
    else:
        graph.initializer.append(numpy_helper.from_array(np.array(condition), "known"))
    return onnx_ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))


@pytest.mark.parametrize(("condition", "nodes"), [(True, ["Neg", "Relu"]), (False, ["Exp", "Identity", "Relu"])])
def test_an_if_of_a_known_condition_is_its_branch(condition: bool, nodes: list[str]) -> None:
    folded = model(condition)
    fold_model(folded, keep_foreign=True)
    assert [node.op_type for node in folded.graph] == nodes
    x = np.array([-1.0, 2.0], np.float32)
    proto = onnx_ir.to_proto(folded)
    proto.ir_version = 9
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    y = np.asarray(session.run(None, {"x": x})[0])
    np.testing.assert_allclose(y, np.maximum(-x if condition else np.exp(x), 0), rtol=1e-6)


def test_an_if_of_an_input_stays() -> None:
    kept = model(None)
    assert not fold_branches(kept)
    assert [node.op_type for node in kept.graph] == ["If", "Relu"]


def test_a_range_reads_one_element_of_a_vector_that_an_if_gave() -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]> g (int64[1] x) => (int64[n] y)
        <int64 one = {1}, int64 zero = {0}>
        {
            yes = Constant <value_ints = [1]> ()
            condition = Cast <to = 9> (yes)
            end = If <then_branch = t () => (int64[1] a) { a = Add (x, x) },
                      else_branch = e () => (int64[1] b) { b = Identity (x) }> (condition)
            y = Range (zero, end, one)
        }"""
    folded = onnx_ir.from_proto(onnx.parser.parse_model(text))
    fold_model(folded, keep_foreign=False)
    assert [node.op_type for node in folded.graph] == ["Add", "Squeeze", "Range"]
    proto = onnx_ir.to_proto(folded)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": np.array([2], np.int64)})[0], np.arange(4))

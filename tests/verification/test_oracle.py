import numpy as np
import onnx
import onnx_ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from redpebble.verification.oracle import Oracle, exact_session


def product_of_bytes() -> onnx.ModelProto:
    """A product whose pairs of products do not fit 16 bits."""
    weight = numpy_helper.from_array(np.full((64, 8), 127, np.int8), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "bytes",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["n", 64])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["n", 8])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_sums_of_products_of_bytes_are_exact_on_every_cpu() -> None:
    oracle = Oracle(onnx_ir.from_proto(product_of_bytes()), exact=True)
    assert np.array_equal(oracle.run({"x": np.full((3, 64), 255, np.uint8)})[0], np.full((3, 8), 64 * 255 * 127))


def test_a_session_that_refuses_the_exact_option_is_made_without_it() -> None:
    asked: list[str] = []

    def make(options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
        asked.append(options.get_session_config_entry("session.force_spinning_stop"))
        if len(asked) == 1:
            raise RuntimeError("no kernel")
        return onnxruntime.InferenceSession(product_of_bytes().SerializeToString(), options)

    assert exact_session(make).get_outputs()[0].name == "y"
    assert asked == ["1", "1"]

"""The node tests of `onnx.backend.test` for quantized operators, in a session and as native code.

Each runs as it is, and with all inputs but the first as constants, which makes layers of products.
"""

from collections import Counter
from typing import Any

import onnx
import onnx_ir
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

import redpebble
from tests.end_to_end.test_every_operator import Case, feeds_of, in_known_opset, is_passed, node_tests, quiet, run_plain
from tests.support.sparse_network_models import network_nodes

OPERATORS = ("QLinearMatMul", "MatMulInteger", "DynamicQuantizeLinear", "QuantizeLinear", "DequantizeLinear")

NEWEST = 21
"""The newest opset whose quantized operators onnxruntime has kernels for."""


def cases() -> list[Case]:
    """Node tests that onnxruntime passes, as they are and with constants."""
    found: list[Case] = []
    for case in node_tests():
        nodes = case.model.graph.node
        if len(nodes) != 1 or nodes[0].op_type not in OPERATORS:
            continue
        known = case._replace(model=in_known_opset(case.model))
        known.model.opset_import[0].version = min(known.model.opset_import[0].version, NEWEST)
        found += [one for one in (known, with_constants(known)) if is_passed(one, run_plain(one.model, one.inputs))]
    return found


def with_constants(case: Case) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    names = [value.name for value in model.graph.input][1:]
    model.graph.initializer.extend(map(numpy_helper.from_array, case.inputs[1:], names))
    del model.graph.input[1:]
    return case._replace(model=model, inputs=case.inputs[:1])


def compiled(case: Case) -> list[NDArray[Any]] | None:
    """Return what native code yields; None where the model is refused."""
    try:
        network = redpebble.compile(case.model, cache=False)
    except redpebble.UnsupportedModelError:
        return None
    return network.run(None, dict(zip([one.name for one in network.get_inputs()], case.inputs, strict=True)))


@pytest.mark.slow
def test_quantized_operators_compute_what_their_definitions_say() -> None:
    passed, native = Counter[str](), Counter[str]()
    for case in cases():
        session = redpebble.session(case.model, quiet())
        assert is_passed(case, session.run(None, feeds_of(session, case.inputs))), case.name
        operator = case.model.graph.node[0].op_type
        passed[operator] += 1
        found = compiled(case)
        assert found is None or is_passed(case, found), case.name
        native[operator] += found is not None
    print(f"\nin a session: {dict(passed)}; as native code: {dict(native)}")
    assert all(passed[operator] for operator in OPERATORS)
    assert native["QLinearMatMul"]


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["QLinearConv", "ConvInteger"])
def test_convolutions_of_bytes_stay_as_they_are(operator: str) -> None:
    for case in node_tests():
        if [node.op_type for node in case.model.graph.node] == [operator]:
            model = with_constants(case._replace(model=in_known_opset(case.model))).model
            optimized = redpebble.optimize(model, target="ort")
            assert not network_nodes(onnx_ir.to_proto(optimized.model))
            assert any(node.op_type == operator for node in optimized.model.graph)

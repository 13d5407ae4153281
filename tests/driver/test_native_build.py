"""What reports show of a model: layers as `compile` makes them, also those that are ours in networks alone."""

import numpy as np
import onnx
import pytest

from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.driver.compiler import native_code
from redpebble.driver.native_build import imported_for_reports
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.models.zoo import build
from redpebble.options import Options


def test_layers_on_codes_are_shown_as_layers() -> None:
    ops = list(imported_for_reports(build("digits_int8")).module.walk())
    assert any(isinstance(op, LinearOp) and op.times is not None for op in ops)
    assert not any(isinstance(op, ForeignOp) for op in ops)


def test_nothing_is_computed_before_the_code_of_a_node() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        model (float[n, 8] x) => (float[n, 8] y) { a = Sin (x) y = MatMul (a, w) }""")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
    assert native_code(proto, cache=False).program.prologue is not None
    with pytest.raises(UnsupportedModelError, match="Sin"):
        native_code(proto, Options(is_node=True), cache=False)

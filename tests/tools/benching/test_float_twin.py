"""What a quantized model is measured against has floats in all its layers."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest

from redpebble.models import zoo
from redpebble.models.digits import digits_test_set
from redpebble.tools.benching.engines.engines import check_layers, float_session, without_rounding
from redpebble.tools.benching.errors import NotCoveredError
from redpebble.verification.oracle import Oracle
from tests.support.quantized_models import pruned_network, quantized


@pytest.mark.slow
def test_a_quantized_model_without_rounding_is_about_the_one_of_floats(tmp_path: Path) -> None:
    path = tmp_path / "digits.onnx"
    path.write_bytes(onnx_ir.to_proto(zoo.build("digits_int8")).SerializeToString())
    twin = without_rounding(onnx.load_from_string(Path(path).read_bytes()))
    assert not [node for node in twin.graph.node if node.op_type == "QuantizeLinear"]
    images = {"x": digits_test_set().images}
    found = np.asarray(float_session(path, 1).run(None, images)[0], np.float32)
    (floats,) = Oracle(zoo.build("digits")).run(images)
    (integers,) = Oracle(path).run(images)
    # weights are still rounded, inputs are not
    scale = np.abs(floats).max()
    assert np.abs(found - floats).max() < 0.02 * scale
    assert np.abs(found - integers).max() > 0


def test_layers_that_compute_with_codes_have_no_twin(tmp_path: Path) -> None:
    model = quantized(pruned_network([40, 64, 20], 0.15), tmp_path, "operator", "QUInt8", "QInt8")
    path = tmp_path / "operator.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(NotCoveredError, match=r"expected layers between .*, got operator QGemm on quantized values"):
        check_layers(path)

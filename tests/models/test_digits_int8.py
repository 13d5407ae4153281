import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

import redpebble
from redpebble.models import zoo
from redpebble.models.digits import digits_accuracy, digits_record, digits_test_set
from tests.models.zoo_oracle import checked


@pytest.mark.slow
def test_eight_bits_are_as_accurate_by_definition_and_in_native_code() -> None:
    model = zoo.build("digits_int8")
    checked(model)
    reference = ReferenceEvaluator(ir.to_proto(model))
    images = digits_test_set().images
    (expected,) = reference.run(None, {"x": images})  # pyright: ignore[reportUnknownMemberType]
    logits: NDArray[np.float32] = np.asarray(expected, np.float32)
    accuracy = digits_accuracy(lambda _: logits)
    assert accuracy >= digits_record()["accuracy_pruned"] - 0.005
    network = redpebble.compile(model, cache=False)
    assert {layer.format for layer in network.report} == {"int8"}
    assert digits_accuracy(lambda rows: network.run(None, {"x": rows})[0]) == accuracy

"""What libraries raise about a model is the model's fault; what else is raised is ours, and stays as it is."""

import onnx_ir
import pytest
from onnx.checker import ValidationError

from redpebble.frontend.errors import InvalidModelError, ModelError, UnsupportedModelError
from redpebble.frontend.import_model import import_model
from redpebble.frontend.reading.faults import reading
from tests.frontend.import_oracle import model, normal


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        (onnx_ir.serde.SerdeError("a\nb"), InvalidModelError, "the model is malformed: a"),
        (ValidationError("a."), InvalidModelError, "the model is malformed: a"),
        (TypeError(), InvalidModelError, "the model is malformed: TypeError"),
        (KeyError("a"), InvalidModelError, "the model is malformed: 'a'"),
        (RecursionError(), UnsupportedModelError, "the model is nested more deeply than can be followed"),
        (MemoryError("a"), UnsupportedModelError, "the model takes more memory than there is: a"),
    ],
)
def test_a_fault_of_a_library_is_the_models(fault: Exception, kind: type[ModelError], message: str) -> None:
    with pytest.raises(ModelError) as refusal, reading():
        raise fault
    assert type(refusal.value) is kind
    assert str(refusal.value) == message


def test_an_error_that_is_its_own_cause_is_followed_once() -> None:
    circle = ValueError("a")
    circle.__cause__ = circle
    with pytest.raises(InvalidModelError, match=r"^the model is malformed: a$"), reading():
        raise circle


@pytest.mark.parametrize("kind", [AssertionError, AttributeError, ImportError, NameError])
def test_a_fault_of_ours_is_not_the_models(kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^ours$"), reading():
        raise kind("ours")


def test_a_layer_that_contradicts_its_input_is_refused_and_ends() -> None:
    proto = model("(float[7,3,k] x) => (float[7,3,33] y)", "y = MatMul(x, w)", weights={"w": normal(9, 33)})
    with pytest.raises(InvalidModelError, match=r"MatMul \(ai.onnx 21\): expected x 7x3x9, got 7x3x\?$"):
        import_model(proto, foreign="refuse")

"""What reports show of a model: layers as `compile` makes them, also those that are ours in networks alone."""

from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.dialect.ops.quantized_layers import QuantizedLayersOp
from redpebble.models.zoo import build
from redpebble.native_build import imported_for_reports


def test_layers_on_codes_are_shown_as_layers() -> None:
    ops = list(imported_for_reports(build("digits_int8")).module.walk())
    assert any(isinstance(op, QuantizedLayersOp) for op in ops)
    assert not any(isinstance(op, ForeignOp) for op in ops)

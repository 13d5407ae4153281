"""Sizes of what is made in a computed shape, against what onnxruntime makes."""

import numpy as np
import onnx
import pytest
from onnx import parser

from redpebble.frontend.folding.computed_sizes import add_computed_sizes
from tests.ort.provider_models import plain_session

COMPUTED = """
<ir_version: 8, opset_import: ["" : 17]>
g (int32[n, 64] x) => (float y) <
    int64[1] zero = {0}, int64[1] one = {1}, int64[1] axis = {2}, int64[2] ends = {16, 4}, int64[2] wide = {64, 5}
> {
    all = Shape(x)
    narrow = Cast<to = 6>(all)
    batch = Slice(narrow, zero, one, zero)
    back = Cast<to = 7>(batch)
    target = Concat<axis = 0>(back, ends)
    z = Cast<to = 1>(x)
    reshaped = Reshape(z, target)
    tall = Concat<axis = 0>(back, wide)
    column = Unsqueeze(z, axis)
    expanded = Expand(column, tall)
    filled = ConstantOfShape<value = float[1] {1.0}>(target)
    sum = Add(reshaped, filled)
    y = Flatten(expanded)
}
"""


def model_of(*outputs: str) -> onnx.ModelProto:
    model = parser.parse_model(COMPUTED)
    for name in outputs:
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return model


def shape_of(model: onnx.ModelProto, name: str) -> list[int | str]:
    plain = onnx.shape_inference.infer_shapes(model, data_prop=False)
    assert add_computed_sizes(plain)
    infos = {info.name: info for info in onnx.shape_inference.infer_shapes(plain, data_prop=False).graph.value_info}
    return [dim.dim_param or dim.dim_value for dim in infos[name].type.tensor_type.shape.dim]


@pytest.mark.parametrize("batch", [0, 1, 7])
def test_sizes_that_do_not_depend_on_the_batch_are_those_of_onnxruntime(batch: int) -> None:
    names = ("reshaped", "expanded", "filled", "sum")
    found = plain_session(model_of(*names), 1).run(list(names), {"x": np.zeros((batch, 64), np.int32)})
    for name, result in zip(names, found, strict=True):
        size, *others = shape_of(model_of(), name)
        assert isinstance(size, str)
        assert others == list(result.shape)[1:], name


def test_a_shape_of_unknown_length_says_nothing() -> None:
    model = parser.parse_model(
        """
<ir_version: 8, opset_import: ["" : 17]>
g (float x, int64[k] shape) => (float y) { e = Expand(x, shape) y = Reshape(e, shape) }
"""
    )
    assert not add_computed_sizes(model)

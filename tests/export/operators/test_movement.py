import numpy as np
import pytest
from onnx import numpy_helper, parser

import redpebble
from tests.export.export_oracle import answers, exported, one_node, one_op, operators, original_of

X = np.arange(24, dtype=np.float32)

RESHAPES = [
    # from, target, to, the shape that is fed, operators
    ("?x2x3", "[d0, _]", "?x6", (4, 2, 3), ["Flatten"]),
    ("?x2x3", "[d0, 6]", "?x6", (0, 2, 3), ["Flatten"]),
    ("?x6", "[d0, 2, 3]", "?x2x3", (4, 6), ["Reshape"]),
    ("?x6", "[_, 3]", "?x3", (4, 6), ["Reshape"]),
    ("?x6", "[_, 3]", "?x3", (0, 6), ["Reshape"]),
    ("?x6", "[d0, 2, _]", "?x2x3", (0, 6), ["Reshape"]),
    ("?x6", "[d0, 1, 6]", "?x1x6", (4, 6), ["Unsqueeze"]),
    ("?x?x6", "[1, d0, d1, 6]", "1x?x?x6", (2, 2, 6), ["Unsqueeze"]),
    ("?x1x6", "[d0, 6]", "?x6", (4, 1, 6), ["Flatten"]),
    ("?x4x1x1", "[d0, 4, 1]", "?x4x1", (6, 4, 1, 1), ["Squeeze"]),
    ("1x?x?x6", "[d1, d2, 6]", "?x?x6", (1, 2, 2, 6), ["Squeeze"]),
    ("?x6", "[6, d0]", "6x?", (4, 6), ["Reshape"]),
    ("?x?x6", "[d1, d0, 6]", "?x?x6", (2, 2, 6), ["Shape", "Gather", "Gather", "Concat", "Reshape"]),
    ("?x?x6", "[d1, d0, 3, 2]", "?x?x3x2", (2, 2, 6), ["Shape", "Gather", "Gather", "Concat", "Reshape"]),
    ("2x?x?", "[_, d2]", "?x?", (2, 3, 4), ["Flatten"]),
    ("2x?x?", "[_, d2]", "?x?", (2, 3, 0), ["Flatten"]),
    ("2x?x?x1", "[_, d2]", "?x?", (2, 3, 0, 1), ["Flatten"]),
    ("1x2x?x?", "[_, d3]", "?x?", (1, 2, 0, 4), ["Flatten"]),
    ("4x6", "[24]", "24", (4, 6), ["Reshape"]),
    ("?x2x?x3", "[d0, d2, 6]", "?x?x6", (2, 2, 2, 3), ["Shape", "Gather", "Gather", "Concat", "Reshape"]),
    ("?x?x3", "[d0, _, 6]", "?x?x6", (2, 4, 3), ["Shape", "Gather", "Gather", "Div", "Concat", "Reshape"]),
    ("?x2x?x3", "[d0, _, 3]", "?x?x3", (2, 2, 2, 3), ["Shape", "Gather", "Gather", "Mul", "Concat", "Reshape"]),
    ("?x?x?x3", "[d0, _, 3]", "?x?x3", (2, 2, 2, 3), ["Shape", "Gather", "Gather", "ReduceProd", "Concat", "Reshape"]),
]  # fmt: skip


def dims(sizes: str) -> str:
    return f"float[{','.join(f'd{axis}' if size == '?' else size for axis, size in enumerate(sizes.split('x')))}]"


@pytest.mark.parametrize("opset", [7, 13, 21])
@pytest.mark.parametrize(("source", "target", "result", "fed", "written"), RESHAPES)
def test_a_reshape_is_the_operator_that_needs_least(
    source: str, target: str, result: str, fed: tuple[int, ...], written: list[str], opset: int
) -> None:
    argument, returned = f"tensor<{source}xf32>", f"tensor<{result}xf32>"
    line = f"%y = pebble.reshape %x to <{target}> : ({argument}) -> {returned}"
    proto = exported(one_op(line, argument, returned), original_of(one_node(opset, dims(source), f"{dims(result)}")))
    assert operators(proto) == written
    x = X[: int(np.prod(fed))].reshape(fed)
    (y,) = answers(proto, {"x": x})
    np.testing.assert_array_equal(y.ravel(), x.ravel())
    assert [size for size, stated in zip(y.shape, result.split("x"), strict=True) if stated != "?"] == [
        int(stated) for stated in result.split("x") if stated != "?"
    ]


@pytest.mark.parametrize("opset", [7, 13, 21])
def test_axes_before_an_empty_one_are_multiplied(opset: int) -> None:
    line = "%y = pebble.reshape %x to <[_, d3]> : (tensor<7x?x2x?xf32>) -> tensor<?x?xf32>"
    module = one_op(line, "tensor<7x?x2x?xf32>", "tensor<?x?xf32>")
    proto = exported(module, original_of(one_node(opset, "float[7,d1,2,d3]", "float[a,d3]")))
    assert answers(proto, {"x": np.zeros((7, 3, 2, 0), dtype=np.float32)})[0].shape == (42, 0)


@pytest.mark.parametrize("opset", [7, 13, 21])
@pytest.mark.parametrize(
    ("source", "target", "result", "fed", "expected"),
    [
        ("?x2x2x?x4", "[d0, 4, d3, 4]", "?x4x?x4", (0, 2, 2, 3, 4), (0, 4, 3, 4)),
        ("?x?x3", "[d0, _, 6]", "?x?x6", (0, 4, 3), (0, 2, 6)),
        ("?x2x?x3", "[d0, _, 3]", "?x?x3", (0, 2, 5, 3), (0, 10, 3)),
        ("?x?x?x3", "[d0, _, 3]", "?x?x3", (0, 2, 5, 3), (0, 10, 3)),
        ("?x?x?x3", "[d0, _, 3]", "?x?x3", (2, 0, 5, 3), (2, 0, 3)),
    ],
)
def test_an_empty_batch_leaves_the_other_sizes_what_they_are(
    source: str, target: str, result: str, fed: tuple[int, ...], expected: tuple[int, ...], opset: int
) -> None:
    argument, returned = f"tensor<{source}xf32>", f"tensor<{result}xf32>"
    line = f"%y = pebble.reshape %x to <{target}> : ({argument}) -> {returned}"
    proto = exported(one_op(line, argument, returned), original_of(one_node(opset, dims(source), dims(result))))
    assert answers(proto, {"x": np.zeros(fed, dtype=np.float32)})[0].shape == expected


REPEATED_HEADS = """
<ir_version: 9, opset_import: ["" : 17]>
heads (float[b, t, 8] x) => (float[b, 4, t, 4] y)
<int64[1] first={0}, int64[1] second={1}, int64[1] third={2}, int64[1] four={4}, int64[4] apart={0, 0, 2, 4},
 int64[5] copies={1, 1, 2, 1, 1}> {
  keys = MatMul(x, w)
  split = Reshape(keys, apart)
  heads = Transpose<perm = [0, 2, 1, 3]>(split)
  sizes = Shape(heads)
  b = Slice(sizes, first, second, first)
  t = Gather(sizes, third)
  shape = Concat<axis = 0>(b, four, t, four)
  one = Unsqueeze(heads, third)
  more = Expand(one, copies)
  y = Reshape(more, shape)
}
"""


def test_heads_that_are_repeated_keep_their_shape_in_an_empty_batch() -> None:
    model = parser.parse_model(REPEATED_HEADS)
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    written = redpebble.optimize(model, target="portable").proto
    assert "Slice" not in [node.op_type for node in written.graph.node]
    for batch in (0, 3):
        x = np.random.default_rng(1).standard_normal((batch, 5, 8)).astype(np.float32)
        (found,), (expected,) = answers(written, {"x": x}), answers(model, {"x": x})
        assert found.shape == (batch, 4, 5, 4)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_size_of_zero_means_zero() -> None:
    line = "%y = pebble.reshape %x to <[0, 5]> : (tensor<3x0xf32>) -> tensor<0x5xf32>"
    module = one_op(line, "tensor<3x0xf32>", "tensor<0x5xf32>")
    proto = exported(module, original_of(one_node(14, "float[3,0]", "float[0,5]")))
    assert answers(proto, {"x": np.zeros((3, 0), dtype=np.float32)})[0].shape == (0, 5)
    with pytest.raises(ValueError, match="a reshape to a size of 0 needs opset 14, the model's is 13"):
        exported(
            one_op(line, "tensor<3x0xf32>", "tensor<0x5xf32>"), original_of(one_node(13, "float[3,0]", "float[0,5]"))
        )


@pytest.mark.parametrize("opset", [7, 13, 21])
@pytest.mark.parametrize("sizes", [(2, 2), (1, 3), (0, 4)])
def test_transpose_split_and_concat_are_written_for_every_opset(opset: int, sizes: tuple[int, int]) -> None:
    first, second = (f"tensor<{size}x?xf32>" for size in sizes)
    line = f"""
    %t = pebble.transpose %x axes [1, 0] : (tensor<?x4xf32>) -> tensor<4x?xf32>
    %a, %b = pebble.split %t axis 0 : (tensor<4x?xf32>) -> ({first}, {second})
    %y = pebble.concat %b, %a axis 0 : ({second}, {first}) -> tensor<4x?xf32>
    """
    proto = exported(
        one_op(line, "tensor<?x4xf32>", "tensor<4x?xf32>"), original_of(one_node(opset, result="float[4,N]"))
    )
    x = X.reshape(6, 4)
    expected = np.concatenate([x.T[sizes[0] :], x.T[: sizes[0]]])
    np.testing.assert_array_equal(answers(proto, {"x": x})[0], expected)
    assert operators(proto) == ["Transpose", "Split", "Concat"]


@pytest.mark.parametrize("opset", [7, 13, 21])
def test_an_empty_tensor_is_split_into_empty_parts(opset: int) -> None:
    line = """
    %a, %b = pebble.split %x axis 1 : (tensor<?x0xf32>) -> (tensor<?x0xf32>, tensor<?x0xf32>)
    %y = pebble.add %a, %b : (tensor<?x0xf32>, tensor<?x0xf32>) -> tensor<?x0xf32>
    """
    proto = exported(one_op(line, *["tensor<?x0xf32>"] * 2), original_of(one_node(opset, "float[N,0]", "float[N,0]")))
    assert answers(proto, {"x": np.zeros((3, 0), dtype=np.float32)})[0].shape == (3, 0)
    # not every version of onnxruntime cuts nothing into a number of parts
    (split,) = (node for node in proto.graph.node if node.op_type == "Split")
    assert len(split.input) == 2 or [[*one.ints] for one in split.attribute if one.name == "split"] == [[0, 0]]


@pytest.mark.parametrize("opset", [7, 9, 13, 21])
def test_one_part_of_a_split_is_a_slice(opset: int) -> None:
    line = """
    %a, %y, %b = pebble.split %x axis 1
        : (tensor<?x4xf32>) -> (tensor<?x1xf32>, tensor<?x2xf32>, tensor<?x1xf32>)
    """
    proto = exported(
        one_op(line, "tensor<?x4xf32>", "tensor<?x2xf32>"), original_of(one_node(opset, result="float[N,2]"))
    )
    x = X.reshape(6, 4)
    np.testing.assert_array_equal(answers(proto, {"x": x})[0], x[:, 1:3])
    assert operators(proto) == ["Slice"]

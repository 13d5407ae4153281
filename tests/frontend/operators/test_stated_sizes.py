"""What weights state of the sizes of values, where ONNX's inference knows nothing."""

import onnx_ir
import pytest

from redpebble.frontend.operators.shape_inference import infer_types
from tests.frontend.import_oracle import model, normal


def inferred(nodes: str, weights: dict[str, tuple[int, ...]], rank: int = 3) -> dict[str, list[object]]:
    """The sizes of the values of a graph in which h has `rank` sizes that only a call knows."""
    proto = model(
        f"(float[n,12] x, int64[{rank}] shape) => (float[n,12] y)",
        f"h = Reshape(x, shape) {nodes} y = Identity(x)",
        opset=21,
        weights={name: normal(*shape) for name, shape in weights.items()},
    )
    shapes = {name: found.shape for name, found in infer_types(onnx_ir.from_proto(proto)).items()}
    return {
        name: [size if isinstance(size, int) else None for size in shape]
        for name, shape in shapes.items()
        if shape is not None
    }


@pytest.mark.parametrize(
    ("nodes", "weights", "rank", "expected"),
    [
        ("z = MatMul(h, w)", {"w": (3, 2)}, 3, [None, None, 3]),
        ("z = MatMul(w, h)", {"w": (2, 3)}, 3, [None, 3, None]),
        ("z = MatMul(h, w)", {"w": (3,)}, 2, [None, 3]),
        ("z = Gemm(h, w)", {"w": (3, 2)}, 2, [None, 3]),
        ("z = Gemm<transB=1>(h, w)", {"w": (2, 3)}, 2, [None, 3]),
        ("z = Gemm<transA=1>(h, w)", {"w": (3, 2)}, 2, [3, None]),
        ("z = Gemm(w, h)", {"w": (2, 3)}, 2, [3, None]),
        ("z = LayerNormalization(h, w)", {"w": (3,)}, 3, [None, None, 3]),
        ("z = LayerNormalization<axis=1>(h, w)", {"w": (4, 3)}, 3, [None, 4, 3]),
        ("z = LayerNormalization(h, w)", {"w": (1,)}, 3, [None, None, None]),
        ("z = BatchNormalization(h, w, w, w, w)", {"w": (3,)}, 3, [None, 3, None]),
        # ONNX's inference goes forward only
        ("r = Relu(h) z = MatMul(r, w)", {"w": (3, 2)}, 3, [None, None, None]),
    ],
)
def test_a_weight_states_the_size_of_what_it_multiplies(
    nodes: str, weights: dict[str, tuple[int, ...]], rank: int, expected: list[object]
) -> None:
    assert inferred(nodes, weights, rank)["h"] == expected


def test_what_is_stated_lets_inference_go_on() -> None:
    found = inferred("p = MatMul(h, w) q = Add(p, p) r = MatMul(q, q)", {"w": (3, 2)})
    assert found["p"] == [None, None, 2]
    assert found["q"] == [None, 2, 2]
    assert found["r"] == [None, 2, 2]

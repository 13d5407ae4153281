import numpy as np
import pytest

from redpebble.dialect.ops.movement import ReshapeOp
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model
from tests.frontend.import_oracle import Arrays, assert_agrees, imported, model, normal

ONE_THREE = {"one": np.array([1]), "three": np.array([3])}
ENDS = np.array([np.iinfo(np.int64).max, 2**31 - 1])

MOVES: dict[str, tuple[int, str, str, Arrays]] = {
    "Reshape, numbers": (13, "(float[2,6] x) => (float[3,4] y)", "y = Reshape(x, s)", {"s": np.array([3, 4])}),
    "Reshape, -1": (13, "(float[n,2,6] x) => (float[n,12] y)", "y = Reshape(x, s)", {"s": np.array([-1, 12])}),
    "Reshape, -1 behind": (7, "(float[n,2,6] x) => (float[n,12] y)", "y = Reshape(x, s)", {"s": np.array([0, -1])}),
    "Reshape, 0 and 0": (
        13,
        "(float[n,m,6] x) => (float[n,m,2,3] y)",
        "y = Reshape(x, s)",
        {"s": np.array([0, 0, 2, -1])},
    ),
    "Reshape, half": (13, "(float[n,4,6] x) => (float[*] y)", "y = Reshape(x, s)", {"s": np.array([-1, 12])}),
    "Reshape, to scalar": (13, "(float[1,1] x) => (float y)", "y = Reshape(x, s)", {"s": np.array([], np.int64)}),
    "Reshape, allowzero": (
        14,
        "(float[0,4] x) => (float[4,0] y)",
        "y = Reshape<allowzero=1>(x, s)",
        {"s": np.array([4, 0])},
    ),
    "Flatten": (13, "(float[n,2,3] x) => (float[n,6] y)", "y = Flatten(x)", {}),
    "Flatten, axis 0": (9, "(float[2,3] x) => (float[1,6] y)", "y = Flatten<axis=0>(x)", {}),
    "Flatten, axis 2": (13, "(float[n,2,3] x) => (float[m,3] y)", "y = Flatten<axis=2>(x)", {}),
    "Flatten, axis -1": (11, "(float[n,2,3] x) => (float[m,3] y)", "y = Flatten<axis=-1>(x)", {}),
    "Flatten, behind": (13, "(float[n,2,3] x) => (float[m,1] y)", "y = Flatten<axis=3>(x)", {}),
    "Squeeze, attribute": (11, "(float[n,1,3,1] x) => (float[n,3] y)", "y = Squeeze<axes=[1,-1]>(x)", {}),
    "Squeeze, input": (13, "(float[n,1,3,1] x) => (float[n,3] y)", "y = Squeeze(x, s)", {"s": np.array([1, 3])}),
    "Squeeze, all": (13, "(float[2,1,3,1] x) => (float[2,3] y)", "y = Squeeze(x)", {}),
    "Unsqueeze, attribute": (11, "(float[n,3] x) => (float[1,n,3,1] y)", "y = Unsqueeze<axes=[0,3]>(x)", {}),
    "Unsqueeze, input": (13, "(float[n,3] x) => (float[n,1,3,1] y)", "y = Unsqueeze(x, s)", {"s": np.array([-1, 1])}),
    "Transpose": (13, "(float[n,2,3] x) => (float[3,2,n] y)", "y = Transpose(x)", {}),
    "Transpose, perm": (7, "(float[n,2,3] x) => (float[2,n,3] y)", "y = Transpose<perm=[1,0,2]>(x)", {}),
    "Concat, last": (13, "(float[n,2] x, float[n,3] z) => (float[n,8] y)", "y = Concat<axis=-1>(x, z, z)", {}),
    "Concat, first": (7, "(float[2,n] x, float[1,n] z) => (float[3,n] y)", "y = Concat<axis=0>(x, z)", {}),
    "Concat, constant": (13, "(float[3,2] x) => (float[3,4] y)", "y = Concat<axis=1>(x, c)", {"c": normal(3, 2)}),
    "Concat, one": (13, "(float[n,2] x) => (float[n,2] y)", "y = Concat<axis=0>(x)", {}),
    "Expand": (13, "(float[n,1,3] x) => (float[n,4,3] y)", "y = Expand(x, s)", {"s": np.array([1, 4, 1])}),
    "Expand, new axes": (8, "(float[n,3] x) => (float[2,2,n,3] y)", "y = Expand(x, s)", {"s": np.array([2, 2, 1, 3])}),
    "Expand, nothing": (13, "(float[n,3] x) => (float[n,3] y)", "s = Shape(x) y = Expand(x, s)", {}),
    "Slice, middle": (13, "(float[n,5] x) => (float[n,2] y)", "y = Slice(x, one, three, one)", ONE_THREE),
    "Slice, front": (
        13,
        "(float[n,5] x) => (float[n,4] y)",
        "y = Slice(x, a, b, c)",
        {"a": np.array([0]), "b": np.array([-1]), "c": np.array([-1])},
    ),
    "Slice, all": (11, "(float[n,5] x) => (float[n,5] y)", "y = Slice(x, a, b)", {"a": np.zeros(2, int), "b": ENDS}),
    "Slice, all of a free axis": (
        11,
        "(float[n,5] x) => (float[n,5] y)",
        "y = Slice(x, a, b)",
        {"a": np.zeros(2, int), "b": ENDS[::-1]},
    ),
    "Slice, two axes": (
        13,
        "(float[3,5] x) => (float[1,2] y)",
        "y = Slice(x, a, b)",
        {"a": np.array([2, -4]), "b": np.array([9, 3])},
    ),
    "Slice, attributes": (9, "(float[n,5] x) => (float[n,3] y)", "y = Slice<axes=[1],starts=[2],ends=[99]>(x)", {}),
    "Slice, a half": (
        13,
        "(float[n,6] x) => (float[n,3] y)",
        "s = Shape(x) w = Gather(s, one) h = Div(w, two) y = Slice(x, zero, h, one)",
        {"one": np.array([1]), "two": np.array([2]), "zero": np.array([0])},
    ),
    "Slice, every second": (
        13,
        "(float[n,7,3] x) => (float[n,3,2] y)",
        "y = Slice(x, a, b, c, d)",
        {"a": np.array([1, -1]), "b": np.array([9, -9]), "c": np.array([1, 2]), "d": np.array([2, -2])},
    ),
    "Gather, one": (13, "(float[n,5,2] x) => (float[n,2] y)", "y = Gather<axis=1>(x, last)", {"last": np.array(-1)}),
    "Slice, nothing": (
        13,
        "(float[n,3,4] x) => (float[n,3,4] y)",
        "none = Slice(x, end, end, axis) y = Concat<axis=2>(x, none)",
        {"end": np.array([4]), "axis": np.array([2])},
    ),
    "Gather, unknown": (13, "(float[n,m,2] x) => (float[n,2] y)", "y = Gather<axis=1>(x, z)", {"z": np.array(0)}),
    "Gather, unknown end": (13, "(float[n,m,2] x) => (float[n,2] y)", "y = Gather<axis=1>(x, z)", {"z": np.array(-1)}),
    "Gather, several": (
        13,
        "(float[n,5,2] x) => (float[n,4,2] y)",
        "y = Gather<axis=1>(x, places)",
        {"places": np.array([3, 0, -1, 3])},
    ),
    "Gather, all": (13, "(float[n,2] x) => (float[n,2] y)", "y = Gather<axis=1>(x, p)", {"p": np.array([0, 1])}),
    "GatherND": (
        13,
        "(float[5,n] x) => (float[3,n] y)",
        "y = GatherND(x, places)",
        {"places": np.array([[3], [0], [-1]])},
    ),
    "Gather, only": (13, "(float[n,1,2] x) => (float[n,2] y)", "y = Gather<axis=1>(x, z)", {"z": np.array(0)}),
    "Split, attribute": (
        11,
        "(float[n,5] x) => (float[n,2] y, float[n,3] z)",
        "y, z = Split<axis=1, split=[2,3]>(x)",
        {},
    ),
    "Split, equal": (11, "(float[4,n] x) => (float[2,n] y, float[2,n] z)", "y, z = Split(x)", {}),
    "Split, input": (
        13,
        "(float[n,5] x) => (float[n,2] y, float[n,3] z)",
        "y, z = Split<axis=-1>(x, s)",
        {"s": np.array([2, 3])},
    ),
    "Split, uneven": (
        18,
        "(float[n,5] x) => (float[n,3] y, float[n,2] z)",
        "y, z = Split<axis=1, num_outputs=2>(x)",
        {},
    ),
    "Identity": (13, "(float[n,5] x) => (float[n,5] y)", "y = Identity(x)", {}),
    "Cast to float": (13, "(float[n,5] x) => (float[n,5] y)", "y = Cast<to=1>(x)", {}),
    "Dropout, old": (7, "(float[n,5] x) => (float[n,5] y)", "y = Dropout<ratio=0.9>(x)", {}),
    "Dropout, unused mask": (
        13,
        "(float[n,5] x) => (float[n,5] y)",
        "y, mask = Dropout(x, r)",
        {"r": np.array(0.9, np.float32)},
    ),
    "Dropout, not training": (
        13,
        "(float[n,5] x) => (float[n,5] y)",
        "y = Dropout(x, r, t)",
        {"r": np.array(0.9, np.float32), "t": np.array(False)},
    ),
}

COMPUTED_SHAPES: dict[str, tuple[int, str, str, str]] = {
    "gathered axes": (
        13,
        "(float[batch,seq,12] x) => (float[batch,seq,4,3] y)",
        """s = Shape(x) b = Gather(s, zero) t = Gather(s, one) b1 = Unsqueeze(b, first) t1 = Unsqueeze(t, first)
        target = Concat<axis=0>(b1, t1, four, open) y = Reshape(x, target)""",
        "[d0, d1, 4, 3]",
    ),
    "product of axes": (
        13,
        "(float[batch,seq,12] x) => (float[rows,12] y)",
        """s = Shape(x) b = Gather(s, zero) t = Gather(s, one) r = Mul(b, t) r1 = Unsqueeze(r, first)
        target = Concat<axis=0>(r1, twelve) y = Reshape(x, target)""",
        "[_, 12]",
    ),
    "slice": (
        13,
        "(float[batch,seq,12] x) => (float[batch,seq,3,4] y)",
        "s = Shape(x) lead = Slice(s, first, two) target = Concat<axis=0>(lead, open, four) y = Reshape(x, target)",
        "[d0, d1, 3, 4]",
    ),
    "slice by attributes": (
        9,
        "(float[batch,seq,12] x) => (float[batch,seq,3,4] y)",
        """s = Shape(x) lead = Slice<starts=[0], ends=[-1]>(s) target = Concat<axis=0>(lead, open, four)
        y = Reshape(x, target)""",
        "[d0, d1, 3, 4]",
    ),
    "shape of another value": (
        15,
        "(float[batch,4] x, float[batch,2,2] z) => (float[batch,2,2] y)",
        "s = Shape<start=0, end=3>(z) y = Reshape(x, s)",
        "[d0, 2, 2]",
    ),
    "quotient": (
        13,
        "(float[batch,12] x) => (float[batch,3,4] y)",
        """s = Shape(x) w = Slice(s, i1, two) h = Div(w, four) b = Slice(s, first, i1)
        target = Concat<axis=0>(b, h, open) y = Reshape(x, target)""",
        "[d0, 3, 4]",
    ),
    "cast and squeeze": (
        13,
        "(float[batch,2,6] x) => (float[batch,12] y)",
        """s = Shape(x) b = Slice(s, first, i1) f = Cast<to=6>(b) c = Squeeze(f, first) d = Cast<to=7>(c)
        e = Unsqueeze(d, first) target = Concat<axis=0>(e, open) y = Reshape(x, target)""",
        "[d0, 12]",
    ),
    "sum of numbers": (
        13,
        "(float[batch,2,6] x) => (float[batch,12] y)",
        """s = Shape(x) b = Slice(s, first, i1) m = Slice(s, i1, two) p = Add(m, ten) q = Sub(p, ten) r = Mul(q, six)
        target = Concat<axis=0>(b, r) y = Reshape(x, target)""",
        "[d0, 12]",
    ),
    "open sizes replaced": (
        13,
        "(float[batch,12] x) => (float[batch,12,1] y)",
        """s = Shape(x) b = Slice(s, first, i1) t = Concat<axis=0>(b, open, i1) l = Shape(t)
        ones = ConstantOfShape<value = int64[1] {12}>(l) e = Equal(t, open) target = Where(e, ones, t)
        y = Reshape(x, target)""",
        "[d0, 12, 1]",
    ),
    "size": (13, "(float[batch,2,6] x) => (float[all] y)", "s = Size(x) t = Reshape(s, open) y = Reshape(x, t)", "[_]"),
}

INTEGERS: Arrays = {
    "zero": np.array(0),
    "one": np.array(1),
    "first": np.array([0]),
    "i1": np.array([1]),
    "two": np.array([2]),
    "four": np.array([4]),
    "six": np.array([6]),
    "ten": np.array([10]),
    "twelve": np.array([12]),
    "open": np.array([-1]),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_movement_agrees(name: str) -> None:
    opset, signature, nodes, weights = MOVES[name]
    proto = model(signature.replace("float[*]", "float[p,q]"), nodes, opset=opset, weights=weights)
    assert_agrees(proto)


@pytest.mark.parametrize("name", COMPUTED_SHAPES)
def test_a_shape_computed_from_shapes_becomes_a_target(name: str) -> None:
    opset, signature, nodes, target = COMPUTED_SHAPES[name]
    proto = model(signature, nodes, opset=opset, weights=INTEGERS)
    assert_agrees(proto)
    (reshape,) = (op for op in imported(proto).walk() if isinstance(op, ReshapeOp))
    assert reshape.target.text == target


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            "Reshape(x, target)",
            "expected a shape that follows from the shapes of inputs, got one computed from values",
        ),
        ("Squeeze(x)", "expected axes, or known sizes, got no axes for an input n x 3 x 4"),
        ("Squeeze(x, first)", "expected size 1 of axis 0 to squeeze, got n"),
        ("Split(x)", "expected a known size of axis 0 of the input, got n"),
        (
            "Slice(x, target, target)",
            "expected bounds that follow from known sizes, got bounds computed from values",
        ),
        ("Slice(x, first, one)", "expected a known size of axis 0, which is cut, got n x 3 x 4"),
        ("Slice(x, first, first, one)", "expected something to be left of axis 1 of n x 3 x 4, got nothing"),
        ("Slice(x, first, first, one, two)", "expected 1 to 1024 places of axis 1, got 0"),
        ("Gather(x, target)", "expected one constant index, got computed ones, or several"),
        ("Gather(x, one)", "expected a known size of axis 0, which is indexed, got n x 3 x 4"),
        ("Cast<to=11>(x)", "expected to=float, got double"),
        ("Dropout(x, ratio, training)", "expected inference, got input training_mode that is not constantly false"),
    ],
)
def test_a_movement_that_is_not_covered_is_refused(node: str, message: str) -> None:
    weights = {
        "first": np.array([0]),
        "one": np.array([1]),
        "two": np.array([2]),
        "number": np.array(1),
        "ratio": np.array(0.5, np.float32),
        "training": np.array(True),
    }
    result = "double[a,b]" if node.startswith("Cast") else "float"
    proto = model(f"(float[n,3,4] x, int64[2] target) => ({result} y)", f"[op] y = {node}", weights=weights)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedModelError) as refusal:
        import_model(proto, foreign="refuse")
    operator = node.partition("(")[0].partition("<")[0]
    assert str(refusal.value) == f"node 'op': operator {operator} (ai.onnx 21): {message}"


def test_a_declared_shape_stands_in_for_one_that_is_computed_from_values() -> None:
    graph = "rows = ArgMax<axis=2, keepdims=0>(x) target = ArgMax<axis=1, keepdims=0>(rows) y = Reshape(x, target)"
    proto = model("(float[n,3,4] x) => (float[n,12] y)", graph)
    (reshape,) = (op for op in imported(proto).walk() if isinstance(op, ReshapeOp))
    assert reshape.target.text == "[d0, 12]"


def test_an_input_that_no_code_could_take_is_refused_even_where_nothing_needs_it() -> None:
    proto = model("(float[n,3,4] x, int64[2] target) => (float[n,12] y)", "y = Reshape(x, target)")
    with pytest.raises(UnsupportedModelError) as refusal:
        imported(proto)
    assert str(refusal.value) == "input target: expected a float tensor, got tensor(int64)"

"""Lists that ONNX's inference may follow: none for which it would take all memory, also in sum."""

from collections.abc import Sequence

import onnx
import pytest
from onnx import TensorProto, helper

from redpebble.frontend.folding.inferred_values import MOST_ENTRIES, may_follow_values


def follows(nodes: Sequence[onnx.NodeProto], shape: Sequence[int | str], kind: int = TensorProto.INT64) -> bool:
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("c0", kind, shape)], [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return may_follow_values(onnx.shape_inference.infer_shapes(model, data_prop=False).graph)


def cast(name: str, count: int = 1) -> list[onnx.NodeProto]:
    names = [name, *(f"cast{i}" for i in range(count))]
    return [helper.make_node("Cast", [names[i]], [names[i + 1]], to=TensorProto.INT64) for i in range(count)]


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.FLOAT])
def test_lists_that_a_model_is_given_are_followed_up_to_their_limit(kind: int) -> None:
    for length, expected in ((MOST_ENTRIES // 2, True), (MOST_ENTRIES, False), (1 << 40, False)):
        assert follows(cast("c0"), [length], kind) == expected
    assert follows(cast("c0"), [MOST_ENTRIES, 1], kind), "no list"


def test_all_lists_together_are_followed_up_to_their_limit() -> None:
    for count, expected in ((31, True), (32, False)):
        assert follows(cast("c0", count), [MOST_ENTRIES // 64 + 1]) == expected


def test_lists_that_double_are_followed_up_to_their_limit() -> None:
    for steps, expected in ((15, True), (23, False)):
        nodes = [helper.make_node("Concat", [f"c{i}"] * 2, [f"c{i + 1}"], axis=0) for i in range(steps)]
        assert follows(nodes, [2]) == expected


MAKERS = {
    "Reshape": helper.make_node("Reshape", ["c0", "n"], ["long"]),
    "Expand": helper.make_node("Expand", ["one", "n"], ["long"]),
    "Tile": helper.make_node("Tile", ["one", "n"], ["long"]),
    "ConstantOfShape": helper.make_node("ConstantOfShape", ["n"], ["long"]),
    "Range": helper.make_node("Range", ["zero", "scalar", "step"], ["long"]),
    "Squeeze": helper.make_node("Squeeze", ["wide", "none"], ["long"]),
}


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("maker", MAKERS)
def test_a_list_that_becomes_long_inside_the_graph_is_not_followed(maker: str, *, computed: bool) -> None:
    """Also where its length is the product of two numbers, which inference alone finds."""
    for length, expected in ((1 << 9, True), (1 << 15, False)):
        factors = [[length], [length]] if computed else [[length**2], [1]]
        nodes = [
            *(
                helper.make_node("Constant", [], [name], value_ints=ints)
                for name, ints in zip("ab", factors, strict=True)
            ),
            *(
                helper.make_node("Constant", [], [name], value_int=number)
                for name, number in (("zero", 0), ("step", 1))
            ),
            helper.make_node("Constant", [], ["one"], value_ints=[1]),
            helper.make_node("Constant", [], ["none"], value_ints=[0]),
            helper.make_node("Mul", ["a", "b"], ["n"])
            if computed
            else helper.make_node("Constant", [], ["n"], value_ints=factors[0]),
            helper.make_node("Squeeze", ["n"], ["scalar"]),
            helper.make_node("Concat", ["one", "n"], ["shape"], axis=0),
            helper.make_node("Expand", ["one", "shape"], ["wide"]),
            MAKERS[maker],
            *cast("long"),
        ]
        assert follows(nodes, ["k", 4]) == expected


@pytest.mark.parametrize("maker", ["Reshape", "Squeeze"])
def test_a_list_that_axes_are_merged_into_is_as_long_as_their_product(maker: str) -> None:
    """Though the size -1 is computed, so that inference alone finds it; sizes named by inputs are never found."""
    computed = [
        *(
            helper.make_node("Constant", [], [name], value_ints=[number])
            for name, number in (("minus", -1), ("one", 1), ("last", 1))
        ),
        helper.make_node("Mul", ["minus", "one"], ["n"]),
        helper.make_node("Concat", ["n", "one"], ["shape"], axis=0),
        helper.make_node("Reshape", ["c0", "shape" if maker == "Squeeze" else "n"], ["wide"]),
        *([helper.make_node("Squeeze", ["wide", "last"], ["long"])] if maker == "Squeeze" else []),
        *cast("long" if maker == "Squeeze" else "wide"),
    ]
    for shape, expected in (([1 << 10, 1 << 10], True), ([1 << 12, 1 << 12], False), (["n", 1 << 10, 1 << 10], True)):
        assert follows(computed, shape) == expected

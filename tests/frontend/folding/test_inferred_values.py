"""Lists that ONNX's inference may follow: none for which it would take all memory."""

import pytest
from onnx import TensorProto, helper

from redpebble.frontend.folding.inferred_values import LONGEST, LONGEST_BIAS, may_follow_values


@pytest.mark.parametrize(("kind", "longest"), [(TensorProto.INT64, LONGEST), (TensorProto.FLOAT, LONGEST_BIAS)])
def test_lists_that_a_model_is_given_are_followed_up_to_their_limit(kind: int, longest: int) -> None:
    for length, follows in ((longest, True), (longest + 1, False), (1 << 40, False)):
        nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT64)]
        ports = [helper.make_tensor_value_info(name, kind, [length]) for name in ("x", "y")]
        assert may_follow_values(helper.make_graph(nodes, "g", ports[:1], ports[1:])) == follows


def test_lists_that_double_are_followed_up_to_their_limit() -> None:
    for steps, follows in ((15, True), (17, False)):
        nodes = [helper.make_node("Concat", [f"c{i}"] * 2, [f"c{i + 1}"], axis=0) for i in range(steps)]
        begin = helper.make_tensor_value_info("c0", TensorProto.INT64, [2])
        assert may_follow_values(helper.make_graph(nodes, "g", [begin], [])) == follows

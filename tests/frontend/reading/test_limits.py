"""Files of a few hundred bytes that ask for all memory or all time, or lie about what they hold: one line each."""

from itertools import pairwise
from typing import Literal

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import redpebble
from redpebble.frontend.errors import InvalidModelError, ModelError, UnsupportedModelError
from redpebble.frontend.import_model import LEAST_VALUES, MOST_NODES, MOST_WITHOUT_LAYERS, import_model
from redpebble.frontend.limits import MADE_NODES
from tests.frontend.import_oracle import Arrays, model, normal, session

ONE = np.ones(1, np.float32)
ANY = "(float[n,4] x) => (float y)"


def sparse(shape: list[int], places: list[int]) -> onnx.ModelProto:
    proto = model(ANY, "y = MatMul(x, w)")
    parts = numpy_helper.from_array(normal(len(places)), "w"), numpy_helper.from_array(np.array(places), "w_indices")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(*parts, shape))
    return proto


def folded(nodes: str, **weights: np.ndarray) -> onnx.ModelProto:
    arrays: Arrays = {name: np.asarray(array) for name, array in weights.items()}
    return model(ANY, nodes, opset=17, weights=arrays)


SCATTERED = "f = ScatterElements<axis = 0>(z, ii, uu) w = Reshape(f, r) y = MatMul(x, w)"
SQUARE = {"s": np.array([16]), "r": np.array([4, 4])}

TOO_LARGE = {
    "sparse, many columns": (sparse([4, 1 << 40], [0, 1]), "sizes up to 67108864, got shape [4, 1099511627776]"),
    "sparse of rank 3": (sparse([1 << 20, 1 << 20, 4], [0, 1]), "expected at most 1073741952 bytes for the 8 it holds"),
    "entries made of one": (
        folded(
            f"z = ConstantOfShape(s) ii = Expand(i, e) uu = Expand(u, e) {SCATTERED}",
            i=np.array([9]), u=ONE, e=np.array([1 << 33]), **SQUARE,
        ),
        "expected at most 67108864 entries, got 8589934592 of 1",
    ),
    "zeros": (folded("w = ConstantOfShape(s) y = MatMul(x, w)", s=np.array([4, 1 << 40])), "ConstantOfShape"),
    "ones": (folded("w = ConstantOfShape<value = float[1] {1.0}>(s) y = MatMul(x, w)", s=np.array([4, 1 << 30])), "C"),
    "tiles": (folded("w = Tile(v, t) y = MatMul(x, w)", v=normal(4, 4), t=np.array([1, 1 << 30])), "Tile"),
    "range": (
        folded(
            "v = Range(a, b, c) w = Cast<to = 1>(v) o = ReduceSum<keepdims = 0>(w) y = Add(x, o)",
            a=np.array(0), b=np.array(600_000_000), c=np.array(1),
        ),
        "Range",
    ),
    "outer product": (
        folded(
            "v = MatMul(a, b) w = ReduceSum<keepdims = 0>(v) y = Add(x, w)",
            a=np.ones((100_000, 1), np.float32), b=np.ones((1, 100_000), np.float32),
        ),
        "expected at most 67108864 entries of a product of constants, got 10000000000",
    ),
    "slow": (
        folded('w = Einsum<equation = "a,b,c,d->">(a, a, a, a) y = Add(x, w)', a=np.ones(2000, np.float32)),
        "Einsum",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_would_take_all_memory_is_refused(name: str) -> None:
    proto, message = TOO_LARGE[name]
    with pytest.raises(ModelError) as refusal:
        import_model(proto, foreign="refuse")
    assert message in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


DOUBLED = folded(
    "c0 = Shape(x) " + "".join(f"c{i + 1} = Concat<axis = 0>(c{i}, c{i}) " for i in range(60)) + "y = Reshape(x, c60)"
)
GIVEN = model(f"(int64[{1 << 40}] x) => (int64[k] y)", "c = Cast<to = 7>(x) y = Concat<axis = 0>(c, c)")
STAYING = {name: TOO_LARGE[name][0] for name in ("zeros", "ones", "tiles", "range", "slow")} | {
    "doubled": DOUBLED,
    "given": GIVEN,
}


@pytest.mark.parametrize("name", STAYING)
def test_what_would_take_all_memory_stays_as_it_is(name: str) -> None:
    proto = STAYING[name]
    assert len(proto.graph.node) >= len(list(redpebble.optimize(proto).model.graph)) > 1


def test_entries_that_double_at_each_step_are_looked_at_once() -> None:
    nodes = "".join(f"c{i + 1} = Expand(c{i}, c{i}) " for i in range(40))
    scattered = SCATTERED.replace("ii", "c40")
    proto = folded(f"{nodes} z = ConstantOfShape(s) {scattered}", c0=np.array([1]), uu=ONE, **SQUARE)
    import_model(proto, foreign="refuse")


def test_entries_behind_a_thousand_operators_are_folded() -> None:
    nodes = "".join(f"c{i + 1} = Cast<to = 7>(c{i}) " for i in range(1000))
    scattered = SCATTERED.replace("ii", "c1000")
    proto = folded(f"{nodes} z = ConstantOfShape(s) {scattered}", c0=np.array([1]), uu=ONE, **SQUARE)
    import_model(proto, foreign="refuse")


def functions(count: int, calls: int) -> onnx.ModelProto:
    """Functions of which each calls the next one, once or several times."""
    proto = model("(float[n,4] x) => (float[n,4] y)", "y = Identity(x)")
    proto.graph.node[0].CopyFrom(helper.make_node("f0", ["x"], ["y"], domain="own"))
    proto.opset_import.append(helper.make_opsetid("own", 1))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    for number in range(count):
        called = f"f{number + 1}" if number + 1 < count else "Relu"
        names = ["a", *(f"t{i}" for i in range(calls - 1)), "b"]
        domain = "own" if called != "Relu" else ""
        body = [helper.make_node(called, [one], [other], domain=domain) for one, other in pairwise(names)]
        proto.functions.append(helper.make_function("own", f"f{number}", ["a"], ["b"], body, opsets))
    return proto


def test_functions_that_call_each_other_twice_are_not_written_out() -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"at most 51008 nodes for the 63 .* got 2147483648 with functions written out"
    ):
        import_model(functions(31, 2), foreign="refuse")
    assert [node.op_type for node in redpebble.optimize(functions(31, 2)).model.graph] == ["f0"]


@pytest.mark.slow
def test_functions_that_onnxruntime_could_not_write_out_make_no_session() -> None:
    with pytest.raises(UnsupportedModelError, match=r"at most 1000000 nodes of model-local functions, got 2147483648$"):
        redpebble.session(functions(31, 2))


@pytest.mark.slow
def test_a_long_chain_of_functions_is_written_out_or_stays() -> None:
    import_model(functions(500, 1), foreign="refuse")
    assert [node.op_type for node in redpebble.optimize(functions(500, 1)).model.graph] == ["f0"]


def test_functions_in_a_circle_are_refused_where_they_would_stay() -> None:
    proto = functions(1, 1)
    proto.functions[0].node[0].CopyFrom(helper.make_node("f0", ["a"], ["b"], domain="own"))
    with pytest.raises(InvalidModelError, match=r"call each other in a circle: own::f0 calls own::f0$"):
        redpebble.optimize(proto)


def test_inputs_have_names_of_their_own() -> None:
    for name, message in (("x", "input 'x' is defined twice"), ("", "input 1 has no name")):
        proto = model("(float[n,4] x) => (float[n,4] y)", "y = Relu(x)")
        proto.graph.input.add(name=name)
        with pytest.raises(InvalidModelError, match=f"^{message}$"):
            import_model(proto, foreign="keep")


def test_initializers_have_names_of_their_own() -> None:
    proto = model("(float[n,4] x) => (float[n,4] y)", "y = MatMul(x, w)", weights={"w": normal(4, 4)})
    proto.graph.initializer.append(proto.graph.initializer[0])
    with pytest.raises(InvalidModelError, match=r"^initializer 'w' is defined twice$"):
        import_model(proto, foreign="keep")


def test_an_attribute_of_another_type_is_named_with_its_node() -> None:
    proto = model("(float[n,4] x) => (float[n,4] y)", 'y = Softmax<axis = "one">(x)')
    with pytest.raises(InvalidModelError, match=r"^node 0: operator Softmax \(ai.onnx 21\): Attribute 'axis' is not"):
        import_model(proto, foreign="keep")


@pytest.mark.parametrize(
    "operator", ["Tanh", *(pytest.param(operator, marks=pytest.mark.slow) for operator in ("Identity", "Add"))]
)
def test_a_deep_graph_needs_no_recursion(operator: str) -> None:
    redpebble.optimize(chain(operator, 1100, begin="MatMul(x, w)"))


def chain(operator: str, count: int, *, begin: str) -> onnx.ModelProto:
    """A graph in which each node reads the one before."""
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    proto = model("(float[n,4] x) => (float[n,4] y)", f"v = {begin} y = Identity(v)", weights={"w": normal(4, 4)})
    del proto.graph.node[1:]
    proto.graph.node[0].output[0] = "v0"
    for one, other in pairwise(names[1:]):
        proto.graph.node.append(helper.make_node(operator, [one, "x"] if operator == "Add" else [one], [other]))
    return proto


def assert_is_left(proto: onnx.ModelProto, target: Literal["portable", "ort"], obstacle: str) -> None:
    result = redpebble.optimize(proto, target=target)
    assert result.obstacle == obstacle
    assert len(result.model.graph) == len(proto.graph.node)
    assert not result.modified


def test_many_nodes_without_a_layer_are_left_as_they_are() -> None:
    count = MOST_WITHOUT_LAYERS + 1
    for target in ("portable", "ort"):
        assert_is_left(chain("Tanh", count, begin="Tanh(x)"), target, f"none of the graph's {count} nodes is a layer")


def test_many_nodes_with_small_layers_are_left_as_they_are() -> None:
    count = MOST_WITHOUT_LAYERS + 1
    obstacle = f"expected {LEAST_VALUES} weights a node of the graph, got 16 for {count} nodes"
    assert_is_left(chain("Tanh", count, begin="MatMul(x, w)"), "ort", obstacle)


@pytest.mark.slow
def test_many_nodes_with_a_large_layer_are_looked_through() -> None:
    proto = chain("Tanh", MOST_WITHOUT_LAYERS + 1, begin="MatMul(x, w)")
    weight = np.zeros((4, LEAST_VALUES * MOST_WITHOUT_LAYERS), np.float32)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = weight.shape[1]
    assert len(redpebble.optimize(proto).report) == 1


@pytest.mark.slow
def test_too_many_nodes_are_left_as_they_are() -> None:
    count = MOST_NODES + 1
    obstacle = f"expected a graph of up to {MOST_NODES} nodes, got {count}"
    assert_is_left(chain("Tanh", count, begin="MatMul(x, w)"), "ort", obstacle)


@pytest.mark.slow
def test_more_nodes_than_functions_may_make_are_compiled_where_the_file_holds_them() -> None:
    x = normal(3, 4)
    network = redpebble.compile(chain("Neg", MADE_NODES + 2, begin="Tanh(x)"), cache=False)
    np.testing.assert_allclose(network.run(None, {"x": x})[0], -np.tanh(x), 1e-5)


def test_a_long_chain_of_concats_is_right() -> None:
    joined = " ".join(f"v{i + 1} = Concat<axis = 1>({f'v{i}' if i else 'x'}, x)" for i in range(40))
    proto = model("(float[n,1] x) => (float[n,41] y)", f"{joined} y = Identity(v40)")
    x = normal(3, 1)
    (found,) = redpebble.compile(proto, cache=False).run(None, {"x": x})
    np.testing.assert_array_equal(found, np.repeat(x, 41, 1))


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["Identity", "Tanh", "Add"])
@pytest.mark.parametrize("begin", ["Tanh(x)", "MatMul(x, w)"])
def test_a_hundred_thousand_nodes_are_passed_through(operator: str, begin: str) -> None:
    assert len(redpebble.optimize(chain(operator, 100_000, begin=begin)).model.graph) == 100_000


@pytest.mark.slow
def test_a_session_runs_a_hundred_thousand_nodes() -> None:
    x = normal(3, 4)
    (found,) = redpebble.session(chain("Neg", 100_000, begin="Tanh(x)")).run(None, {"x": x})
    np.testing.assert_allclose(found, -np.tanh(x), 1e-5)


@pytest.mark.parametrize("opset", [7, 8])
def test_a_gelu_that_older_opsets_cannot_write_stays(opset: int) -> None:
    proto = model("(float[n,4] x) => (float[n,4] y)", "y = com.microsoft.Gelu(x)", opset=opset, ir_version=4)
    assert [node.op_type for node in redpebble.optimize(proto).model.graph] == ["Gelu"]
    x = normal(3, 4)
    (ours,), (theirs,) = redpebble.compile(proto, cache=False).run(None, {"x": x}), session(proto).run(None, {"x": x})
    np.testing.assert_allclose(ours, theirs, 1e-5, 1e-6)

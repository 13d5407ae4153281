"""Layers whose neurons fall into parts, of any order and size, give in groups what onnxruntime gives for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from xdsl.transforms.canonicalize import CanonicalizePass

import redpebble
from redpebble.dialect.ops.grouped_layers import GroupedLayersOp
from redpebble.export.export_model import export_model
from redpebble.frontend.import_model import import_model
from redpebble.models.zoo import build
from redpebble.options import Options
from redpebble.passes.deployment.split_components import SplitComponents
from redpebble.passes.runner import context, run_passes
from redpebble.passes.simplify.fuse_layers import FuseLayers
from redpebble.pipeline import passes_of
from redpebble.verification.oracle import Oracle
from tests.end_to_end.agreement import assert_close

Floats = NDArray[np.float32]

BATCHES = (0, 1, 7, 17)
ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "Softplus", "")


@dataclass(frozen=True)
class Parts:
    """A chain of layers; `level_parts[l][n]` is the part that neuron n of level l belongs to."""

    level_parts: tuple[tuple[int, ...], ...]
    opset: int
    rank: int
    seed: int
    density: float = 0.8

    def weights(self) -> list[Floats]:
        """[inputs, outputs] of each layer, connections inside of parts alone."""
        rng = np.random.default_rng(self.seed)
        found: list[Floats] = []
        for before, after in zip(self.level_parts, self.level_parts[1:], strict=False):
            together = np.equal.outer(np.array(before, dtype=np.int64), np.array(after, dtype=np.int64))
            kept = rng.random(together.shape) < np.where(together, self.density, 0.0)
            found.append(np.where(kept, rng.standard_normal(together.shape), 0.0).astype(np.float32))
        return found

    def model(self) -> onnx.ModelProto:
        rng = np.random.default_rng(self.seed + 1)
        nodes: list[onnx.NodeProto] = []
        constants: list[onnx.TensorProto] = []
        value = "x"
        for number, weight in enumerate(self.weights()):
            bias = rng.standard_normal(len(weight.T)).astype(np.float32)
            transposed = self.rank == 2 and bool(rng.integers(2))
            constants.append(
                numpy_helper.from_array(np.ascontiguousarray(weight.T if transposed else weight), f"w{number}")
            )
            constants.append(numpy_helper.from_array(bias, f"b{number}"))
            names = [value, f"w{number}", f"b{number}"]
            if transposed:
                nodes.append(helper.make_node("Gemm", names, [f"z{number}"], f"fc{number}", transB=1))
            else:
                nodes.append(helper.make_node("MatMul", names[:2], [f"p{number}"], f"fc{number}"))
                nodes.append(helper.make_node("Add", [f"p{number}", f"b{number}"], [f"z{number}"]))
            value = f"z{number}"
            if activation := ACTIVATIONS[rng.integers(len(ACTIVATIONS))]:
                nodes.append(helper.make_node(activation, [value], [f"a{number}"]))
                value = f"a{number}"
        nodes.append(helper.make_node("Identity", [value], ["y"]))
        ends = (("x", self.level_parts[0]), ("y", self.level_parts[-1]))
        leading = ["batch", 3][: self.rank - 1]
        described = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [*leading, len(level)]) for name, level in ends
        ]
        graph = helper.make_graph(nodes, "parts", described[:1], described[1:], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def feed(self, batch: int) -> Floats:
        shape = (batch, *[3][: self.rank - 2], len(self.level_parts[0]))
        return np.random.default_rng(batch).standard_normal(shape).astype(np.float32)


levels = st.lists(st.integers(0, 3), min_size=1, max_size=12).map(tuple)
networks = st.builds(
    Parts,
    st.lists(levels, min_size=2, max_size=4).map(tuple),
    st.sampled_from([7, 11, 13, 17, 21]),
    st.sampled_from([2, 3]),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.5, 1.0]),
)


def split(model: onnx.ModelProto, *, simplified: bool) -> tuple[onnx.ModelProto, list[GroupedLayersOp]]:
    """The model with every layer in groups that can be, and the ops that it went through."""
    imported = import_model(model, foreign="keep")
    passes = passes_of(Options(), until="simplify") if simplified else (CanonicalizePass(), FuseLayers())
    run_passes(context(), imported.module, [*passes, SplitComponents(least_gain=0.0)])
    found = [op for op in imported.module.walk() if isinstance(op, GroupedLayersOp)]
    return ir.to_proto(export_model(imported.module, imported.model)), found


def answers(model: onnx.ModelProto, x: Floats) -> Sequence[NDArray[Any]]:
    return Oracle(ir.from_proto(model)).run({"x": x})


def check(network: Parts, *, simplified: bool) -> None:
    model = network.model()
    after, _ = split(model, simplified=simplified)
    for batch in BATCHES:
        assert_close(answers(after, network.feed(batch)), answers(model, network.feed(batch)), str(network))


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(network=networks, simplified=st.booleans())
def test_groups_compute_what_the_layers_computed(network: Parts, simplified: bool) -> None:
    check(network, simplified=simplified)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(network=networks, simplified=st.booleans())
def test_groups_compute_what_many_layers_computed(network: Parts, simplified: bool) -> None:
    check(network, simplified=simplified)


SHUFFLED = Parts(
    tuple(tuple(np.random.default_rng(level).permutation(np.repeat(np.arange(2), 16)).tolist()) for level in range(4)),
    opset=17,
    rank=2,
    seed=0,
    density=1.0,
)


def test_hidden_blocks_are_found_through_all_layers() -> None:
    after, (op,) = split(SHUFFLED.model(), simplified=True)
    assert op.reason.data.startswith("32-32-32-32 as 2 groups of 16-16-16-16;")
    convolutions = [node for node in after.graph.node if node.op_type == "Conv"]
    assert [node.name for node in convolutions] == ["fc0", "fc1", "fc2"]
    assert [node.input[1] for node in convolutions] == ["w0", "w1", "w2"]
    assert all(node.input[2] in (f"b{number}", f"fc{number}_bias") for number, node in enumerate(convolutions))
    assert not [node for node in after.graph.node if node.op_type in ("Gemm", "MatMul")]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_group(wrong: float) -> None:
    after, _ = split(SHUFFLED.model(), simplified=True)
    x = SHUFFLED.feed(7)
    clean = answers(after, x)[0]
    hit = SHUFFLED.level_parts[0][5]
    x[2, 5] = wrong
    outputs = answers(after, x)[0]
    untouched = np.ones(outputs.shape, dtype=bool)
    untouched[2] = np.array(SHUFFLED.level_parts[-1]) != hit
    np.testing.assert_array_equal(outputs[untouched], clean[untouched])


def test_layers_that_may_read_nan_from_constants_are_left_alone() -> None:
    model = SHUFFLED.model()
    weight = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weight[np.nonzero(weight)[0][0], np.nonzero(weight)[1][0]] = np.nan
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w0"))
    after, _ = split(model, simplified=True)
    np.testing.assert_array_equal(answers(after, SHUFFLED.feed(7))[0], answers(model, SHUFFLED.feed(7))[0])


def wide_blocks(rank: int = 2) -> onnx.ModelProto:
    blocks = np.repeat(np.arange(16), 32)
    levels = tuple(tuple(np.random.default_rng(seed).permutation(blocks).tolist()) for seed in range(3))
    return Parts(levels, opset=17, rank=rank, seed=1, density=1.0).model()


def test_optimize_splits_where_it_pays_and_says_so() -> None:
    result = redpebble.optimize(wide_blocks(), target="portable")
    (found,) = result.splits
    assert found.reason.startswith("512-512-512 as 16 groups of 32-32-32; predicted ")
    assert (found.name, found.layers, found.weights) == ("fc0", 2, 2 * 512 * 32)
    assert [layer.outputs for layer in result.report] == [512, 512]


@pytest.mark.parametrize("rank", [2, 3])
def test_optimizing_twice_changes_nothing_more(rank: int) -> None:
    once = ir.to_proto(redpebble.optimize(wide_blocks(rank), target="portable").model)
    twice = redpebble.optimize(once, target="portable")
    assert not twice.splits
    assert ir.to_proto(twice.model).graph == once.graph


def test_a_split_can_be_skipped() -> None:
    result = redpebble.optimize(wide_blocks(), target="portable", skip_passes=("pebble-split-components",))
    assert not result.splits
    assert {"Conv", "Transpose", "Gather"}.isdisjoint(node.op_type for node in result.model.graph)


@pytest.mark.parametrize("spec", ["ffnn(depth=3, width=60, density=0.1)", "digits", "resmlp(depth=2, width=32)"])
def test_models_without_parts_are_not_split(spec: str) -> None:
    assert not redpebble.optimize(build(spec), target="portable").splits

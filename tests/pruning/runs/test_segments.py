"""Segments one after the other compute what the model computes, also from the middle with other weights."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from redpebble.models import zoo
from redpebble.pruning.runs.hessians import layer_inputs
from redpebble.pruning.runs.segments import SegmentedModel
from redpebble.pruning.runs.traces import Trace
from redpebble.pruning.solve_layers import LayerSolver
from redpebble.pruning.solving.methods import METHODS
from redpebble.pruning.solving.structures import structure_of
from redpebble.pruning.source_model import SourceModel
from redpebble.verification.feeds import inputs_for
from redpebble.verification.oracle import Oracle
from tests.pruning.dense_networks import branched_network, samples


@pytest.mark.parametrize("spec", ["resmlp(depth=2,width=96,density=0.9)", "ffnn(depth=3,width=80,density=1.0)"])
def test_segments_compute_what_the_model_computes(spec: str) -> None:
    model = zoo.build(spec)
    source = SourceModel.read(model, ())
    feeds = [dict(inputs_for(model, 3, np.random.default_rng(seed))) for seed in range(2)]
    segmented = SegmentedModel.of(source.proto, source.layers, 1)
    outputs = Trace.start(segmented, feeds).finish(source.dense)
    oracle = Oracle(model)
    for found, batch in zip(outputs, feeds, strict=True):
        for value, expected in zip(found.values(), oracle.run(batch), strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)


def test_layers_beside_each_other_share_a_segment_and_their_inputs_are_those_of_the_model() -> None:
    source = SourceModel.read(branched_network(), ())
    assert [layer.name for layer in source.layers] == ["left", "right", "deep"]
    segmented = SegmentedModel.of(source.proto, source.layers, 1)
    names = [[layer.name for layer in segment.layers] for segment in segmented.segments]
    assert names == [[], ["left", "right"], ["deep"]]
    x = samples(100)
    trace = Trace.start(segmented, [{"x": x[:60]}, {"x": x[60:]}])
    trace.advance(source.dense)
    found = layer_inputs(source.layers[1], trace, None)
    assert found.rows == 100
    np.testing.assert_allclose(found.hessian, x.T @ x / 100, rtol=1e-4, atol=1e-5)


def test_a_branch_tries_other_weights_and_leaves_the_run_as_it_was() -> None:
    source = SourceModel.read(branched_network(), ())
    trace = Trace.start(SegmentedModel.of(source.proto, source.layers, 1), [{"x": samples(20)}])
    expected = trace.branch().finish(source.dense)
    trace.advance(source.dense)
    other = trace.branch().finish({**source.dense, "left": np.zeros((96, 96), np.float32)})
    assert not np.allclose(other[0]["y"], expected[0]["y"])
    np.testing.assert_array_equal(trace.finish(source.dense)[0]["y"], expected[0]["y"])


def test_values_are_read_by_graphs_inside_of_nodes() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        looped (float[n, 80] x, bool flag) => (float[n, 80] y) {
            h = MatMul(x, w)
            y = If (flag) <
                then_branch = a () => (float[n, 80] t) { t = Relu(h) },
                else_branch = b () => (float[n, 80] e) { e = Neg(h) }
            >
        }""")
    weight = np.random.default_rng(0).standard_normal((80, 80)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    source = SourceModel.read(ir.from_proto(model), ())
    feeds = {"x": samples(4)[:, :80].copy(), "flag": np.array(False)}
    trace = Trace.start(SegmentedModel.of(source.proto, source.layers, 1), [feeds])
    np.testing.assert_allclose(
        trace.finish(source.dense)[0]["y"], Oracle(ir.from_proto(model)).run(feeds)[0], rtol=1e-5
    )


def test_nothing_behind_the_last_layer_to_prune_is_run() -> None:
    source = SourceModel.read(branched_network(), ())
    trace = Trace.start(SegmentedModel.of(source.proto, source.layers, 1), [{"x": samples(100)}])
    solver = LayerSolver(trace, source.dense, METHODS["wanda"], structure_of("equal"))
    solved = list(solver.solve({"left": 0.5, "right": 0.5, "deep": 1.0}))
    assert [one.layer.name for one in solved] == ["left", "right"]
    assert "sum" not in trace.batches[0]
    assert trace.done == 1

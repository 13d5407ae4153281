"""Graphs that are inputs, inside onnxruntime: sessions, optimized models with and without our library, the provider."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.driver.compiler import native_code
from redpebble.export.sparse_networks.node_content import network_model, written
from redpebble.options import Options
from redpebble.ort.provider.register import host, register
from redpebble.ort.session import get_library_path
from tests.frontend.operators.test_edges_of_call import EXPORTS, INPUTS, read
from tests.lowering.graphs.test_sorted_edges import MAXIMUM, SUM, feeds, model, sums

Feeds = Mapping[str, NDArray[np.generic]]

BY_PROVIDER = [path for path in INPUTS if not path.name.startswith(("sage.input.classic", "gat."))]
"""All but two, in which nodes that make indices ask for sizes of values inside."""

SIZES = ((30, 70), (1, 3), (7, 1), (200, 3000), (5, 0))
"""Nodes and edges; some are there twice, some nodes have none."""


def plain(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


def by_provider(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(register(), {})
    return onnxruntime.InferenceSession(proto.SerializeToString(), options)


def by_library(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session of what `optimize` writes, with our library and code that is made from the nodes."""
    content, options = redpebble.optimize(proto).proto.SerializeToString(), onnxruntime.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def graph(nodes: int, edges: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(nodes + edges)
    return rng.standard_normal((nodes, 6), dtype=np.float32), rng.integers(0, nodes, (2, edges))


def agree(proto: onnx.ModelProto, session: onnxruntime.InferenceSession) -> None:
    """Compare a session of ours with onnxruntime alone, on graphs of all sizes; both refuse a number outside."""
    reference, names = plain(proto), [value.name for value in proto.graph.input]
    for nodes, edges in SIZES:
        given: Feeds = dict(zip(names, graph(nodes, edges), strict=True))
        (wanted,), (y,) = reference.run(None, given), session.run(None, given)
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)
    x, ends = graph(9, 20)
    ends[1, 3] = 9
    for one in (reference, session):
        with pytest.raises(Exception, match=r"expected indices of 9 nodes, -9 to 8, got 9|\[-9,8\]") as caught:
            one.run(None, dict(zip(names, (x, ends), strict=True)))
        assert "\n" not in str(caught.value)


def check_export(path: Path) -> None:
    proto = read(path)
    optimized = redpebble.optimize(proto)
    assert "sums over edges" in optimized.networks[0].reason
    for session in (redpebble.session(proto), plain(optimized.proto)):
        agree(proto, session)


@pytest.mark.slow
def test_sessions_take_graphs_that_are_inputs() -> None:
    check_export(EXPORTS / "gin.input.dynamo.onnx.gz")


@pytest.mark.slow
@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
def test_sessions_of_every_export_agree_with_onnxruntime(path: Path) -> None:
    check_export(path)


@pytest.mark.slow
@pytest.mark.usefixtures("provider")
@pytest.mark.parametrize("path", BY_PROVIDER, ids=lambda path: path.name)
def test_the_provider_takes_graphs_that_are_inputs(path: Path) -> None:
    proto = read(path)
    session = by_provider(proto)
    assert host().network_count > 0
    agree(proto, session)


@pytest.mark.slow
@pytest.mark.usefixtures("provider")
@pytest.mark.parametrize(
    "name", [f"{kind}.fixed.classic" for kind in ("gcn", "gin", "sage", "gat")] + ["gat.fixed.dynamo"]
)
def test_the_provider_takes_graphs_that_are_fixed_whole(name: str) -> None:
    proto = read(EXPORTS / f"{name}.onnx.gz")
    session = by_provider(proto)
    assert host().network_count == 1
    given = {"x": np.random.default_rng(0).standard_normal((30, 6), dtype=np.float32)}
    np.testing.assert_allclose(session.run(None, given)[0], plain(proto).run(None, given)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcn.input.dynamo", "gcn.input.classic", "sage.input.classic"])
def test_layers_of_one_graph_are_one_network(name: str) -> None:
    optimized = redpebble.optimize(read(EXPORTS / f"{name}.onnx.gz"))
    assert [network.reason for network in optimized.networks] == [f"2 sums over edges, {len(optimized.report)} layers"]


def test_nodes_are_compiled_from_what_a_model_file_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    session = by_library(model(7))
    for nodes, edges in ((23, 90), (5, 0), (600, 3000)):
        given = feeds(nodes, edges, 7)
        np.testing.assert_allclose(session.run(None, given._asdict())[0], sums(given), rtol=1e-4, atol=1e-4)
    given = feeds(9, 20, 7)
    for wrong in (9, -10, 1 << 40, -(1 << 62)):
        ends = given.s.copy()
        ends[3] = wrong
        with pytest.raises(Exception, match=f"expected indices of 9 nodes, -9 to 8, got {wrong}$"):
            session.run(None, {**given._asdict(), "s": ends})


def test_a_number_of_nodes_that_the_model_fixes_is_part_of_a_node_as_well() -> None:
    fixed = model(7)
    for value in (*fixed.graph.input, *fixed.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param == "nodes":
                size.dim_value = 9
    (node,) = [node for node in redpebble.optimize(fixed).model.graph if node.domain]
    artefact = native_code(network_model(*written(node)), Options(is_node=True), cache=False)
    assert len(artefact.program.inputs) == node.attributes["activations"].as_int() == 4
    given = feeds(9, 20, 7)
    session = by_library(fixed)
    np.testing.assert_allclose(session.run(None, given._asdict())[0], sums(given), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gat.fixed.dynamo", "gat.input.classic"])
def test_attention_over_edges_is_compiled_from_what_a_model_file_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    proto = read(EXPORTS / f"{name}.onnx.gz")
    written = redpebble.optimize(proto).proto.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    session = onnxruntime.InferenceSession(written, options, providers=["CPUExecutionProvider"])
    nodes = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value or 30
    x, ends = graph(nodes, 70)
    given = dict(zip((value.name for value in proto.graph.input), (x, ends), strict=False))
    np.testing.assert_allclose(session.run(None, given)[0], plain(proto).run(None, given)[0], rtol=1e-4, atol=1e-4)


def test_ends_and_weights_of_other_names_must_be_as_many_as_edges() -> None:
    proto = model(5)
    for value in proto.graph.input[1:]:
        value.type.tensor_type.shape.dim[0].dim_param = f"edges of {value.name}"
    session, given = redpebble.session(proto), feeds(9, 20, 5)
    one = {**given._asdict(), "w": given.w[:1]}
    for these in (given._asdict(), one):
        np.testing.assert_allclose(session.run(None, these)[0], plain(proto).run(None, these)[0], rtol=1e-4, atol=1e-4)
    with pytest.raises(Exception, match="expected equal sizes of the inputs, got 19 and 20"):
        session.run(None, {**given._asdict(), "t": given.t[:-1]})


@pytest.mark.slow
def test_maxima_along_edges_of_a_call_are_those_of_onnxruntime() -> None:
    proto = model(19, MAXIMUM.replace("float {", "float[1] {"))
    session, reference = redpebble.session(proto), plain(proto)
    for nodes, edges in ((23, 30), (1, 4), (5, 0), (600, 900)):
        given = feeds(nodes, edges, 19)._asdict()
        np.testing.assert_array_equal(session.run(None, given)[0], reference.run(None, given)[0])


def test_older_opsets_keep_sums_that_they_could_not_write() -> None:
    proto = model(5, SUM)
    proto.opset_import[0].version = 15
    assert not redpebble.optimize(proto).networks

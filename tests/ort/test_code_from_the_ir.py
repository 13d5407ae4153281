"""Code that a session makes of the IR is the code that a node would have been compiled to."""

import numpy as np
import onnx_ir as ir
import pytest
from xdsl.dialects.builtin import ModuleOp

from redpebble.driver.compiler import network_code, optimized
from redpebble.export.sparse_networks.node_content import written
from redpebble.export.sparse_networks.node_format import DOMAIN, node_identity
from redpebble.foundation.threads import usable_threads
from redpebble.frontend.import_model import Source
from redpebble.models.exports.stored import stored_export
from redpebble.models.zoo import build
from redpebble.options import Options
from redpebble.ort.network_code import compile_network
from redpebble.runtime.jit import host_target
from redpebble.runtime.store.artefact import Artefact


def codes_of(source: Source) -> tuple[dict[str, Artefact], list[ir.Node]]:
    """Return code by the identity of its node as a session makes it of the IR, and the nodes that were written."""
    found: dict[str, Artefact] = {}

    def on_network(identity: str, network: ModuleOp) -> None:
        found[identity] = network_code(network, usable_threads(), host_target())

    model = optimized(source, Options("optimize"), on_network).model
    return found, [node for node in model.graph if node.domain == DOMAIN]


def assert_same_code(source: Source, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setenv("REDPEBBLE_CACHE", folder)
    found, nodes = codes_of(source)
    assert {node_identity(*written(node)) for node in nodes} == {*found}
    assert found
    for node in nodes:
        expected, made = compile_network(*written(node)), found[node_identity(*written(node))]
        assert made.image == expected.image
        assert len(made.program.constants) == len(expected.program.constants)
        for one, other in zip(made.program.constants, expected.program.constants, strict=True):
            np.testing.assert_array_equal(one, other)
        assert [layer.families for layer in made.program.report] == [
            layer.families for layer in expected.program.report
        ]
        assert made.program.steps == expected.program.steps
        assert made.program.sizes == expected.program.sizes


@pytest.mark.slow
def test_code_from_the_ir_is_that_of_the_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = str(tmp_path_factory.mktemp("cache"))
    assert_same_code(build("ffnn(depth=2, width=200, density=0.1)"), monkeypatch, folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert.classic", "tabnet.dynamo", "gpt2.dynamo", "ft_transformer.dynamo"])
def test_code_of_real_networks_from_the_ir_is_that_of_their_nodes(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_same_code(stored_export(name), monkeypatch, str(tmp_path_factory.mktemp("cache")))

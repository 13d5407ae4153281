import numpy as np
import onnx_ir
import onnxruntime
import pytest

import redpebble
from redpebble.ort.provider.register import host
from tests.ort.provider_models import plain_session, provider_session
from tests.support.encoder_models import Encoder
from tests.support.sparse_network_models import network_nodes, with_networks

SHAPES = ((0, 5), (1, 1), (3, 7), (7, 17), (2, 33), (1, 197))


def quiet(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return options


def agree(session: onnxruntime.InferenceSession, plain: onnxruntime.InferenceSession) -> None:
    for batch, length in SHAPES:
        feeds = Encoder.feeds(batch, length)
        results, expected = (one.run(None, feeds) for one in (session, plain))
        np.testing.assert_allclose(results[0], expected[0], rtol=1e-4, atol=2e-5)


def test_an_encoder_is_one_node_of_onnxruntime() -> None:
    model = Encoder(features=32, heads=2).model()
    written = onnx_ir.to_proto(with_networks(model))
    assert len(network_nodes(written)) == 1
    assert sorted({node.op_type for node in written.graph.node}) == [
        "Cast",
        "Gather",
        "SparseNetwork_0",
        "Unsqueeze",
        "Where",
    ]
    agree(plain_session(written, 1), plain_session(model, 1))  # the function of standard operators


@pytest.mark.slow
def test_the_native_code_of_an_encoder_agrees_with_onnxruntime() -> None:
    model = Encoder(features=32, heads=2).model()
    agree(redpebble.session(onnx_ir.to_proto(with_networks(model)), quiet(2)), plain_session(model, 1))


@pytest.mark.slow
@pytest.mark.usefixtures("provider")
def test_the_provider_takes_an_encoder_whole() -> None:
    model = Encoder(features=256, layers=1).model()
    ours, plain = provider_session(model, 2), plain_session(model, 2)
    assert host().network_count == 1
    agree(ours, plain)

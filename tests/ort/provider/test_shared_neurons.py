"""Networks that lie between layers of a graph that is not written anew: all neurons pass from one to the other."""

import numpy as np
import onnx
import pytest

from redpebble.ort.provider.register import host
from tests.ort.provider_models import MLP, assert_equal_runs, feeds, model, plain_session, provider_session


def with_needless_neurons(dense: str) -> onnx.ModelProto:
    """A network with one dense layer, a neuron that nothing reads before each layer, and two that are equal."""
    proto = model(MLP)
    for tensor in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor).copy()
        if tensor.name == dense:
            array = np.random.default_rng(3).standard_normal(array.shape).astype(np.float32)
        if tensor.name.startswith("w"):
            array[5] = 0
            array[:, 9] = array[:, 7] = 0
        else:
            array[9] = array[7] = 1
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return proto


@pytest.mark.slow
@pytest.mark.parametrize("dense", ["w0", "w1"])
def test_neurons_that_nothing_needs_stay_where_onnxruntime_computes_them(dense: str) -> None:
    proto = with_needless_neurons(dense)
    ours = provider_session(proto)
    assert host().network_count > 0
    assert_equal_runs(ours, plain_session(proto), feeds(7))

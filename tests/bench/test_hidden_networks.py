"""Networks of the hidden-structure benchmark: scipy and our code compute the same; so do rows that are dropped."""

import numpy as np
import pytest

import redpebble
from redpebble.bench.hidden_networks import HIDDEN_NETWORKS, HiddenNetwork, onnx_model
from redpebble.bench.peers import ScipyPeer
from redpebble.models.radixnet import RadixNet, radixnet_images

SMALL = [HiddenNetwork(one.name, one.reads, 256, 3, one.shuffled) for one in HIDDEN_NETWORKS.values()]


@pytest.mark.parametrize("network", SMALL[1:4:2], ids=lambda network: network.name)
def test_scipy_and_our_code_compute_the_same(network: HiddenNetwork) -> None:
    layers = network.layers()
    x = np.random.default_rng(0).standard_normal((9, 256)).astype(np.float32)
    expected = ScipyPeer().prepare(layers, 9, 1)(x)
    (result,) = redpebble.compile(onnx_model(layers), cache=False).run(None, {"x": x})
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_dead_rows_of_the_graph_challenge_are_dropped_and_no_other() -> None:
    model = RadixNet(1024, 5).build(np.random.default_rng(0))
    images = radixnet_images(1024, 200, np.random.default_rng(1))
    skipped = ("pebble-merge-duplicate-neurons",)
    plain = redpebble.compile(model, cache=False, skip_passes=skipped)
    dropping = redpebble.compile(model, cache=False, skip_passes=skipped, drop_dead_rows=True)
    np.testing.assert_array_equal(np.asarray(dropping(images)), np.asarray(plain(images)))

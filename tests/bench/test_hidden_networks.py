"""Networks of the hidden-structure benchmark: scipy and our code compute the same; so do rows that are dropped."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array

import redpebble
from redpebble.bench.suites.hidden_networks import HIDDEN_NETWORKS, HiddenNetwork, onnx_model
from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.models.radixnet import RadixNet, radixnet_images
from redpebble.tools.benching.engines.chain import ChainLayer
from redpebble.tools.benching.engines.peers import ScipyPeer

SMALL = [HiddenNetwork(one.name, one.reads, 256, 3, one.shuffled) for one in HIDDEN_NETWORKS.values()]


@pytest.mark.slow
@pytest.mark.parametrize("network", SMALL[1:4:2], ids=lambda network: network.name)
def test_scipy_and_our_code_compute_the_same(network: HiddenNetwork) -> None:
    layers = network.layers()
    x = np.random.default_rng(0).standard_normal((9, 256)).astype(np.float32)
    expected = ScipyPeer().prepare(layers, 9, 1)(x)
    (result,) = redpebble.compile(onnx_model(layers), cache=False).run(None, {"x": x})
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def radix_layers(rng: np.random.Generator) -> list[ChainLayer]:
    """Six layers of 16 classes of 16 equal neurons, as in the Graph Challenge."""
    own, layers = np.arange(256), list[ChainLayer]()
    for layer in range(6):
        classes = np.stack([own % 16, (own - (1 << layer % 4)) % 16], axis=1)
        inputs = (classes[:, :, None] + 16 * np.arange(16)).ravel()
        inputs = inputs if layer < 4 else rng.permutation(256)[inputs]
        entries = (np.full(256 * 32, 1 / 16, dtype=np.float32), (np.repeat(own, 32), inputs))
        bias = np.full((256, 1), -0.3, dtype=np.float32)
        layers.append(ChainLayer(csr_array(entries, shape=(256, 256)), bias, ActivationAttr("relu")))
    return layers


@pytest.mark.slow
@pytest.mark.parametrize("skipped", [(), ("pebble-merge-equal-units",)], ids=["merged", "nominal"])
def test_rows_alive_at_the_end_of_a_radixnet_are_those_that_scipy_finds(skipped: tuple[str, ...]) -> None:
    rng = np.random.default_rng(0)
    layers = radix_layers(rng)
    x = (rng.random((300, 256)) < rng.uniform(0, 0.4, (300, 1))).astype(np.float32)
    expected = ScipyPeer().prepare(layers, 300, 1)(x)
    model = onnx_model(layers)
    (result,) = redpebble.compile(model, cache=False, skip_passes=skipped, drop_dead_rows=True).run(None, {"x": x})
    alive = expected.any(axis=1)
    assert 30 < np.count_nonzero(alive) < 270
    np.testing.assert_array_equal(result.any(axis=1), alive)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


MEMORY_PROGRAM = """
import numpy as np
from redpebble.driver.compiler import native_code
from redpebble.options import Options
from redpebble.models.radixnet import RadixNet
options = Options(drop_dead_rows=True, skip_passes=("pebble-merge-equal-units",))
native_code(RadixNet(16384, 6).build(np.random.default_rng(0)), options, cache=False)
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.slow
def test_a_wide_network_is_compiled_in_less_memory_than_one_dense_matrix_takes() -> None:
    out = subprocess.run([sys.executable, "-c", MEMORY_PROGRAM], capture_output=True, text=True, check=True).stdout
    assert int(out) < 4 * 16384**2 / 1024


@pytest.mark.slow
def test_dead_rows_of_the_graph_challenge_are_dropped_and_no_other() -> None:
    model = RadixNet(1024, 5).build(np.random.default_rng(0))
    images = radixnet_images(1024, 200, np.random.default_rng(1))
    skipped = ("pebble-merge-equal-units",)
    plain = redpebble.compile(model, cache=False, skip_passes=skipped)
    dropping = redpebble.compile(model, cache=False, skip_passes=skipped, drop_dead_rows=True)
    np.testing.assert_array_equal(np.asarray(dropping(images)), np.asarray(plain(images)))

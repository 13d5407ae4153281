import numpy as np

import redpebble
from redpebble.bench.suites.split_bench import model_of_blocks
from redpebble.verification.oracle import Oracle


def test_the_blocks_that_are_measured_are_split_and_compute_the_same() -> None:
    model = model_of_blocks(512, 16, depth=2)
    result = redpebble.optimize(model, target="portable")
    assert [(split.layers, split.weights) for split in result.splits] == [(2, 2 * 512 * 32)]
    x = {"x": np.random.default_rng(0).standard_normal((5, 512), dtype=np.float32)}
    np.testing.assert_allclose(Oracle(result.model).run(x)[0], Oracle(model).run(x)[0], rtol=1e-4, atol=1e-5)

import numpy as np
import onnxruntime

import redpebble
from redpebble.bench.suites.recurrence_bench import Recurrence, bench_recurrence, feeds_of, model_of


def test_the_recurrences_that_are_measured_run_as_our_nodes_and_compute_the_same() -> None:
    recurrence = Recurrence("GRU", 192, 0.95)
    model, feeds = model_of(recurrence), feeds_of(recurrence, 3, 2)
    assert len(redpebble.optimize(model).networks) == 1
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    for ours, theirs in zip(redpebble.session(model).run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    (row,) = bench_recurrence(recurrence, [1], steps=2, seconds=0.0)
    assert row.batch == 1
    assert row.ours_us > 0

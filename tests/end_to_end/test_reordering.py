"""Networks whose neurons were reordered compute what onnxruntime does, and say what was done."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.models.zoo import build
from redpebble.options import Options
from redpebble.runtime.jit import host_target
from redpebble.verification.feeds import inputs_for
from redpebble.verification.oracle import Oracle
from tests.end_to_end.agreement import assert_close

NEEDS_WIDE = pytest.mark.skipif(host_target().lanes < 16, reason="its kernels of 8 lanes take outputs in any order")


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["digits", pytest.param("ffnn(depth=3, width=96, density=0.1)", marks=NEEDS_WIDE)])
def test_a_searched_order_changes_nothing_but_is_in_the_report(spec: str) -> None:
    model = build(spec)
    oracle = Oracle(model)
    net, again = (redpebble.compile(model, cache=False, reorder_seconds=0.02) for _ in range(2))
    for batch in (0, 1, 7, 64):
        feeds: dict[str, NDArray[Any]] = inputs_for(model, batch, np.random.default_rng(batch))
        found, same = net.run(None, feeds), again.run(None, feeds)
        assert_close(found, oracle.run(feeds), f"batch {batch}")
        assert [output.tobytes() for output in found] == [output.tobytes() for output in same]
    assert any("order annealed group" in layer.reason for layer in net.report)
    left = redpebble.compile(model, cache=False, reorder_seconds=0.02, skip_passes=("pebble-reorder-neurons",))
    assert not any("order " in layer.reason for layer in left.report)


def test_a_search_of_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reorder_seconds: expected 0 or more, got -1"):
        Options(reorder_seconds=-1)

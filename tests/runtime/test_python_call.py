import gc
import sys
import threading
import weakref
from collections import OrderedDict

import numpy as np
import pytest

from redpebble.lowering.driver import lower
from redpebble.runtime.jit import host_target
from redpebble.runtime.network import Network
from tests.support.lowering_modules import linear_layer, object_of

WEIGHT = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)


def a_network(threads: int = 1) -> Network:
    program = lower(linear_layer(WEIGHT, None, "dense_outputs"), host_target())
    return Network(program, object_of(program.llvm_ir, host_target()), threads)


def network_after(x: np.ndarray) -> Network:
    """A network that was called with an input of this shape once, so that the interpreter calls it from then on."""
    network = a_network()
    network.run(None, {"x0": x})
    assert network._direct is not None  # pyright: ignore[reportPrivateUsage]
    return network


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 5)).astype(np.float32)


def direct(network: Network, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """What the builtin function returns, which `run` asks first."""
    known = network._direct  # pyright: ignore[reportPrivateUsage]
    assert known is not None
    return known.run(feeds)


@pytest.mark.parametrize("count", [0, 1, 7, 17])
def test_the_result_is_that_of_the_long_way(count: int) -> None:
    network = network_after(rows(count))
    for seed in range(3):
        x = rows(count, seed)
        found = direct(network, {"x0": x})
        assert found is not None
        np.testing.assert_array_equal(found[0], network(x))
        assert found[0].flags.writeable


def test_what_the_call_was_not_prepared_for_goes_the_long_way() -> None:
    x = rows(2)
    network = network_after(x)
    wide = rows(4)
    others: list[object] = [x.astype(np.float64), rows(3), x[0], wide[::2], x.tolist(), np.ma.masked_array(x), None]
    for other in others:
        assert direct(network, {"x0": other}) is None  # pyright: ignore[reportArgumentType]
    assert direct(network, {}) is None
    assert direct(network, OrderedDict(x0=x)) is None
    assert direct(network, {"x1": x}) is None
    assert direct(network, {"x0": x, "x1": x}) is None
    np.testing.assert_array_equal(network.run(None, {"x0": wide[::2]})[0], network(np.ascontiguousarray(wide[::2])))
    np.testing.assert_array_equal(network.run(None, {"x0": x.tolist()})[0], network(x))
    with pytest.raises(ValueError, match="input: expected one of x0, got 'x1'"):
        network.run(None, {"x0": x, "x1": x})
    with pytest.raises(ValueError, match="got float64"):
        network.run(None, {"x0": x.astype(np.float64)})


def test_read_only_inputs_and_other_shapes_in_turn_are_taken() -> None:
    x, y = rows(2), rows(9)
    x.flags.writeable = False
    network = network_after(x)
    for _ in range(3):
        for given in (x, y):
            np.testing.assert_array_equal(network.run(None, {"x0": given})[0], network(given))
            assert direct(network, {"x0": given}) is not None


def test_nothing_is_held_after_a_call() -> None:
    x = rows(2)
    network, feeds = network_after(x), {"x0": x, "x1": x}
    gc.collect()
    before = sys.getrefcount(x), sys.getrefcount(None)
    for _ in range(1000):
        direct(network, {"x0": x})
        direct(network, feeds)
    after = sys.getrefcount(x), sys.getrefcount(None)
    assert after[0] == before[0]
    assert abs(after[1] - before[1]) < 100
    found = direct(network, {"x0": x})
    assert found is not None
    result = weakref.ref(found[0])
    del found
    assert result() is None


def test_threads_that_call_at_once_get_their_own_results() -> None:
    network, wrong = network_after(rows(3)), list[int]()

    def call(seed: int) -> None:
        x = rows(3, seed)
        expected = network(x)
        wrong.extend(1 for _ in range(500) if not np.array_equal(network.run(None, {"x0": x})[0], expected))

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_a_call_on_other_threads_than_compiled_for_is_not_kept() -> None:
    x = rows(2)
    network = a_network(threads=2)
    network.run(None, {"x0": x}, threads=1)
    assert network._direct is None  # pyright: ignore[reportPrivateUsage]

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redpebble.lowering.buffer_packing import Lifetime, plan_offsets
from redpebble.lowering.driver import lower
from redpebble.lowering.program import Program
from redpebble.runtime.jit import host_target
from redpebble.runtime.network import Network
from tests.support.lowering_modules import linear_layer, object_of

WEIGHT = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)


@cache
def code() -> tuple[Program, bytes]:
    program = lower(linear_layer(WEIGHT, None, "dense_outputs"), host_target())
    return program, object_of(program.llvm_ir, host_target())


def a_network(threads: int = 1) -> Network:
    return Network(*code(), threads)


def test_inputs_and_outputs_are_described_as_onnxruntime_does() -> None:
    network = a_network()
    assert network.get_inputs()[0] == ("x0", "tensor(float)", ["d0", 5])
    assert network.get_outputs()[0].shape == ["d0", 7]


def test_a_call_returns_the_only_output() -> None:
    x = np.ones((2, 5), dtype=np.float32)
    np.testing.assert_array_equal(a_network()(x), a_network().run(None, {"x0": x})[0])


def test_an_input_that_is_not_contiguous_is_read_correctly() -> None:
    x = np.arange(60, dtype=np.float32).reshape(5, 12).T
    network = a_network()
    np.testing.assert_array_equal(network(x), network(np.ascontiguousarray(x)))


@pytest.mark.parametrize(
    "feeds, message",
    [
        ({}, "input 'x0' is missing"),
        ({"y": np.ones((1, 5), np.float32)}, "input: expected one of x0, got 'y'"),
        ({"x0": np.ones((1, 5))}, "input 'x0': expected dtype float32, got float64"),
        ({"x0": np.ones((1, 6), np.float32)}, "input 'x0': expected size 5 along axis 1, got 6"),
        ({"x0": np.ones((5,), np.float32)}, r"input 'x0': expected shape \[d0, 5\], got \(5,\)"),
    ],
)
def test_wrong_inputs_are_refused_in_one_line(feeds: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        a_network().run(None, feeds)


def test_an_unknown_output_is_refused() -> None:
    with pytest.raises(ValueError, match="output: expected one of 0, got 'y'"):
        a_network().run(["y"], {"x0": np.ones((1, 5), np.float32)})


def test_a_network_says_in_a_line_what_it_is() -> None:
    assert repr(a_network(2)) == "<Network: x0[d0, 5] -> 0[d0, 7]; 1 layers, 2 threads>"


def test_no_threads_are_refused() -> None:
    with pytest.raises(ValueError, match="threads: expected 1 or more, got 0"):
        a_network(threads=0)


@pytest.mark.parametrize("threads", [1, 2])
def test_many_calls_at_once_do_not_disturb_each_other(threads: int) -> None:
    network = a_network(threads)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((int(rows), 5)).astype(np.float32) for rows in rng.integers(0, 300, 100)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(network, inputs))
    for x, result in zip(inputs, results, strict=True):
        np.testing.assert_allclose(result, x @ WEIGHT, rtol=1e-5, atol=1e-5)


def test_threads_end_with_their_network() -> None:
    before = threading.active_count()
    network = a_network(threads=4)
    assert threading.active_count() == before + 3
    network(np.ones((200, 5), dtype=np.float32))
    del network
    gc.collect()
    assert threading.active_count() == before


def test_threads_that_slept_wake_again() -> None:
    network = a_network(threads=2)
    x = np.arange(1000, dtype=np.float32).reshape(200, 5)
    expected = network(x)
    for _ in range(3):
        time.sleep(0.05)
        np.testing.assert_array_equal(network(x), expected)


@pytest.fixture(scope="module")
def networks() -> dict[int, Network]:
    return {threads: a_network(threads) for threads in (2, 3, 5)}


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 500])
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_rows_are_cut_without_gap_or_overlap(rows: int, threads: int, networks: dict[int, Network]) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 5)).astype(np.float32)
    np.testing.assert_allclose(networks[threads](x), x @ WEIGHT, rtol=1e-5, atol=1e-5)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_buffers_that_live_together_do_not_overlap(ranges: list[tuple[int, int, int]]) -> None:
    lifetimes = [Lifetime(size, min(a, b), max(a, b)) for size, a, b in ranges]
    plan = plan_offsets(lifetimes)
    placed = list(zip(lifetimes, plan.offsets, strict=True))
    for index, (one, start) in enumerate(placed):
        assert start % 64 == 0
        assert start + one.size <= plan.total
        for other, begin in placed[:index]:
            together = one.first <= other.last and other.first <= one.last
            assert not together or start + one.size <= begin or begin + other.size <= start

"""Calls by several threads, with a number of threads of their own, and on arrays known beforehand."""

import gc
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, i64

from redpebble.dialect.attributes.schedule import ScheduleAttr
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.lowering.driver import lower
from redpebble.lowering.program import Program
from redpebble.options import Options
from redpebble.runtime.bound_call import BoundCall
from redpebble.runtime.jit import host_target
from redpebble.runtime.network import MOST_SHAPES, Network
from tests.support.lowering_modules import Floats, linear_layer, object_of

WEIGHT = np.random.default_rng(0).standard_normal((40, 96)).astype(np.float32)
WIDTHS: Sequence[int] = (1, 8, 64)


@cache
def code(threads: int) -> tuple[Program, bytes]:
    """A layer whose tiles the threads always do together."""
    module: ModuleOp = linear_layer(WEIGHT, None, "count_blocks")
    for op in module.walk():
        if isinstance(op, TileOp):
            times = dict.fromkeys(WIDTHS, 100.0), dict.fromkeys(WIDTHS if threads > 1 else (), 1.0)
            op.schedule = ScheduleAttr(WIDTHS, threads, *times)
        elif isinstance(op, LinearOp):
            places = [0, *(16 * (6 * piece // threads) for piece in range(1, threads)), 96]
            op.cut = DenseArrayBase.from_list(i64, places)
    program = lower(module, host_target())
    return program, object_of(program.llvm_ir, host_target())


def a_network(threads: int = 1) -> Network:
    return Network(*code(threads), threads)


def rows(count: int, seed: int = 0) -> Floats:
    return np.random.default_rng((seed, count)).standard_normal((count, 40)).astype(np.float32)


def test_a_call_may_ask_for_fewer_threads() -> None:
    network, x = a_network(3), rows(130)
    results = [network.run(None, {"x0": x}, threads=threads)[0] for threads in (1, 2, 3)]
    np.testing.assert_allclose(results[0], x @ WEIGHT, rtol=1e-4, atol=1e-4)
    assert len({result.tobytes() for result in results}) == 1


@pytest.mark.parametrize("threads", [0, 3])
def test_a_call_may_not_ask_for_more_threads_than_the_network_has(threads: int) -> None:
    with pytest.raises(
        ValueError, match=f"threads: expected 1 to 2, for which the network was compiled, got {threads}"
    ):
        a_network(2)(rows(1), threads=threads)


@pytest.mark.parametrize(
    "threads", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_many_calls_at_once_share_tiles_without_disturbing_each_other(threads: int) -> None:
    network = a_network(threads)
    inputs = [rows(int(count), seed) for seed, count in enumerate(np.random.default_rng(1).integers(0, 200, 300))]
    alone = [network(x) for x in inputs]

    def call(x: Floats) -> Floats | list[Floats]:
        return network(x, threads=1 + len(x) % threads)

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(call, inputs))
    for one, other in zip(alone, together, strict=True):
        assert isinstance(one, np.ndarray)
        assert isinstance(other, np.ndarray)
        assert one.tobytes() == other.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_bound_call_reads_what_its_arrays_hold(threads: int) -> None:
    network, x = a_network(threads), rows(70)
    bound = network.bind({"x0": x})
    for seed in range(3):
        x[...] = rows(70, seed)
        (result,) = bound.run()
        assert result is bound.outputs[0]
        assert result.tobytes() == network.run(None, {"x0": x})[0].tobytes()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_bound_call_outlives_its_network(threads: int) -> None:
    x = rows(130)
    call = a_network(threads).bind({"x0": x})
    gc.collect()
    a_network(threads)  # its code may come to lie where that of the first one was
    np.testing.assert_allclose(call.run()[0], x @ WEIGHT, rtol=1e-4, atol=1e-4)


def test_a_bound_call_writes_into_the_arrays_it_is_given() -> None:
    network, x = a_network(), rows(9)
    output = np.full((9, 96), np.nan, dtype=np.float32)
    bound = network.bind({"x0": x}, {"0": output}, threads=1)
    assert bound.run()[0] is output
    np.testing.assert_allclose(output, x @ WEIGHT, rtol=1e-4, atol=1e-4)
    assert bound.inputs == (x,)


def test_bound_calls_of_one_network_run_at_once() -> None:
    network = a_network(2)
    inputs = [rows(50, seed) for seed in range(20)]
    calls = [network.bind({"x0": x}) for x in inputs]

    def run(call: BoundCall) -> bytes:
        return call.run()[0].tobytes()

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, calls))
    for x, result in zip(inputs, results, strict=True):
        assert result == network.run(None, {"x0": x})[0].tobytes()


READ_ONLY = np.empty((3, 96), dtype=np.float32)
READ_ONLY.flags.writeable = False
SHARED = np.zeros(1000, dtype=np.float32)


@pytest.mark.parametrize(
    ("feeds", "outputs", "message"),
    [
        ({}, {}, "input 'x0' is missing"),
        ({"x0": rows(3), "y": rows(3)}, {}, "input: expected one of x0, got 'y'"),
        ({"x0": np.zeros((3, 40))}, {}, "input 'x0': expected dtype float32, got float64"),
        ({"x0": rows(6)[::2]}, {}, r"input 'x0': expected a contiguous array, got strides \(320, 4\)"),
        ({"x0": rows(3)}, {"y": READ_ONLY}, "output: expected one of 0, got 'y'"),
        ({"x0": rows(4)}, {"0": READ_ONLY}, r"output '0': expected shape \(4, 96\), got \(3, 96\)"),
        ({"x0": rows(3)}, {"0": READ_ONLY}, "output '0': expected an array to write to, got a read-only one"),
        (
            {"x0": SHARED[:120].reshape(3, 40)},
            {"0": SHARED[119:407].reshape(3, 96)},
            "output '0': expected memory of its own, got memory shared with input 'x0'",
        ),
    ],
)
def test_arrays_that_cannot_be_bound_are_refused_in_one_line(
    feeds: dict[str, Floats], outputs: dict[str, Floats], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        a_network().bind(feeds, outputs)


def test_an_output_is_not_written_again_while_somebody_holds_it_or_a_part_of_it() -> None:
    network, x = a_network(), rows(100)
    (whole,) = network.run(None, {"x0": x})
    part = network.run(None, {"x0": 2 * x})[0][7:, :5]
    copies = whole.copy(), part.copy()
    for factor in range(3, 9):
        network.run(None, {"x0": factor * x})
    np.testing.assert_array_equal(whole, copies[0])
    np.testing.assert_array_equal(part, copies[1])


def test_the_memory_of_an_output_that_was_dropped_is_used_again() -> None:
    network, x = a_network(), rows(100)
    assert len({network.run(None, {"x0": x})[0].ctypes.data for _ in range(5)}) == 1


def test_calls_of_many_shapes_do_not_pile_up_memory() -> None:
    network = a_network()
    for count in range(200):
        x = rows(count)
        np.testing.assert_allclose(network(x), x @ WEIGHT, rtol=1e-4, atol=1e-4)
    prepared = network._prepared[1]  # pyright: ignore[reportPrivateUsage]
    assert len(prepared) <= MOST_SHAPES


def test_arrays_that_touch_and_do_not_overlap_are_bound() -> None:
    memory = np.zeros(3 * 40 + 3 * 96, dtype=np.float32)
    memory[:120] = rows(3).ravel()
    (output,) = a_network().bind({"x0": memory[:120].reshape(3, 40)}, {"0": memory[120:].reshape(3, 96)}).run()
    np.testing.assert_allclose(output, rows(3) @ WEIGHT, rtol=1e-4, atol=1e-4)


def test_shapes_come_and_go_in_many_threads_at_once() -> None:
    network = a_network()

    def prepare(seed: int) -> None:
        for count in np.random.default_rng(seed).integers(1, 400, 1500):
            network._prepare(1, ((int(count), 40),))  # pyright: ignore[reportPrivateUsage]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(12) as pool:
            list(pool.map(prepare, range(12)))
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("threads", [1.5, np.float32(1)])
def test_a_number_of_threads_is_whole(threads: int) -> None:
    with pytest.raises(ValueError, match=r"threads: expected a whole number, got .*1\.\d.*"):
        a_network(2).run(None, {"x0": rows(3)}, threads=threads)
    with pytest.raises(ValueError, match=r"threads: expected a whole number, got .*1\.\d.*"):
        Options(threads=threads)

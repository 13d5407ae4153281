"""Our kernel alone computes its layer, and the benchmark of layers measures what it says."""

import json
from pathlib import Path

import numpy as np
import pytest

from redpebble.bench.ceilings import CHAINS, IN_FLIGHT, TURNS, VECTORS, WEIGHTS, NativeLoops
from redpebble.bench.fresh_process import footprint_in_a_fresh_process
from redpebble.bench.kernel_call import OurKernel
from redpebble.bench.suites.layer_bench import LayerPlan, bench_layers
from redpebble.tools.benching.layer_cases import RandomLayer
from redpebble.tools.benching.results import BOUND, BOUND_BASELINE, CEILING, Result, Row, merged, read_result
from redpebble.verification.measuring import Budget, interleave
from tests.bench.float64_layers import expected, mlp, saved


@pytest.mark.slow
@pytest.mark.parametrize("density", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("shape", [(37, 50), (130, 19)])
def test_the_kernel_alone_computes_its_layer(shape: tuple[int, int], density: float, tmp_path: Path) -> None:
    model, layers = mlp(shape, density)
    kernel = OurKernel(saved(model, tmp_path))
    for batch in (1, 7, 17, 130):
        x = np.random.default_rng(batch).standard_normal((batch, shape[0]), dtype=np.float32)
        call = kernel.prepare(np.ascontiguousarray(x.T))
        call.repeated(3)()
        np.testing.assert_allclose(call.result(batch).T, expected(layers, x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_layers_are_measured_in_every_engine_and_on_all_threads() -> None:
    layer = RandomLayer(40, 30, 0.8)
    plan = LayerPlan([layer], (1, 9), (1, 2), Budget(0.0, least_rounds=1), ("kernel", "layer", "grid"))
    (rows,) = bench_layers(plan)
    assert {(row.model, row.inputs, row.outputs, row.sparsity) for row in rows} == {("40x30@0.8", 40, 30, 0.8)}
    assert {row.connections for row in rows} == {int(np.count_nonzero(layer.weight()))}
    assert {row.suite for row in rows} == {"kernel", "layer", "grid"}
    for suite in ("layer", "grid"):
        places = {(row.engine, row.batch, row.threads) for row in rows if row.suite == suite}
        whole = {
            (name, batch, threads) for name in ("redpebble", "onnxruntime") for batch in (1, 9) for threads in (1, 2)
        }
        assert places == whole | {(name, 1, threads) for name in (BOUND, BOUND_BASELINE) for threads in (1, 2)}
    kernels = {row.engine for row in rows if row.suite == "kernel"}
    assert {"redpebble", CEILING} <= kernels <= {"redpebble", CEILING, "mkl"}
    assert all((row.speedup_vs_onnxruntime is None) == (row.suite == "kernel") for row in rows)


def test_the_loop_over_ports_does_the_operations_that_are_counted() -> None:
    loops = NativeLoops()
    loops.operands.view(np.float32)[:] = 1
    loop = loops.ports()
    loop.call()
    lanes = loops.target.lanes
    sums = loops.sums.view(np.float32)[: CHAINS * VECTORS * lanes]
    np.testing.assert_array_equal(sums, TURNS * WEIGHTS / CHAINS)
    assert 2 * float(sums.sum()) == loop.work


def test_the_loop_over_registers_does_the_operations_that_are_counted() -> None:
    loops = NativeLoops()
    loops.operands.view(np.float32)[:] = 1
    loop = loops.registers()
    loop.call()
    sums = loops.sums.view(np.float32)[: IN_FLIGHT * loops.target.lanes]
    np.testing.assert_array_equal(sums, 1 + TURNS * WEIGHTS * VECTORS / IN_FLIGHT)
    assert 2 * float((sums - 1).sum()) == loop.work


def test_a_call_is_timed_at_least_as_often_as_asked() -> None:
    calls: list[str] = []
    timings = interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, Budget(0.0, least_rounds=4))
    assert {name: timing.rounds for name, timing in timings.items()} == {"a": 4, "b": 4}
    assert calls.count("a") >= 4
    assert "".join(calls).rindex("a") > "".join(calls).index("b")


@pytest.mark.slow
def test_a_fresh_process_says_what_it_needed(tmp_path: Path) -> None:
    path = RandomLayer(64, 48, 0.5).save(tmp_path)
    footprint = footprint_in_a_fresh_process(path, tmp_path, after_another=True)
    assert footprint.packed_bytes >= 4 * np.count_nonzero(RandomLayer(64, 48, 0.5).weight())
    assert footprint.compile_seconds > 0


def test_a_result_is_the_same_after_writing_and_reading(tmp_path: Path) -> None:
    rows = [
        Row("kernel", "2x3@0.5", "mkl", 4, 1, 2.0, 1.5, None, 2, 3, 0.5, 3),
        Row("zoo", "m", "redpebble", 1, 1, 1, 1, 2),
    ]
    parts = [Result({"cpu": "x"}, {"ports": 100.0}, rows[:1]), Result({}, rows=rows[1:], costs={"a_us": 1.5})]
    whole = merged(parts)
    whole.write(tmp_path / "new" / "result.json")
    assert read_result(tmp_path / "new" / "result.json") == whole
    assert whole == Result({"cpu": "x"}, {"ports": 100.0}, rows, {"a_us": 1.5})
    assert rows[0].gflops == pytest.approx(2 * 3 * 4 / 2e-6 / 1e9)


@pytest.mark.parametrize("text", ["{}", "[1", json.dumps({"rows": [{"model": "m"}]})])
def test_another_file_is_no_result(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"x\.json is no result of the benchmark: "):
        read_result(path)

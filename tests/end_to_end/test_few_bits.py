"""Layers of few bits from end to end: native code, sessions, and files that run without our library."""

import ctypes
from pathlib import Path

import numpy as np
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.ort.native.tables import LEVEL_VARIABLE, LEVELS
from redpebble.ort.session import write_library
from redpebble.runtime.jit import host_target
from redpebble.tuning import machines
from tests.support.few_bits import FewBits

CODE_BYTES = 40_000
"""The least that a network takes in the cache beside its weights."""

GAINING = FewBits(512, 96, zeros=0.95, has_bias=True)


@pytest.fixture
def codes_that_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decide with vectors of 16 as a Xeon does: by the prices of Zen 5 small layers in its caches become floats."""
    if host_target().lanes == 16:
        monkeypatch.setattr(machines, "prices_of_cpu", lambda: "emerald_rapids")


@pytest.mark.parametrize(
    "case",
    [
        FewBits(100, 21, size=16, has_zeros=True, has_bias=True),
        FewBits(200, 33, bits=8, size=64),
        FewBits(70, 5, size=128, accuracy=4),
        FewBits(96, 40, zeros=1.0),
        FewBits(96, 20, zeros=0.0, has_zeros=True),
    ],
    ids=str,
)
def test_compiled_layers_compute_what_the_codes_stand_for(case: FewBits) -> None:
    compiled = redpebble.compile(case.model)
    for rows in (0, 1, 7, 17):
        x = np.random.default_rng(rows).standard_normal((rows, case.inputs), dtype=np.float32)
        np.testing.assert_allclose(np.asarray(compiled(x)), case.truth(x), rtol=1e-4, atol=1e-5)


def test_an_optimized_file_holds_the_codes_and_runs_without_our_library() -> None:
    before = GAINING.model
    optimized = redpebble.optimize(before)
    after = onnx_ir.to_proto(optimized.model)
    assert [node.op_type for node in after.graph.node] == ["SparseNetwork_0"]
    (function,) = after.functions
    assert function.node[0].op_type == "MatMulNBits"
    assert len(after.SerializeToString()) < 1.1 * len(before.SerializeToString())
    x = np.random.default_rng(0).standard_normal((7, GAINING.inputs), dtype=np.float32)
    expected, plain = (
        np.asarray(onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0])
        for model in (before, after)
    )
    np.testing.assert_array_equal(plain, expected)
    native = np.asarray(redpebble.session(after).run(None, {"x": x})[0])
    np.testing.assert_allclose(native, GAINING.truth(x), rtol=1e-4, atol=1e-5)


def test_a_dense_one_is_not_written_anew() -> None:
    before = FewBits(512, 96, zeros=0.2).model
    optimized = redpebble.optimize(before)
    after = onnx_ir.to_proto(optimized.model)
    assert [node.op_type for node in after.graph.node] == ["MatMulNBits"]
    assert optimized.placement is not None
    assert optimized.placement.share == 0


@pytest.mark.usefixtures("codes_that_gain")
@pytest.mark.parametrize(("accuracy", "operator"), [(4, "SparseNetwork_0"), (0, "MatMulNBits")])
def test_few_zeros_are_enough_where_codes_are_read(accuracy: int, operator: str) -> None:
    case = FewBits(512, 256, zeros=0.3, accuracy=accuracy)
    (node,) = redpebble.optimize(case.model).proto.graph.node
    assert node.op_type == operator


@pytest.mark.parametrize(
    "case",
    [
        FewBits(512, 96, zeros=0.9, accuracy=4),
        FewBits(512, 96, zeros=0.3, accuracy=4),
        FewBits(500, 65, size=64, zeros=0.6, accuracy=4, has_zeros=True, has_bias=True, rank=3),
    ],
    ids=str,
)
def test_rounded_inputs_leave_errors_no_larger_than_those_of_onnxruntime(case: FewBits) -> None:
    session = redpebble.session(case.model)
    judge = onnxruntime.InferenceSession(case.model.SerializeToString())
    before = redpebble.counters()
    for rows in (0, 1, 7, 17):
        x = np.random.default_rng(rows).standard_normal((rows, 2, case.inputs)[3 - case.rank :], dtype=np.float32)
        found = np.asarray(session.run(None, {"x": x})[0])
        truth = case.truth(x)
        assert found.shape == truth.shape
        if rows:
            theirs = np.asarray(judge.run(None, {"x": x})[0])
            assert np.abs(found - truth).max() <= 1.3 * np.abs(theirs - truth).max()
    assert redpebble.counters() == before


@pytest.mark.usefixtures("codes_that_gain")
@pytest.mark.parametrize(("zeros", "most"), [(0.5, 0.45), (0.8, 0.30), (0.9, 0.21)])
def test_the_small_form_is_all_that_the_cache_holds(
    zeros: float, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if zeros > 0.8 and host_target().lanes == 16:
        pytest.skip("on many rows floats are three times as fast with vectors of 16")
    case = FewBits(2048, 1024, zeros=zeros, accuracy=4)
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path))
    redpebble.session(case.model)
    (packed,) = tmp_path.glob("**/*.pebble")
    assert packed.stat().st_size < most * case.inputs * case.outputs + CODE_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("case", [GAINING, FewBits(512, 96, zeros=0.9, accuracy=4)], ids=str)
def test_a_library_and_the_provider_compute_what_onnxruntime_does(case: FewBits, tmp_path: Path) -> None:
    optimized, library = redpebble.optimize(case.model), tmp_path / "m.so"
    write_library(optimized.model, library)
    options, placed = onnxruntime.SessionOptions(), onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    placed.add_provider_for_devices(redpebble.register(), {})
    judge, with_library, with_provider = (
        onnxruntime.InferenceSession(model.SerializeToString(), chosen)
        for model, chosen in (
            (case.model, onnxruntime.SessionOptions()),
            (optimized.proto, options),
            (case.model, placed),
        )
    )
    for rows in (0, 1, 7, 17):
        x = np.random.default_rng(rows).standard_normal((rows, case.inputs), dtype=np.float32)
        truth = case.truth(x)
        expected = np.abs(np.asarray(judge.run(None, {"x": x})[0]) - truth).max(initial=0)
        for session in (with_library, with_provider):
            found = np.asarray(session.run(None, {"x": x})[0])
            assert np.abs(found - truth).max(initial=0) <= 1.3 * expected + 1e-5


@pytest.mark.slow
@pytest.mark.usefixtures("codes_that_gain")
def test_all_levels_of_a_library_read_the_same_small_weights(tmp_path: Path) -> None:
    case = FewBits(1024, 1024, zeros=0.5, accuracy=4)
    optimized, library = redpebble.optimize(case.model), tmp_path / "m.so"
    levels = write_library(optimized.model, library)
    assert {"generic", "avx2"} <= set(levels)
    # the code of three levels, and what all libraries hold
    assert library.stat().st_size < 0.45 * case.inputs * case.outputs + 150_000
    x = np.random.default_rng(3).standard_normal((5, case.inputs), dtype=np.float32)
    limit, results = ctypes.c_int64.in_dll(ctypes.CDLL(str(library)), LEVEL_VARIABLE), list[NDArray[np.float32]]()
    for level in ("generic", "avx2"):
        limit.value = LEVELS["x86_64"].index(level)
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(str(library))
        session = onnxruntime.InferenceSession(optimized.proto.SerializeToString(), options)
        results.append(np.asarray(session.run(None, {"x": x})[0]))
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(results[0], case.truth(x), atol=0.1)

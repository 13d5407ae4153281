"""Every family on every target, held to onnxruntime and to float64 over shapes, batches and patterns."""

import numpy as np
import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir

from redpebble.kernels.families import FAMILIES
from redpebble.kernels.family import LayerWeights
from redpebble.kernels.machine import Machine
from redpebble.kernels.prediction import candidates
from redpebble.kernels.work import Layer
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.kernels.kernel_form import LinearForm
from redpebble.lowering.kernels.table import code_of
from redpebble.lowering.llvm.builder import Code
from redpebble.lowering.llvm.flow import call
from redpebble.lowering.llvm.values import Bytes, Number
from redpebble.runtime.jit import emit_object, load_object
from redpebble.runtime.memory import address_of, aligned_copy
from redpebble.verification.oracle import Oracle
from tests.support.kernel_cases import LAYER, PATTERNS, Case, check, run
from tests.support.lowering_modules import HERE, Floats, best_target_first

cases = st.builds(
    Case,
    family=st.sampled_from(sorted(name for name, family in FAMILIES.items() if not family.rounds)),
    target=st.sampled_from([*HERE.values()]),
    shape=st.tuples(st.integers(1, 300), st.integers(1, 70)),
    pattern=st.sampled_from(sorted(PATTERNS)),
    batch=st.sampled_from([0, 1, 7, 8, 17, 41]),
    seed=st.integers(0, 2**16),
)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(onnx_ir.from_onnx_text(LAYER))


@settings(max_examples=4, deadline=None, derandomize=True)
@given(case=cases)
def test_a_layer_agrees_with_onnxruntime_and_float64(oracle: Oracle, case: Case) -> None:
    check(case, oracle)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(case=cases)
def test_many_layers_agree_with_onnxruntime_and_float64(oracle: Oracle, case: Case) -> None:
    check(case, oracle)


@pytest.mark.slow
@best_target_first
@pytest.mark.parametrize("family", ["count_blocks", "narrow_blocks", "sparse_rows", "strips"])
def test_infinities_pass_a_connection_and_nothing_else(family: str, target: CpuTarget) -> None:
    weight = np.where(PATTERNS["uniform"](np.random.default_rng(1), (200, 37)), np.float32(0.3), np.float32(0))
    x = np.ones((5, 200), dtype=np.float32)
    x[:, 17] = np.inf
    result = run(Case(family, target, (200, 37), "uniform", 5, 0), weight, np.zeros(37, dtype=np.float32), x)
    assert np.array_equal(result == np.inf, np.tile(weight[17] != 0, (5, 1)))
    assert not np.isnan(result).any()


def call_on_a_piece(family: str, target: CpuTarget, weight: Floats) -> Floats:
    """The rows of y around those of a layer, which were 7 before its kernel ran for 8 columns."""
    code = Code(target, ir.Module("segment"))
    outputs: int = weight.shape[1]
    kernel = code_of(FAMILIES[family]).emit(code, LinearForm(8, None))
    arguments = len(kernel.args) - 2

    @code.kernel("exported", exported=True, rest=arguments)
    def _(*arrays: Bytes, inputs: Number, outputs: Number) -> None:
        call(kernel, *arrays, inputs, outputs)

    machine = load_object(emit_object(str(code.module), target), {"exported": (arguments, 2)})
    arrays = FAMILIES[family].pack(LayerWeights(weight, np.zeros(outputs, dtype=np.float32)))
    packed = [aligned_copy(array) for array in arrays]
    x, y = aligned_copy(np.ones((len(weight), 8), dtype=np.float32)), np.full((outputs + 16, 8), 7.0, dtype=np.float32)
    result = aligned_copy(y).astype(np.float32, copy=False)
    machine.functions["exported"](*(address_of(array) for array in (x, result, *packed)), *weight.shape)
    return result


@pytest.mark.slow
@best_target_first
@pytest.mark.parametrize(
    "family", [name for name, one in FAMILIES.items() if 8 in one.widths and one.rounds != "groups"]
)
@pytest.mark.parametrize("outputs", [33, *(pytest.param(more, marks=pytest.mark.slow) for more in (1, 5, 16, 48))])
def test_rows_behind_a_layer_are_not_written_as_they_may_be_of_another_thread(
    family: str, target: CpuTarget, outputs: int
) -> None:
    weight = np.where(PATTERNS["uniform"](np.random.default_rng(2), (90, outputs)), np.float32(0.5), np.float32(0))
    result = call_on_a_piece(family, target, weight)
    assert np.allclose(result[:outputs], weight.sum(axis=0)[:, None])
    assert np.all(result[outputs:] == 7.0)


@pytest.mark.slow
@best_target_first
def test_good_code_is_code_that_exists(target: CpuTarget) -> None:
    layer = Layer(64, np.full(64, 8, dtype=np.int64), stored="panels")  # any family can compute it
    for width in (1, 8, 16, 32, 64):
        good = [name for name in candidates(layer, width, Machine(lanes=target.lanes)) if name in FAMILIES]
        assert any(FAMILIES[name].is_dense for name in good)
        assert any(not FAMILIES[name].is_dense for name in good)
        for name in good:
            code_of(FAMILIES[name]).emit(Code(target, ir.Module("test")), LinearForm(width, None))

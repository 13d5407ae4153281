"""Rows rounded group by group meet codes of four bits: held against the same sums in double precision."""

import numpy as np
import pytest

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.few_bits import FewBitsAttr
from redpebble.dialect.ops.constants import SparseConstantOp
from redpebble.kernels.family import LayerWeights
from redpebble.kernels.formats.code_slots import FAMILY, PASS_ROWS
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.lowering.kernels.kernel_form import layer_weights
from redpebble.runtime.jit import host_target
from redpebble.sparse.csr import CscMatrix
from tests.support.few_bits_layers import CASES, constant_of, dense_constant_of, layer, rounded_product
from tests.support.lowering_modules import each_target, native, object_of

RELU = ActivationAttr("relu")


@each_target
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_rounded_inputs(target: CpuTarget, name: str) -> None:
    case = CASES[name]
    network = native(layer(constant_of(case), case.bias), target)
    for rows in (1, 3, 7, PASS_ROWS + 1, 60):
        x = np.random.default_rng(rows).standard_normal((rows, case.inputs), dtype=np.float32)
        (result,) = network.run(None, {"x0": x})
        expected = rounded_product(case, x)
        # an input between two integers may become either
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=2e-3 * max(1.0, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("name", CASES)
def test_a_weight_with_its_zeros_is_packed_as_one_without_them(name: str) -> None:
    case = CASES[name]
    packed = [FAMILY.pack(layer_weights(of(case).result, case.bias)) for of in (constant_of, dense_constant_of)]
    np.testing.assert_array_equal(packed[0][0], packed[1][0])


@each_target
def test_the_largest_sums_fit(target: CpuTarget) -> None:
    weight = np.full((64, 20), -4.0, np.float32)
    scales = np.full(40, 0.5, np.float32)
    few_bits = FewBitsAttr(4, 32, 4, scales, np.zeros(0, np.int16))
    full = SparseConstantOp(CscMatrix.from_dense(weight), few_bits)
    network = native(layer(full, np.zeros(20, np.float32)), target)
    x = np.ones((2, 64), np.float32)
    (result,) = network.run(None, {"x0": x})
    np.testing.assert_allclose(result, np.full((2, 20), -256.0), rtol=1e-4)


@each_target
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_leaves_a_row_undefined_and_no_other(target: CpuTarget, odd: float) -> None:
    case = CASES["symmetric"]
    network = native(layer(constant_of(case), case.bias), target)
    x = np.random.default_rng(1).standard_normal((5, case.inputs), dtype=np.float32)
    (before,) = network.run(None, {"x0": x})
    x[2, 17] = odd
    (after,) = network.run(None, {"x0": x})
    assert not np.isfinite(after[2]).any()
    np.testing.assert_array_equal(np.delete(after, 2, axis=0), np.delete(before, 2, axis=0))


def test_the_activation_is_applied_in_the_kernel() -> None:
    case = CASES["zeros, sparse"]
    x = np.random.default_rng(2).standard_normal((3, case.inputs), dtype=np.float32)
    plain, rectified = (
        native(layer(constant_of(case), case.bias, kind), host_target()).run(None, {"x0": x})[0]
        for kind in (None, RELU)
    )
    np.testing.assert_array_equal(rectified, np.maximum(plain, 0))


def test_floats_are_refused() -> None:
    case = CASES["symmetric"]
    with pytest.raises(ValueError, match="expected codes with a scale for each group of inputs, got floats"):
        FAMILY.pack(LayerWeights(constant_of(case).weight, case.bias))


@pytest.mark.parametrize("target", [CpuTarget.avx512(), CpuTarget.zen4()], ids=["avx512", "zen4"])
def test_code_for_wider_vectors_is_made(target: CpuTarget) -> None:
    case = CASES["symmetric"]
    assert object_of(lower(layer(constant_of(case), case.bias), target).llvm_ir, target)

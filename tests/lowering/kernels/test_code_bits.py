"""Codes that are placed by masks: run here by functions that do what the instructions for it do."""

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.layers import LinearOp
from redpebble.driver.compiler import optimized
from redpebble.kernels.family import LayerWeights
from redpebble.kernels.formats import code_bytes, code_halves
from redpebble.kernels.formats.code_bits import FAMILY, pack
from redpebble.kernels.formats.code_slots import PASS_ROWS
from redpebble.kernels.machine import Machine
from redpebble.kernels.prediction import candidates
from redpebble.kernels.prices import STREAMS
from redpebble.kernels.work import Layer
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.lowering.kernels.kernel_form import layer_weights
from redpebble.options import Options
from redpebble.tuning.measure_kernels import Tuning
from tests.support.few_bits import FewBits
from tests.support.few_bits_layers import CASES, constant_of, dense_constant_of, layer, rounded_product, weights_of
from tests.support.lowering_modules import object_of
from tests.support.software_instructions import PLACES_BYTES, placed_by_masks, stored_with_zeros

SOME = (
    "groups of 64, a part of a unit",
    "zeros, sparse",
    "all weights of all blocks, groups of 16",
    "eight bits, zeros",
    "eight bits, above their zeros",
    "four bits, above their zeros",
)

MORE = {
    "eight bits": FewBits(203, 35, bits=8, accuracy=4, has_bias=True),
    "eight bits, zeros": FewBits(229, 35, bits=8, has_zeros=True, zeros=0.6, accuracy=4, has_bias=True),
    "eight bits, groups of 16": FewBits(100, 17, bits=8, size=16, zeros=0.0, accuracy=4),
    "eight bits, above their zeros": FewBits(128, 20, bits=8, has_zeros=True, zeros=0.0, accuracy=4, above=True),
    "four bits, above their zeros": FewBits(128, 20, has_zeros=True, zeros=0.0, accuracy=4, above=True),
    "eight bits, zeros alone": FewBits(64, 20, bits=8, size=64, zeros=1.0, accuracy=4),
}


@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.slow) for name in CASES | MORE]
)
def test_results_are_those_of_rounded_inputs(name: str) -> None:
    case = (CASES | MORE)[name]
    network = placed_by_masks(case)
    for rows in (0, 1, 3, 7, PASS_ROWS + 1, 60):
        x = np.random.default_rng(rows).standard_normal((rows, case.inputs), dtype=np.float32)
        (result,) = network.run(None, {"x0": x})
        expected = rounded_product(case, x, most_of_unit=None)
        # an input between two integers may become either
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=2e-3 * max(1.0, np.abs(expected).max(initial=0)))


WITH_ZEROS = CASES | {name: MORE[name] for name in MORE if name.startswith("four bits")}


@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.slow) for name in WITH_ZEROS]
)
def test_stored_zeros_change_no_result(name: str) -> None:
    case = WITH_ZEROS[name]
    stored, placed = stored_with_zeros(case), placed_by_masks(case)
    for rows in (0, 1, 3, 7, PASS_ROWS + 1, 60):
        x = np.random.default_rng(rows).standard_normal((rows, case.inputs), dtype=np.float32)
        (found,), (expected,) = (network.run(None, {"x0": x}) for network in (stored, placed))
        # sums of integers, in the same order: equal bit by bit
        np.testing.assert_array_equal(found, expected)


def test_stored_zeros_take_no_masks() -> None:
    case = FewBits(2048, 256, zeros=0.1, accuracy=4)
    weights = layer_weights(dense_constant_of(case).result, case.bias)
    packed = code_halves.FAMILY.pack(weights)
    assert sum(array.nbytes for array in packed) < 0.57 * case.inputs * case.outputs
    halves = [code_halves.FAMILY.pack(weights.share(*ends)) for ends in ((0, 128), (128, 256))]
    np.testing.assert_array_equal(np.concatenate([half[2] for half in halves]), packed[2])


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_leaves_a_row_undefined_and_no_other(odd: float) -> None:
    case = CASES["zeros, sparse"]
    network = placed_by_masks(case, ActivationAttr("relu"))
    x = np.random.default_rng(1).standard_normal((5, case.inputs), dtype=np.float32)
    (before,) = network.run(None, {"x0": x})
    assert before.min() == 0
    x[2, 17] = odd
    (after,) = network.run(None, {"x0": x})
    # a rectified NaN is NaN, as in onnxruntime
    assert np.isnan(after[2]).all()
    np.testing.assert_array_equal(np.delete(after, 2, axis=0), np.delete(before, 2, axis=0))


@pytest.mark.parametrize(("zeros", "most"), [(0.5, 0.44), (0.8, 0.29), (0.9, 0.24)])
def test_weights_take_few_bytes(zeros: float, most: float) -> None:
    case = FewBits(2048, 256, zeros=zeros, accuracy=4)
    assert sum(array.nbytes for array in pack(weights_of(case))) < most * case.inputs * case.outputs


def test_floats_are_refused() -> None:
    case = CASES["symmetric"]
    with pytest.raises(ValueError, match="expected codes with a scale for each group of inputs, got floats"):
        FAMILY.pack(LayerWeights(constant_of(case).weight, case.bias))


def test_only_cpus_with_the_instructions_run_it() -> None:
    known = Layer(64, np.full(64, 8, dtype=np.int64), code_bits=4)
    assert FAMILY.name in candidates(known, 1, Machine(places_bytes=True))
    assert FAMILY.name not in candidates(known, 1, Machine())
    assert code_bytes.FAMILY.name not in candidates(known, 1, Machine(places_bytes=True))
    bytes_known = Layer(64, np.full(64, 8, dtype=np.int64), code_bits=8)
    assert code_bytes.FAMILY.name in candidates(bytes_known, 1, Machine(places_bytes=True))
    assert PLACES_BYTES.places_bytes
    assert not CpuTarget.zen4().places_bytes


@pytest.mark.parametrize(("zeros", "family"), [(0.0, "code_halves"), (0.5, "code_bits"), (0.8, "code_bits")])
def test_a_xeon_takes_layers_of_codes_at_any_number_of_rows(zeros: float, family: str) -> None:
    l3_ns, dram_ns = STREAMS["cascade_lake"]
    xeon = Machine(16, l3_ns=l3_ns, dram_ns=dram_ns, prices="cascade_lake", places_bytes=True)
    tuning = Tuning(PLACES_BYTES, xeon, None, seconds=0.0, recalls=False)
    chosen = list[str]()

    def look(_: str, module: ModuleOp) -> None:
        chosen.extend(str(op.kernel) for op in module.walk() if isinstance(op, LinearOp))

    found = optimized(FewBits(2048, 512, zeros=zeros, accuracy=4).model, Options("optimize", tuning=tuning), look)
    (kernel,) = chosen
    assert kernel.startswith(f"#pebble.kernel<{family}, ")
    assert [node.op_type for node in found.proto.graph.node] == ["SparseNetwork_0"]


def test_code_for_these_cpus_is_made() -> None:
    case = CASES["symmetric"]
    llvm_ir = lower(layer(constant_of(case), case.bias, None, FAMILY), PLACES_BYTES).llvm_ir
    assert "expand.v64i8" in llvm_ir
    assert "vpdpbusd" in llvm_ir
    assert object_of(llvm_ir, PLACES_BYTES)

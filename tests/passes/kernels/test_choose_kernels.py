import re
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects import test
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.row_panels import PanelsAttr
from redpebble.dialect.ops.constants import SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.families import FAMILIES, OVER_BLOCKS
from redpebble.kernels.formats import count_blocks
from redpebble.kernels.machine import Machine
from redpebble.kernels.measured.neighbours import Example, Examples, Place
from redpebble.kernels.tile_widths import TILE_WIDTHS, WIDTHS
from redpebble.kernels.work import Layer
from redpebble.passes.analysis.block_choices import LayerTimes, given_blocks, predicted_times, with_blocks
from redpebble.passes.analysis.layer_costs import MEASURED, Measurement, layer_key, layers_of
from redpebble.passes.analysis.weights import Weight, constant_for
from redpebble.passes.kernels.choose_kernels import ChooseKernels, kernel_for
from redpebble.sparse.csr import CscMatrix
from tests.passes.pass_texts import only, parse, run

LAYER = """
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x1xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<[0]> : tensor<1xi64>
    values dense<[3.0]> : tensor<1xf32> : tensor<4x1xf32, #pebble.sparsity<nonzeros = 1>>
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x1xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
"""

texts = st.text("abcdefgh_0123456789", min_size=1, max_size=9)


def a_weight(density: float, size: int = 200) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    rng = np.random.default_rng(0)
    return np.where(rng.random((size, size)) < density, np.float32(1), np.float32(0))


def over_blocks(
    machine: Machine, clock: dict[int, dict[tuple[str, int], float]] | None = None, **given: int
) -> tuple[KernelAttr, Layer]:
    """The kernels of 256 x 600 at a density of 0.3, where families over blocks are fast, and the layer as usual."""
    mask = np.random.default_rng(0).random((256, 600)) < 0.3
    weight = CscMatrix.from_dense(mask.astype(np.float32))
    (layer,) = layers_of([constant_for(weight).result])
    decided, times = with_blocks(layer, given, machine, clock or {})
    return kernel_for(weight, decided, times, machine), layer


def chosen(weight: Weight, machine: Machine, measured: dict[int, dict[str, float]] | None = None) -> KernelAttr:
    (layer,) = layers_of([constant_for(weight).result])
    return kernel_for(weight, layer, LayerTimes(predicted_times(layer, machine), measured or {}), machine)


@pytest.mark.parametrize("density", [0.0, 0.005, 0.1, 0.3, 0.47, 0.5, 0.58, 0.8, 1.0])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_every_choice_is_a_family_that_has_code_for_its_width(density: float, lanes: int) -> None:
    for weight in (a_weight(density), CscMatrix.from_dense(a_weight(density))):
        kernel = chosen(weight, Machine(lanes=lanes))
        for width in WIDTHS:
            family = kernel.family_at(width)
            assert family in FAMILIES
            assert width in FAMILIES[family].widths


def test_a_weight_that_is_stored_dense_is_never_thinned() -> None:
    assert set(chosen(a_weight(0.05), Machine()).choices.values()) == {"dense_outputs"}


def test_without_permutes_in_registers_inputs_of_single_rows_are_gathered() -> None:
    weight = CscMatrix.from_dense(a_weight(0.03))
    assert chosen(weight, Machine()).family_at(1) == "permute_lookup"
    for lanes in (4, 8):
        assert chosen(weight, Machine(lanes=lanes)).family_at(1) == "gathered_panels"


def test_the_reason_says_that_weights_leave_the_cache() -> None:
    weight = CscMatrix.from_dense(a_weight(0.1))
    near = chosen(weight, Machine())
    far = chosen(weight, Machine(l1_bytes=1 << 10, l2_bytes=1 << 12))
    assert "beyond the second-level cache" in far.reason
    assert "beyond the second-level cache" not in near.reason


def test_what_was_measured_counts_instead_of_what_was_predicted() -> None:
    weight = CscMatrix.from_dense(a_weight(0.1))
    kernel = chosen(weight, Machine(), {1: {"permute_lookup": 14.0, "narrow_blocks": 12.1}})
    assert kernel.family_at(1) == "narrow_blocks"
    assert kernel.measured == {1: 12.1}
    assert "next permute_lookup 14 us at 1" in kernel.reason
    assert kernel.family_at(8) == "count_blocks"


def test_a_family_is_packed_for_one_width_only_where_that_gains_more_than_a_little() -> None:
    weight = CscMatrix.from_dense(a_weight(0.1))
    times = {width: {"count_blocks": 10.0, "sparse_rows": 9.9 if width == 8 else 20.0} for width in WIDTHS[1:]}
    assert chosen(weight, Machine(), times).family_at(8) == "count_blocks"
    times[8]["sparse_rows"] = 8.0
    kernel = chosen(weight, Machine(), times)
    assert kernel.family_at(8) == "sparse_rows"
    assert kernel.family_at(16) == "count_blocks"


def test_families_over_blocks_have_the_usual_number_and_others_are_priced() -> None:
    kernel, layer = over_blocks(Machine(lanes=8))
    blocks = kernel.blocks
    assert set(blocks) == set(kernel.choices.values()) & {family.name for family in OVER_BLOCKS}
    assert blocks["count_blocks"] == layer.blocks(count_blocks.BLOCKS) == count_blocks.BLOCKS.usual(256, layer.density)
    assert re.search(r"; count_blocks \S+ us at 64 over 2 blocks of inputs, \S+ over [1-9]", kernel.reason)


def test_more_blocks_are_chosen_where_the_model_says_that_they_gain() -> None:
    machine = Machine(lanes=8, l1_bytes=16 << 10)
    kernel, layer = over_blocks(machine)
    assert kernel.blocks["count_blocks"] == 3 > layer.blocks(count_blocks.BLOCKS)
    usual, _ = over_blocks(machine, count_blocks=2)
    assert usual.blocks["count_blocks"] == 2
    assert kernel.predicted[64] < usual.predicted[64]
    assert re.search(r"; count_blocks \S+ us at 64 over 3 blocks of inputs, \S+ over 2", kernel.reason)


def test_blocks_that_were_measured_to_be_faster_are_chosen() -> None:
    def clock(other: float) -> dict[int, dict[tuple[str, int], float]]:
        return {w: {("count_blocks", 2): 10.0, ("count_blocks", 3): other, ("strips", 0): 12.0} for w in (32, 64)}

    kernel, _ = over_blocks(Machine(lanes=8), clock(other=9.0))
    assert kernel.blocks["count_blocks"] == 3
    assert kernel.measured == {32: 9.0, 64: 9.0}
    kernel, _ = over_blocks(Machine(lanes=8), clock(other=9.8))
    assert kernel.blocks["count_blocks"] == 2
    assert kernel.measured == {32: 10.0, 64: 10.0}
    # what was measured at some widths only says nothing about the others
    part = clock(other=9.0)
    del part[32]["count_blocks", 3]
    kernel, _ = over_blocks(Machine(lanes=8), part)
    assert kernel.blocks["count_blocks"] == 2


@pytest.mark.parametrize(("wanted", "expected"), [("1", 3), ("40", 40), ("9999", 5000)])
def test_given_blocks_are_had_as_far_as_a_layer_can(wanted: str, expected: int) -> None:
    constant = SparseConstantOp(CscMatrix.from_dense(np.ones((5000, 8), dtype=np.float32)))
    x = test.TestOp(result_types=[f32_tensor((DYNAMIC, 5000))])
    module = ModuleOp([x, constant, LinearOp(x.results[0], constant.result)])
    slow = {f"{name}@{width}": 1 if name == "count_blocks" else 1000 for name in FAMILIES for width in TILE_WIDTHS}
    examples = Examples.of([Example(Place(5000, 8, 1, 0, 0), slow)])
    options = ChooseKernels(examples=examples.words, blocks=(f"count_blocks={wanted}",))
    kernel = only(run(module, options), LinearOp).kernel
    assert kernel is not None
    assert kernel.blocks["count_blocks"] == expected


def test_every_property_of_a_machine_is_an_option() -> None:
    machine = Machine(8, 1 << 15, 1 << 20, 1 << 23, 0.05, 0.09)
    machine = replace(machine, examples=Examples(("8/8/0.5/0/0|permute_lookup@1=1.25|dense_outputs@64=0.5",)))
    options = ChooseKernels.on(machine)
    assert options.machine == machine
    assert {field.name for field in fields(Machine)} <= {field.name for field in fields(ChooseKernels)}
    again = ChooseKernels.from_spec(options.spec())
    assert isinstance(again, ModulePass)
    assert again == options


@given(st.builds(Measurement, texts, st.sampled_from(WIDTHS), texts, st.floats(0.001, 1e6), st.integers(0, 99)))
def test_a_measurement_reads_back_as_it_was_written(measurement: Measurement) -> None:
    again = Measurement.parse(str(measurement))
    assert again._replace(microseconds=0) == measurement._replace(microseconds=0)
    assert again.microseconds == pytest.approx(measurement.microseconds, rel=1e-3)


def test_a_layer_is_known_again_by_its_pattern_and_by_what_else_is_read() -> None:
    dense = a_weight(0.1)
    weights = (dense, 2 * dense, dense.T.copy())
    same, scaled, other = (constant_for(CscMatrix.from_dense(weight)).result for weight in weights)
    (alone,) = layers_of([same])
    crowded, _ = layers_of([same, constant_for(a_weight(1.0, 2000)).result])
    assert layer_key(same, alone) == layer_key(scaled, alone)
    assert layer_key(same, alone) != layer_key(other, alone)
    assert layer_key(same, alone) != layer_key(same, crowded)


def test_panels_that_were_found_are_counted() -> None:
    constant = SparseConstantOp(CscMatrix.from_dense(np.repeat(a_weight(0.1, 64), 8, axis=1)))
    (plain,) = layers_of([constant.result])
    constant.panels = PanelsAttr.of([list(range(8 * first, 8 * first + 8)) for first in range(64)], 1.0)
    (layer,) = layers_of([constant.result])
    assert (plain.stored, layer.stored) == ("sparse", "panels")
    assert layer.panel_reads == pytest.approx(layer.connections / 8)


def test_the_times_and_the_reason_are_in_the_text() -> None:
    text = str(only(run(parse(LAYER), ChooseKernels()), LinearOp).kernel)
    assert "predicted [1: " in text
    assert "density 0.250, stored sparse" in text


def test_an_unreadable_example_is_refused() -> None:
    with pytest.raises(PassFailedException, match=r"^pebble-choose-kernels: expected INP.*, got 'walk'"):
        run(parse(LAYER), ChooseKernels(examples=("walk",)))


def test_the_reason_names_the_measured_layers_that_corrected_the_prediction() -> None:
    near, far = (Example(Place(*sizes, 0.1, 0, 0), {"permute_lookup@1": 5.0}) for sizes in ((190, 200), (9, 9)))
    kernel = chosen(CscMatrix.from_dense(a_weight(0.1)), Machine(examples=Examples.of([far, near])))
    assert kernel.reason.endswith("; corrected by measured 190x200 at 0.1, 9x9 at 0.1")


def test_an_unreadable_measurement_is_refused() -> None:
    accepted = "LAYER@WIDTH FAMILY MICROSECONDS or LAYER@WIDTH FAMILY:BLOCKS MICROSECONDS"
    message = rf"^pebble-choose-kernels: expected {accepted}.*, got 'walk 3'"
    with pytest.raises(PassFailedException, match=message):
        run(measured(parse(LAYER), "walk 3"), ChooseKernels())


def test_a_measured_time_decides_and_is_kept_with_the_kernel_alone() -> None:
    linear = only(parse(LAYER), LinearOp)
    (layer,) = layers_of([linear.weight])
    times = [Measurement(layer_key(linear.weight, layer), width, "dense_outputs", 1e-3) for width in WIDTHS]
    module = run(measured(parse(LAYER), *map(str, times)), ChooseKernels())
    kernel = only(module, LinearOp).kernel
    assert kernel is not None
    assert {*kernel.choices.values()} == {"dense_outputs"}
    assert {*kernel.measured.values()} == {1e-3}
    assert not module.attributes


def measured(module: ModuleOp, *texts: str) -> ModuleOp:
    module.attributes[MEASURED] = ArrayAttr([StringAttr(text) for text in texts])
    return module


def test_a_machine_that_cannot_be_is_refused() -> None:
    with pytest.raises(PassFailedException, match=r"^pebble-choose-kernels: expected 4, 8 or 16 lanes, got 5"):
        run(parse(LAYER), ChooseKernels(lanes=5))


@pytest.mark.parametrize("word", ["walk=2", "count_blocks=0", "count_blocks=-1", "count_blocks"])
def test_unreadable_blocks_are_refused(word: str) -> None:
    accepted = "FAMILY=NUMBER with count_blocks or narrow_blocks and 1 or more"
    with pytest.raises(PassFailedException, match=rf"^pebble-choose-kernels: expected blocks .*, got '{word}'"):
        run(parse(LAYER), ChooseKernels(blocks=(word,)))
    with pytest.raises(ValueError, match=rf"expected .*{accepted}, got .*$"):
        given_blocks([word])

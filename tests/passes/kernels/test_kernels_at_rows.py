"""Whether chosen kernels beat onnxruntime: by predicted times that agree with what was measured elsewhere."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from redpebble.kernels import few_bits_times
from redpebble.kernels.dense_work import runtime_us
from redpebble.kernels.few_bits_times import FewBits
from redpebble.kernels.machine import Machine
from redpebble.kernels.measured.built_in_examples import built_in_examples
from redpebble.kernels.prices import STREAMS
from redpebble.kernels.tile_widths import WIDTHS
from redpebble.kernels.work import Layer
from redpebble.passes.analysis.block_choices import with_blocks
from redpebble.passes.kernels.choose_kernels import fastest_families
from redpebble.passes.kernels.kernels_at_rows import ANY_ROWS, ChosenKernels, gains

L3_NS, DRAM_NS = STREAMS["zen5"]

ZEN5 = Machine(
    16, 48 << 10, 1 << 20, l3_ns=L3_NS, dram_ns=DRAM_NS, prices="zen5", examples=built_in_examples("zen5", 16)
)


def evenly(inputs: int, outputs: int, zeros: float, machine: Machine) -> ChosenKernels:
    """The kernels of a layer whose outputs have about as many connections each, anywhere."""
    counts = np.random.default_rng(0).binomial(inputs, 1 - zeros, outputs)
    _, times = with_blocks(Layer(inputs, counts), {}, machine, {})
    families = fastest_families(times)
    us = {width: times.predicted[width][family] for width, family in families.items()}
    return ChosenKernels(inputs, outputs, families, us)


@pytest.mark.parametrize("zeros", [0.5, 0.6, 0.7])
def test_weights_that_come_from_memory_gain_what_need_not_be_read(zeros: float) -> None:
    kernels = evenly(2048, 8192, zeros, ZEN5)
    assert gains(kernels, [1], ZEN5)
    assert gains(kernels, ANY_ROWS, ZEN5)
    assert kernels.meets([1]) == {"permute_lookup"}


@pytest.mark.parametrize(
    ("inputs", "outputs", "us"),
    [
        # one of a session's calls without what every call takes, a quiet machine of which the prices are
        (768, 768, {1: 26, 8: 53, 32: 163, 128: 630, 512: 2495}),
        (1024, 1024, {2: 57, 4: 62, 6: 66, 8: 103, 12: 105, 16: 155, 24: 209, 32: 278}),
        (4096, 4096, {1: 2500, 2: 3221, 8: 4277, 32: 7866, 128: 21100}),
    ],
)
def test_dense_layers_of_onnxruntime_take_what_they_were_measured_to_take(
    inputs: int, outputs: int, us: dict[int, float]
) -> None:
    for rows, measured in us.items():
        assert 0.74 < runtime_us(inputs, outputs, rows, ZEN5) / measured < 1.35


def four_bits(inputs: int, outputs: int, zeros: float, other_bytes: float) -> ChosenKernels:
    """The kernels of a layer of four bits beside so many bytes of others, which onnxruntime may or may not compute."""
    machine, weight = replace(ZEN5, places_bytes=True), FewBits(4, 32, True)
    counts = np.random.default_rng(0).binomial(inputs, 1 - zeros, outputs)
    layer = Layer(inputs, counts, other_bytes, code_bits=weight.bits)
    _, times = with_blocks(layer, {}, machine, {})
    theirs = few_bits_times.runtime_times(weight, inputs, outputs, WIDTHS, machine, other_bytes)
    families = fastest_families(times, theirs=theirs)
    us = {width: times.predicted[width][family] for width, family in families.items()}
    return ChosenKernels(inputs, outputs, families, us, other_bytes, weight)


@pytest.mark.parametrize(("inputs", "outputs"), [(576, 576), (576, 1536), (1536, 576), (4096, 4096)])
def test_many_rows_do_not_get_codes_where_onnxruntime_is_faster_than_these_and_floats_are_as_well(
    inputs: int, outputs: int
) -> None:
    # of such codes many rows take longer than in onnxruntime; floats of a fifth of the weights do not
    kernels = four_bits(inputs, outputs, 0.8, 80e6)
    assert kernels.meets([1]) == {"code_bits"}
    assert kernels.meets([128]) == {"count_blocks"}
    assert gains(kernels, ANY_ROWS, ZEN5)


def test_floats_of_a_weight_of_four_bits_are_no_choice_where_they_take_longer_than_onnxruntime() -> None:
    kernels = four_bits(1536, 576, 0.5, 80e6)
    assert kernels.meets(ANY_ROWS) == {"code_bits"}
    assert gains(kernels, [1], ZEN5)


def test_weights_beyond_a_small_last_cache_come_from_memory() -> None:
    small = replace(ZEN5, l3_bytes=8 << 20, shared_bytes=8 << 20)
    assert runtime_us(768, 3072, 1, small) > 1.5 * runtime_us(768, 3072, 1, ZEN5)
    assert runtime_us(768, 768, 1, small) == runtime_us(768, 768, 1, ZEN5)


def test_dense_kernels_at_some_rows_are_no_obstacle_where_they_are_as_fast() -> None:
    kernels = evenly(768, 768, 0.5, ZEN5)
    assert "dense_outputs" in kernels.meets(ANY_ROWS)
    assert gains(kernels, ANY_ROWS, ZEN5)


def test_a_layer_without_any_sparse_kernel_gains_nothing() -> None:
    kernels = evenly(768, 768, 0.5, ZEN5)
    assert kernels.meets([10]) == {"dense_outputs"}
    assert not gains(kernels, [10], ZEN5)


def test_dense_tiles_compute_no_more_rows_than_there_are() -> None:
    times = evenly(768, 768, 0.5, ZEN5).times(range(13, 17), ZEN5)
    assert times[13] < times[16]


def test_many_numbers_of_rows_take_a_mean_gain_and_no_loss() -> None:
    kernels = ChosenKernels(768, 768, {1: "sparse_rows"}, {1: 1.0, 64: 1.0})
    slow = ChosenKernels(768, 768, {1: "sparse_rows"}, {1: 1.05 * runtime_us(768, 768, 1, ZEN5), 64: 100.0})
    assert gains(kernels, ANY_ROWS, ZEN5)
    assert not gains(slow, [1], ZEN5)
    assert not gains(slow, ANY_ROWS, ZEN5)


def test_layers_that_are_alike_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = list[int]()
    times = ChosenKernels.times

    def counted(kernels: ChosenKernels, counts: Sequence[int], machine: Machine) -> dict[int, float]:
        compared.append(len(counts))
        return times(kernels, counts, machine)

    monkeypatch.setattr(ChosenKernels, "times", counted)
    for us in (3.25, 3.25, 3.5):
        gains(ChosenKernels(300, 300, {1: "sparse_rows"}, {8: us}), ANY_ROWS, ZEN5)
    assert compared == [256, 256]

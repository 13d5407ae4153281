import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.utils.exceptions import ParseError, VerifyException

from redpebble.dialect.attributes.activations import ACTIVATIONS, ActivationAttr
from redpebble.dialect.attributes.io_bounds import IoBoundsAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.schedule import ScheduleAttr
from redpebble.dialect.attributes.structure_facts import SENTENCES, FactAttr
from redpebble.dialect.ops.movement import TargetShapeAttr
from redpebble.dialect.record import Bounds
from redpebble.dialect.tensors import SparsityAttr
from tests.dialect.pebble_text import parse_attribute


@pytest.mark.parametrize(
    "text",
    [
        "#pebble.activation<relu>",
        "#pebble.activation<clip(-inf, inf)>",
        "#pebble.activation<hard_sigmoid(0.2, 0.5)>",
        "#pebble.activation<leaky_relu(-1.0e-30)>",
        "#pebble.sparsity<nonzeros = 205>",
        '#pebble.kernel<sparse_rows, "density 0.050 below 0.40">',
        '#pebble.kernel<permute_lookup from 1, count_blocks from 8, predicted [1: 6.8], measured [1: 7.0], "w">',
        '#pebble.kernel<count_blocks, blocks [count_blocks: 4], "why">',
        "#pebble.kernel<permute_lookup from 1, narrow_blocks from 8, count_blocks from 32, "
        'blocks [count_blocks: 4, narrow_blocks: 1], predicted [1: 6.8, 8: 16.25], "why">',
        "#pebble.io_bounds<reads = 9 to 12, writes = 2 to 4>",
        "#pebble.schedule<widths = [1, 16, 64]>",
        "#pebble.target_shape<[d0, _, 64]>",
        "#pebble.target_shape<[]>",
        "#pebble.fact<n_of_m, kept = 2, of = 4>",
        "#pebble.fact<circulant, period = 64, start = 0, stride = 4, radix = 2>",
        '!pebble.value<"sequence(tensor(int64))">',
    ],
)
def test_an_attribute_prints_as_it_is_written(text: str) -> None:
    assert str(parse_attribute(text)) == text


@settings(deadline=None)
@given(st.floats(allow_nan=False))
def test_a_parameter_of_an_activation_reads_back_bit_by_bit(value: float) -> None:
    activation = ActivationAttr("elu", (value,))
    read = parse_attribute(str(activation))
    assert read == activation
    assert isinstance(read, ActivationAttr)
    assert math.copysign(1, read.values[0]) == math.copysign(1, value)


def test_a_parameter_of_an_activation_may_be_nan() -> None:
    read = parse_attribute(str(ActivationAttr("clip", (math.nan, 1.0))))
    assert isinstance(read, ActivationAttr)
    assert math.isnan(read.values[0])
    assert read.values[1] == 1.0


def test_an_unknown_activation_is_refused() -> None:
    known = ", ".join(sorted(ACTIVATIONS))
    with pytest.raises(VerifyException, match=rf"^expected an activation of {known}, got 'swish'$"):
        ActivationAttr("swish")


def test_an_activation_with_too_few_parameters_is_refused() -> None:
    with pytest.raises(VerifyException, match=r"^expected 2 parameters of activation clip, got 1$"):
        ActivationAttr("clip", (1.0,))


def test_fewer_than_no_nonzeros_are_refused() -> None:
    with pytest.raises(VerifyException, match=r"^expected 0 or more nonzeros, got -1$"):
        SparsityAttr(-1)


@pytest.mark.parametrize("widths", [[], [16, 16], [64, 16], [0, 16]])
def test_tile_widths_that_do_not_ascend_from_one_are_refused(widths: list[int]) -> None:
    with pytest.raises(VerifyException, match=r"^expected ascending positive tile widths, got \[.*\]$"):
        ScheduleAttr(widths)


@pytest.mark.parametrize(
    ("reads", "writes", "message"),
    [
        ((12, 9), (2, 4), "expected 0 <= lower <= upper of reads, got 12 to 9"),
        ((9, 12), (-1, 4), "expected 0 <= lower <= upper of writes, got -1 to 4"),
    ],
)
def test_bounds_that_cross_are_refused(reads: tuple[int, int], writes: tuple[int, int], message: str) -> None:
    with pytest.raises(VerifyException, match=rf"^{message}$"):
        IoBoundsAttr(Bounds(*reads), Bounds(*writes))


def test_a_target_with_two_axes_left_over_is_refused() -> None:
    with pytest.raises(VerifyException, match=r"^expected one inferred axis at most, got 2$"):
        TargetShapeAttr([-1, -1])


def test_a_target_that_copies_an_axis_twice_is_refused() -> None:
    with pytest.raises(VerifyException, match=r"^target \[d0, d0\] copies an axis twice$"):
        TargetShapeAttr([-2, -2])


def test_a_target_entry_that_is_no_size_is_refused() -> None:
    with pytest.raises(ParseError, match=r"expected a size, _ or d0, d1, \.\.\., got batch"):
        parse_attribute("#pebble.target_shape<[batch, 4]>")


def test_a_kernel_keeps_its_reason() -> None:
    assert KernelAttr({1: "dense"}, "density 0.9").reason == "density 0.9"


def test_a_kernel_has_blocks_of_its_own_families_only() -> None:
    kernel = KernelAttr({1: "permute_lookup", 8: "count_blocks", 64: "permute_lookup"}, "why")
    assert kernel.blocks == {}
    assert replace(kernel, blocks={"count_blocks": 4}).blocks == {"count_blocks": 4}
    with pytest.raises(
        VerifyException, match=r"^expected blocks of the families permute_lookup, count_blocks, got narrow_blocks$"
    ):
        replace(kernel, blocks={"narrow_blocks": 4})


@pytest.mark.parametrize("blocks", [0, -3])
def test_fewer_than_one_block_is_refused(blocks: int) -> None:
    with pytest.raises(VerifyException, match=rf"^expected 1 or more blocks of count_blocks, got {blocks}$"):
        KernelAttr({1: "count_blocks"}, "why", blocks={"count_blocks": blocks})


def test_blocks_given_twice_are_refused() -> None:
    with pytest.raises(ParseError, match=r"expected permute_lookup once"):
        parse_attribute('#pebble.kernel<permute_lookup, blocks [permute_lookup: 1, permute_lookup: 2], "why">')


@pytest.mark.parametrize("times", [{8: 1.0, 1: 2.0}, {0: 1.0}])
def test_times_at_widths_that_do_not_ascend_are_refused(times: dict[int, float]) -> None:
    with pytest.raises(VerifyException, match=r"^expected ascending positive widths with a time"):
        KernelAttr({1: "dense"}, "why", times)


@pytest.mark.parametrize("time", [-1.0, math.nan])
def test_times_below_zero_are_refused(time: float) -> None:
    with pytest.raises(VerifyException, match=rf"^expected a time of 0 us or more at width 8, got {time}$"):
        KernelAttr({1: "dense"}, "why", {8: time})


def test_an_unknown_fact_is_refused() -> None:
    with pytest.raises(VerifyException, match=rf"^expected a fact of {', '.join(SENTENCES)}, got 'magic'$"):
        FactAttr.of("magic")


def test_a_fact_without_its_numbers_is_refused() -> None:
    with pytest.raises(VerifyException, match=r"^expected fact n_of_m of kept, of, got kept$"):
        FactAttr.of("n_of_m", kept=2)


def test_a_fact_with_a_negative_number_is_refused() -> None:
    with pytest.raises(VerifyException, match=r"^fact band with a negative number$"):
        FactAttr.of("band", before=3, after=-1)


def test_a_fact_is_a_sentence() -> None:
    assert FactAttr.of("n_of_m", kept=2, of=4).sentence == "each output reads 2 of every 4 inputs"


def test_a_fact_counts_only_what_there_is() -> None:
    assert FactAttr.of("dead", inputs=362, outputs=0).sentence == "362 inputs are read by no output"
    assert FactAttr.of("dead", inputs=1, outputs=2).sentence.endswith(", 2 outputs read nothing")
    assert FactAttr.of("alike", inputs=0, outputs=3).sentence == "3 outputs have the inputs of another one"

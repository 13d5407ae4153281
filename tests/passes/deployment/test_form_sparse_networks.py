"""Which layers sparse networks take on machines that were measured: those that gain, and lose at no number of rows."""

from collections.abc import Sequence

import pytest

from redpebble.compiler import Optimized, optimized
from redpebble.kernels.machine import Machine
from redpebble.kernels.measured.built_in_examples import built_in_examples
from redpebble.kernels.prices import STREAMS
from redpebble.options import Options
from redpebble.runtime.jit import host_target
from redpebble.tuning.measure_kernels import Tuning
from tests.support.quantized_models import pruned_network

L3_NS, DRAM_NS = STREAMS["zen5"]

ZEN5 = Machine(
    16, 48 << 10, 1 << 20, l3_ns=L3_NS, dram_ns=DRAM_NS, prices="zen5", examples=built_in_examples("zen5", 16)
)

AVX2 = Machine(
    8, 32 << 10, 512 << 10, l3_ns=L3_NS, dram_ns=DRAM_NS, prices="zen5", examples=built_in_examples("zen5", 8)
)


def found(sizes: Sequence[int], zeros: float, machine: Machine, rows: int = 0, batch: int = 0) -> Optimized:
    """What `optimize` makes of layers on a machine, for so many rows if any, of a batch that the file fixes if any."""
    model = pruned_network(sizes, 1 - zeros)
    if batch:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    return optimized(model, Options("optimize", tuning=Tuning(host_target(), machine, None, 0), rows=rows))


def taken(sizes: Sequence[int], zeros: float, machine: Machine, rows: int = 0, batch: int = 0) -> int:
    return sum(network.layers for network in found(sizes, zeros, machine, rows, batch).networks)


@pytest.mark.parametrize(
    ("sizes", "zeros"),
    [
        ([768, 768], 0.5),
        ([768, 768], 0.7),
        ([1024, 1024], 0.75),
        ([384, 1536, 384], 0.5),
    ],
)
def test_from_half_of_zeros_on_layers_gain_at_all_numbers_of_rows(sizes: list[int], zeros: float) -> None:
    # measured there: 0.99 to 1.4 times onnxruntime at the worst of 25 numbers of rows, 1.5 to 3 times at 1 and 128
    assert taken(sizes, zeros, ZEN5) == len(sizes) - 1


def test_a_layer_that_loses_at_some_number_of_rows_is_left() -> None:
    # measured there: 0.92 times onnxruntime at 5 rows, 1.35 at 1 and 128
    assert taken([1024, 1024], 0.4, ZEN5) == 0


@pytest.mark.parametrize(("zeros", "count"), [(0.5, 0), (0.6, 1), (0.7, 1)])
def test_without_wide_vectors_layers_need_more_zeros(zeros: float, count: int) -> None:
    # measured on an older CPU with AVX2, worst of 25 numbers of rows: 0.87 to 0.98 at 0.5, 1.0 to 1.1 at 0.6
    assert taken([768, 768], zeros, AVX2) == count


def test_rows_that_the_model_fixes_count_as_those_that_are_said() -> None:
    layer = [768, 768]
    assert taken(layer, 0.5, AVX2) == 0
    assert taken(layer, 0.5, AVX2, rows=128) == taken(layer, 0.5, AVX2, batch=128) == 1
    assert taken(layer, 0.5, AVX2, rows=10) == taken(layer, 0.5, AVX2, batch=10) == 0

"""Which layers sparse networks take on machines that were measured: those that gain, and lose at no number of rows."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from redpebble.driver.compiler import Optimized, optimized
from redpebble.kernels.machine import Machine
from redpebble.kernels.measured.built_in_examples import built_in_examples
from redpebble.kernels.prices import STREAMS
from redpebble.options import Options
from redpebble.runtime.jit import host_target
from redpebble.tuning.measure_kernels import Tuning
from tests.support.quantized_models import pruned_network

Floats = NDArray[np.float32]

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


@pytest.mark.parametrize(("batch", "layers"), [(0, [1, 1]), (8, [3]), (128, [1, 1])])
def test_a_dense_layer_joins_sparse_ones_where_it_gains_clearly_at_the_rows_that_are_fixed(
    batch: int, layers: list[int]
) -> None:
    # measured on an Emerald Rapids, 4096 wide: the network is 1.34 times as fast at 8 rows; kernels are alike at 128
    model = pruned_network([512, 2048, 2048, 512], 0.1)
    dense = np.random.default_rng(1).standard_normal((2048, 2048), dtype=np.float32) / 45
    (weight,) = (tensor for tensor in model.graph.initializer if tensor.dims == [2048, 2048])
    weight.CopyFrom(numpy_helper.from_array(dense, weight.name))
    if batch:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    tuning = Tuning(host_target(), ZEN5, None, 0)
    assert [one.layers for one in optimized(model, Options("optimize", tuning=tuning)).networks] == layers


def test_dense_layers_alone_stay() -> None:
    assert taken([2048, 2048, 2048], 0.0, ZEN5, batch=8) == 0


def behind(operators: Sequence[onnx.NodeProto], weight: Floats, shape: Sequence[int | str]) -> onnx.ModelProto:
    """Operators on x, the first of which has a weight w, up to y."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph(operators, "behind", [x], [y], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def left_of(model: onnx.ModelProto, machine: Machine) -> list[str]:
    """The operators that stay, in a model that computes the same."""
    found = optimized(model, Options("optimize", tuning=Tuning(host_target(), machine, None, 0)))
    assert len(found.networks) == 1
    shape = [axis.dim_value or 3 for axis in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    before, after = (InferenceSession(one.SerializeToString()).run(None, {"x": x}) for one in (model, found.proto))
    np.testing.assert_allclose(after[0], before[0], rtol=1e-5, atol=1e-5)
    return [node.op_type for node in found.proto.graph.node if not node.domain]


def sparse(*shape: int) -> Floats:
    rng = np.random.default_rng(4)
    return np.where(rng.random(shape) < 0.05, rng.standard_normal(shape), 0).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "batch", "machine", "left"),
    [
        # 64 x 512 values take 18 us here and 8.5 in onnxruntime, where a node takes 0.7
        ("Sigmoid", 64, AVX2, ["Sigmoid"]),
        ("Erf", 64, AVX2, ["Erf"]),
        # 512 values take 0.15 us less there: not as much as a node
        ("Sigmoid", 1, AVX2, []),
        ("Sigmoid", "n", AVX2, []),
        # twenty times as long there, a few instructions, vectors twice as wide
        ("Softplus", 64, AVX2, []),
        ("Relu", 64, AVX2, []),
        ("Sigmoid", 64, ZEN5, []),
    ],
)
def test_an_activation_behind_a_sparse_layer_stays_where_it_takes_less_time(
    kind: str, batch: int | str, machine: Machine, left: list[str]
) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node(kind, ["h"], ["y"])]
    assert left_of(behind(nodes, sparse(512, 512), [batch, 512]), machine) == left


def test_an_activation_before_a_sparse_layer_stays_and_one_between_two_does_not() -> None:
    nodes = [helper.make_node("Tanh", ["x"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    assert left_of(behind(nodes, sparse(512, 512), [64, 512]), AVX2) == ["Tanh"]
    nodes[:1] = [helper.make_node("MatMul", ["x", "w"], ["i"]), helper.make_node("Tanh", ["i"], ["h"])]
    assert left_of(behind(nodes, sparse(512, 512), [64, 512]), AVX2) == []


@pytest.mark.parametrize(
    ("kinds", "machine", "left"),
    [
        (["Sigmoid"], AVX2, ["Sigmoid"]),
        # a pooling reads a copy here; what stands before it is no longer between layers of ours
        (["Relu", "MaxPool"], AVX2, ["MaxPool"]),
        (["Sigmoid", "MaxPool"], AVX2, ["Sigmoid", "MaxPool"]),
        (["Elu"], AVX2, []),
        (["Sigmoid"], ZEN5, []),
        (["Sigmoid", "MaxPool"], ZEN5, ["MaxPool"]),
    ],
)
def test_what_stands_behind_a_sparse_convolution_stays_where_it_takes_less_time(
    kinds: list[str], machine: Machine, left: list[str]
) -> None:
    names = ["h", *"abc"[: len(kinds) - 1], "y"]
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"], pads=[1] * 4)]
    for kind, source, target in zip(kinds, names, names[1:], strict=False):
        nodes.append(helper.make_node(kind, [source], [target]))
        if kind == "MaxPool":
            nodes[-1].attribute.extend(
                helper.make_attribute(*one) for one in (("kernel_shape", [3, 3]), ("pads", [1] * 4))
            )
    assert left_of(behind(nodes, sparse(32, 32, 3, 3), [1, 32, 28, 28]), machine) == left

"""Weights of four bits: the sweep that makes up for rounding, and the nodes that compute them."""

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from redpebble import prune
from redpebble.pruning.coded_model import packed
from redpebble.pruning.solving.few_bits import Coded, Grid, coded, swept
from redpebble.pruning.solving.methods import METHODS, Sparsity
from redpebble.pruning.solving.refit import loss_of
from redpebble.pruning.solving.structures import structure_of
from tests.pruning.dense_networks import branched_network, samples
from tests.pruning.solving.test_methods import layer_of


@pytest.mark.parametrize(("width", "group"), [(64, 32), (50, 16), (96, 128)])
def test_weights_are_whole_steps_of_their_groups_scale(width: int, group: int) -> None:
    _, weight, hessian = layer_of(400, width, 24)
    grid = Grid(group)
    found = coded(weight * (np.abs(weight) > 0.5), hessian, grid)
    assert found.scales.shape == (-(-width // group), 24)
    steps = found.weight / found.scales.repeat(group, axis=0)[:width]
    whole = np.rint(steps)
    np.testing.assert_allclose(steps, whole, atol=1e-4)
    assert whole.min() >= -8
    assert whole.max() <= 7
    assert not np.any(found.weight[np.abs(weight) <= 0.5])


def test_later_weights_make_up_for_rounded_ones() -> None:
    _, weight, hessian = layer_of(800, 128, 40)
    grid = Grid()
    nearest, _ = grid.nearest(weight)
    assert loss_of(weight, coded(weight, hessian, grid).weight, hessian) < 0.6 * loss_of(weight, nearest, hessian)


@pytest.mark.parametrize("structure", ["equal", "2:4", "n:32", "free"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_loses_less_than_codes_of_its_weights_rounded_to_the_nearest(method: str, structure: str) -> None:
    _, weight, hessian = layer_of(800, 128, 40)
    sparsity, grid = Sparsity(structure_of(structure), 0.5), Grid()
    sparse = METHODS[method].solve(weight, hessian, sparsity)
    nearest, _ = grid.nearest(sparse)
    found = METHODS[method].codes(weight, hessian, sparsity, grid)
    assert np.count_nonzero(found.weight) <= np.count_nonzero(sparse)
    assert loss_of(weight, found.weight, hessian) < loss_of(weight, nearest, hessian)


def test_a_sweep_without_a_grid_is_sparsegpt() -> None:
    _, weight, hessian = layer_of(800, 64, 24)
    sparsity = Sparsity(structure_of("equal"), 0.5)
    found, scales = swept(weight, hessian, lambda scores, _: sparsity.mask(scores), 128)
    np.testing.assert_array_equal(found, METHODS["sparsegpt"].solve(weight, hessian, sparsity))
    assert scales.size == 0


def test_zeros_are_the_code_of_the_zero_and_two_codes_are_a_byte() -> None:
    weight = np.zeros((33, 2), np.float32)
    weight[0, 1], weight[1, 1], weight[32, 0] = -8.0, 7.0, 3.0
    grid = Grid()
    codes = packed(Coded(weight, grid.scales(weight)), grid)
    assert codes.shape == (2, 2, 16)
    assert codes[1, 0, 0] == 0xF0  # -8 is the code 0, 7 is 15
    assert codes[0, 1, 0] == 0x80  # the largest of a group is exact
    assert (codes == 0x88).sum() == codes.size - 2


def test_a_pruned_network_of_four_bits_is_what_onnxruntime_computes_of_its_codes() -> None:
    model, x = branched_network(), samples(200)
    result = prune(model, {"x": x}, sparsity=0.5, precision="int4")
    operators = [node.op_type for node in result.model.graph]
    assert operators.count("MatMulNBits") == 2  # Gemm stays, and so does what is too small
    session = onnxruntime.InferenceSession(ir.to_proto(result.model).SerializeToString())
    dense = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    found, expected = (np.asarray(one.run(None, {"x": x})[0]) for one in (session, dense))
    lost = np.square(found - expected).sum() / np.square(expected - expected.mean(axis=0)).sum()
    assert lost < 2 * result.report.loss + 0.01
    assert 0 < result.report.loss < 0.5


def test_four_bits_are_not_trained() -> None:
    with pytest.raises(ValueError, match="finetune: expected 0 seconds with precision int4, which is not trained"):
        prune(branched_network(), {"x": samples(200)}, sparsity=0.5, precision="int4", finetune=1.0)

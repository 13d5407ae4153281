"""Which neurons are permuted together, which are free, and that permuting them leaves every function as it is."""

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from redpebble.dialect.ops.constants import SparseConstantOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.frontend.import_model import import_model
from redpebble.models.zoo import build
from redpebble.options import Options
from redpebble.passes.analysis.permutation_groups import permutation_groups
from redpebble.passes.neuron_order.permute_neurons import PermuteNeurons
from redpebble.pipeline import passes_of
from redpebble.verification.feeds import inputs_for
from tests.passes.pass_texts import parse, run

ZOO = (
    "bert_ffn",
    "bert_layer",
    "compact(widths=(16, 24, 16), density=0.3, memory=32)",
    "digits",
    "every_activation(width=16)",
    "ffnn(depth=3, width=60, density=0.1)",
    "ffnn(depth=3, width=33, density=0.02, skip=True)",
    "masked_mlp(width=48)",
    "radixnet(layers=2)",
    "resmlp(depth=2, width=32)",
    "structured(width=64)",
)


def module_of(lines: str, result: str = "tensor<?x3xf32>") -> ModuleOp:
    """A function of x [?, 4] with a weight and a bias of each size in 2, 3, 4, all ones."""
    constants = "\n".join(
        f"%w{inputs}{outputs} = pebble.constant dense<1.0> : tensor<{inputs}x{outputs}xf32>"
        for inputs in (2, 3, 4, 5)
        for outputs in (2, 3, 4)
    )
    rows = "\n".join(f"%b{size} = pebble.constant dense<2.0> : tensor<{size}xf32>" for size in (2, 3, 4, 5))
    return parse(f"""
    func.func @main(%x: tensor<?x4xf32>) -> {result} {{
      {constants}
      {rows}
      {lines}
      func.return %y : {result}
    }}""")


def linear(result: str, operand: str, shape: tuple[int, int], bias: bool = False) -> str:
    inputs, outputs = shape
    types = f"tensor<?x{inputs}xf32>, tensor<{inputs}x{outputs}xf32>" + (f", tensor<{outputs}xf32>" if bias else "")
    word = f" bias %b{outputs}" if bias else ""
    weight = f"%w{inputs}{outputs}"
    return f"{result} = pebble.linear {operand}, {weight}{word} : ({types}) -> tensor<?x{outputs}xf32>"


def free_places(module: ModuleOp) -> list[tuple[int, list[tuple[str | None, int, int]]]]:
    """Size and places of each free group that has a value or a constant somebody uses."""
    return [
        (group.size, sorted((value.name_hint, axis, start) for value, axis, start in group.runs))
        for group in permutation_groups(module)
        if not group.pinned
    ]


def test_a_hidden_layer_is_permuted_with_its_weight_its_bias_and_its_readers() -> None:
    module = module_of(linear("%h", "%x", (4, 2), bias=True) + "\n" + linear("%y", "%h", (2, 3), bias=True))
    assert free_places(module) == [(2, [("b2", 0, 0), ("h", 1, 0), ("w23", 0, 0), ("w42", 1, 0)])]


def test_inputs_and_outputs_are_pinned_with_all_that_is_added_to_them() -> None:
    lines = f"""{linear("%h", "%x", (4, 4))}
    %s = pebble.add %x, %h : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    {linear("%y", "%s", (4, 3))}"""
    assert free_places(module_of(lines)) == []


def test_a_weight_that_two_layers_share_ties_their_neurons() -> None:
    lines = f"""{linear("%g", "%x", (4, 3))}
    {linear("%h", "%g", (3, 3))}
    {linear("%i", "%h", (3, 3))}
    {linear("%j", "%i", (3, 2))}
    {linear("%y", "%j", (2, 3))}"""
    sizes = [(size, [name for name, _, _ in places]) for size, places in free_places(module_of(lines))]
    assert sizes == [(3, ["g", "h", "i", "w32", "w33", "w33", "w43"]), (2, ["j", "w23", "w32"])]


def test_concat_and_split_cut_groups_where_their_parts_end() -> None:
    lines = f"""{linear("%g", "%x", (4, 2))}
    {linear("%h", "%x", (4, 3))}
    %c = pebble.concat %g, %h axis 1 : (tensor<?x2xf32>, tensor<?x3xf32>) -> tensor<?x5xf32>
    {linear("%y", "%c", (5, 3))}
    %p, %q = pebble.split %c axis 1 : (tensor<?x5xf32>) -> (tensor<?x4xf32>, tensor<?x1xf32>)"""
    assert free_places(module_of(lines)) == [
        (2, [("c", 1, 0), ("g", 1, 0), ("p", 1, 0), ("w42", 1, 0), ("w53", 0, 0)]),
        (2, [("c", 1, 2), ("h", 1, 0), ("p", 1, 2), ("w43", 1, 0), ("w53", 0, 2)]),
    ]


def test_a_reshape_keeps_its_last_axis_free_and_pins_what_it_merges() -> None:
    lines = """
    %a = pebble.reshape %x to <[_, 2, 2]> : (tensor<?x4xf32>) -> tensor<?x2x2xf32>
    %h = pebble.linear %a, %w24 : (tensor<?x2x2xf32>, tensor<2x4xf32>) -> tensor<?x2x4xf32>
    %f = pebble.reshape %h to <[_, 4]> : (tensor<?x2x4xf32>) -> tensor<?x4xf32>
    %g = pebble.linear %f, %w43 : (tensor<?x4xf32>, tensor<4x3xf32>) -> tensor<?x3xf32>
    %i = pebble.linear %g, %w33 : (tensor<?x3xf32>, tensor<3x3xf32>) -> tensor<?x3xf32>
    %y = pebble.reshape %i to <[_, 3]> : (tensor<?x3xf32>) -> tensor<?x3xf32>"""
    assert free_places(module_of(lines)) == [
        (4, [("f", 1, 0), ("h", 2, 0), ("w24", 1, 0), ("w43", 0, 0)]),
        (3, [("g", 1, 0), ("w33", 0, 0), ("w43", 1, 0)]),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("spec", [*ZOO[:3], *(pytest.param(spec, marks=pytest.mark.slow) for spec in ZOO[3:])])
def test_a_random_permutation_of_every_free_group_leaves_a_model_of_the_zoo_as_it_is(spec: str) -> None:
    model = build(spec)
    module = import_model(model, foreign="refuse").module
    for before in (module, run(module, *passes_of(Options("optimize"), until="choose"))):
        after = run(before, PermuteNeurons(seed=1))
        for batch in (0, 1, 7):
            feeds = inputs_for(model, batch, np.random.default_rng(batch))
            wide = {name: array.astype(np.float64) for name, array in feeds.items()}
            for ours, theirs in zip(interpret(after, wide), interpret(before, wide), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


def test_permuting_moves_the_connections_of_free_neurons_only() -> None:
    module = run(
        import_model(build("ffnn(depth=3, width=60, density=0.1)"), foreign="refuse").module,
        *passes_of(Options("optimize"), until="choose"),
    )
    weights = [
        [op.weight.to_dense() for op in one.walk() if isinstance(op, SparseConstantOp)]
        for one in (module, run(module, PermuteNeurons(seed=1)))
    ]
    for layer, (before, after) in enumerate(zip(*weights, strict=True)):
        assert not np.array_equal(before, after)
        np.testing.assert_array_equal(np.sort(before, axis=None), np.sort(after, axis=None))
        if layer == 0:
            np.testing.assert_array_equal(np.sort(before, axis=1), np.sort(after, axis=1))


def test_joins_of_joins_take_no_more_time_than_ops() -> None:
    lines = [
        f"  %v{n} = pebble.concat %v{n - 1}, %v{n - 1} axis 1 : "
        f"(tensor<2x{1 << n}xf32>, tensor<2x{1 << n}xf32>) -> tensor<2x{2 << n}xf32>"
        for n in range(1, 31)
    ]
    end = f"tensor<2x{2 << 30}xf32>"
    text = "\n".join((f"func.func @main(%v0: tensor<2x2xf32>) -> {end} {{", *lines, f"  func.return %v30 : {end}", "}"))
    assert len(permutation_groups(parse(text))) < 2000

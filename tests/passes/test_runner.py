"""What the pass manager holds passes to."""

import pytest
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass
from xdsl.transforms.canonicalize import CanonicalizePass
from xdsl.utils.exceptions import PassFailedException, VerifyException

from redpebble.dialect.ops.elementwise import ActivateOp
from redpebble.dialect.tensors import f32_tensor
from redpebble.passes.analysis.dominance import check_def_before_use
from redpebble.passes.rewriting.erase_unused import erase_unused
from redpebble.passes.runner import run_passes
from redpebble.passes.simplify.fuse_layers import FuseLayers
from redpebble.passes.simplify.sparsify import Sparsify
from tests.passes.pass_texts import context, parse

TWO_STEPS = """
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %h = pebble.activate <relu> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %y = pebble.activate <tanh> %h : (tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
"""


class SwapSteps(ModulePass):
    """Puts the second activation before the first, whose result it reads."""

    name = "swap-steps"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        first, second = (found for found in op.walk() if isinstance(found, ActivateOp))
        second.detach()
        if first.parent is not None:
            first.parent.insert_op_before(second, first)


class WidenResult(ModulePass):
    """Gives an activation a result that its operand does not have."""

    name = "widen-result"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        first, _ = (found for found in op.walk() if isinstance(found, ActivateOp))
        wide = ActivateOp.create(
            operands=[first.x], result_types=[f32_tensor((3, 3))], properties=dict(first.properties)
        )
        if first.parent is not None:
            first.parent.insert_op_before(wide, first)


def test_passes_run_in_order_and_each_is_told_of() -> None:
    told: list[str] = []
    run_passes(context(), parse(TWO_STEPS), [FuseLayers(), Sparsify()], lambda done, _: told.append(done.name))
    assert told == ["pebble-fuse-layers", "pebble-sparsify"]


def test_a_refusal_names_the_pass_and_the_one_before() -> None:
    passes = [CanonicalizePass(), FuseLayers(), Sparsify(threshold=2.0)]
    with pytest.raises(PassFailedException) as raised:
        run_passes(context(), parse(TWO_STEPS), passes)
    assert str(raised.value) == "pebble-sparsify: expected a threshold of 0 to 1, got 2.0 (after pebble-fuse-layers)"


def test_a_use_before_its_definition_is_found() -> None:
    told: list[str] = []
    with pytest.raises(PassFailedException) as raised:
        run_passes(context(), parse(TWO_STEPS), [SwapSteps()], lambda done, _: told.append(done.name))
    assert str(raised.value) == (
        "swap-steps: operand 0 of pebble.activate is used before pebble.activate defines it (after no other pass)"
    )
    assert not told


def test_a_module_that_does_not_verify_is_found_and_told_in_one_line() -> None:
    with pytest.raises(PassFailedException) as raised:
        run_passes(context(), parse(TWO_STEPS), [WidenResult()])
    assert str(raised.value) == "widen-result: expected result ?x2, got 3x3 (after no other pass)"


BRANCHES = """
func.func @main(%x: tensor<2xf32>, %on: i1) -> tensor<2xf32> {
  cf.cond_br %on, ^side, ^last
^side:
  %a = pebble.activate <relu> %x : (tensor<2xf32>) -> tensor<2xf32>
  cf.br ^last
^last:
  %b = pebble.activate <relu> %VALUE : (tensor<2xf32>) -> tensor<2xf32>
  func.return %b : tensor<2xf32>
}
"""


def test_a_value_of_another_branch_is_not_visible() -> None:
    check_def_before_use(parse(BRANCHES.replace("VALUE", "x")))
    with pytest.raises(VerifyException, match=r"operand 0 of pebble\.activate is used before pebble\.activate"):
        check_def_before_use(parse(BRANCHES.replace("VALUE", "a")))


class KeepFirstOp(ModulePass):
    """Drops all ops of a function but the first, also the one that returns."""

    name = "keep-first-op"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        first, *others = next(found for found in op.walk() if isinstance(found, FuncOp)).body.block.ops
        for other in reversed(others):
            other.detach()
            other.drop_all_references()
        assert first.next_op is None


class ChangeKind(ModulePass):
    """Changes a property of an op, which stays where it is, into one that the op does not take."""

    name = "change-kind"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        first, _ = (found for found in op.walk() if isinstance(found, ActivateOp))
        first.properties["kind"] = StringAttr("tanh")


@pytest.mark.parametrize("broken", [KeepFirstOp(), ChangeKind()])
def test_ops_that_a_pass_changed_are_verified_after_it(broken: ModulePass) -> None:
    with pytest.raises(PassFailedException, match=rf"^{broken.name}: .* \(after canonicalize\)$"):
        run_passes(context(), parse(TWO_STEPS), [CanonicalizePass(), broken, Sparsify()])


def test_what_an_activation_nobody_reads_reads_goes_with_it() -> None:
    module = parse(TWO_STEPS.replace("return %y", "return %x"))
    erase_unused(module.body)
    assert [op.name for op in module.walk()] == ["builtin.module", "func.func", "func.return"]


def test_a_large_module_is_verified_behind_the_last_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redpebble.passes.runner.MOST_OFTEN_VERIFIED", 1)
    with pytest.raises(PassFailedException, match=r"^pebble-fuse-layers: .* \(after swap-steps\)"):
        run_passes(context(), parse(TWO_STEPS), [SwapSteps(), FuseLayers()])
    told: list[str] = []
    with pytest.raises(PassFailedException, match=r"^swap-steps: .* \(after no other pass\)"):
        run_passes(context(), parse(TWO_STEPS), [SwapSteps(), FuseLayers()], lambda done, _: told.append(done.name))

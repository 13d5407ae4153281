"""Spelled-out layers are recognized however they are written: operands swapped, factors in any order."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, DivOp, MulOp, SubOp
from redpebble.dialect.ops.layers import LayerNormOp, ReduceMeanOp, RmsNormOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.passes.simplify.recognize_layers import RecognizeLayers
from tests.passes.pass_texts import all_of, assert_same_function, only, run

FEATURES = 4


@dataclass
class Speller:
    """Writes expressions of x; a generator decides what can be written in several ways."""

    rng: np.random.Generator
    block: Block

    @property
    def x(self) -> SSAValue:
        return self.block.args[0]

    def add_op(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    def number(self, value: float) -> SSAValue:
        shape = [(), (1,), (1, 1)][int(self.rng.integers(0, 3))]
        return self.add_op(ConstantOp(np.full(shape, value, dtype=np.float32)))

    def features(self) -> SSAValue:
        shape = [(FEATURES,), (1, FEATURES)][int(self.rng.integers(0, 2))]
        return self.add_op(ConstantOp(self.rng.standard_normal(shape).astype(np.float32)))

    def activate(self, kind: str, x: SSAValue, *parameters: float) -> SSAValue:
        return self.add_op(ActivateOp(x, ActivationAttr(kind, parameters)))

    def plus(self, left: SSAValue, right: SSAValue) -> SSAValue:
        return self.add_op(AddOp(*self.shuffled(left, right)))

    def times(self, *factors: SSAValue) -> SSAValue:
        product, *rest = self.shuffled(*factors)
        for factor in rest:
            product = self.add_op(MulOp(*self.shuffled(product, factor)))
        return product

    def shuffled(self, *values: SSAValue) -> list[SSAValue]:
        return [values[index] for index in self.rng.permutation(len(values))]

    def scaled(self, x: SSAValue, factor: float) -> SSAValue:
        if self.rng.random() < 0.5:
            return self.add_op(DivOp(x, self.number(1.0 / factor)))
        return self.times(x, self.number(factor))

    def squared(self, x: SSAValue) -> SSAValue:
        return self.activate("square", x) if self.rng.random() < 0.5 else self.add_op(MulOp(x, x))

    def divided(self, value: SSAValue, root: SSAValue) -> SSAValue:
        if self.rng.random() < 0.5:
            return self.add_op(DivOp(value, root))
        if self.rng.random() < 0.5:
            return self.times(value, self.activate("reciprocal", root))
        return self.times(value, self.add_op(DivOp(self.number(1.0), root)))


def gelu(spell: Speller) -> SSAValue:
    gate = spell.plus(spell.activate("erf", spell.scaled(spell.x, 0.70710678)), spell.number(1.0))
    return spell.times(spell.x, gate, spell.number(0.5))


def gelu_tanh(spell: Speller) -> SSAValue:
    cube = spell.times(spell.x, spell.squared(spell.x), spell.number(0.044715))
    argument = spell.scaled(spell.plus(spell.x, cube), 0.7978845608)
    gate = spell.plus(spell.number(1.0), spell.activate("tanh", argument))
    return spell.times(spell.number(0.5), spell.x, gate)


def gelu_tanh_factored(spell: Speller) -> SSAValue:
    inner = spell.plus(spell.number(1.0), spell.times(spell.number(0.044715), spell.squared(spell.x)))
    gate = spell.plus(spell.number(1.0), spell.activate("tanh", spell.times(spell.x, spell.number(0.79788), inner)))
    return spell.times(spell.number(0.5), spell.x, gate)


def silu(spell: Speller) -> SSAValue:
    return spell.times(spell.x, spell.activate("sigmoid", spell.scaled(spell.x, 1.702)))


def mish(spell: Speller) -> SSAValue:
    return spell.times(spell.x, spell.activate("tanh", spell.activate("softplus", spell.x)))


def hard_swish(spell: Speller) -> SSAValue:
    gate = spell.activate("clip", spell.plus(spell.x, spell.number(3.0)), 0.0, 6.0)
    return spell.scaled(spell.times(spell.x, gate), 1.0 / 6.0)


def hard_swish_by_sigmoid(spell: Speller) -> SSAValue:
    return spell.times(spell.x, spell.activate("hard_sigmoid", spell.x, 0.1666666716337204, 0.5))


ACTIVATIONS: dict[str, tuple[Callable[[Speller], SSAValue], str]] = {
    "gelu": (gelu, "gelu"),
    "gelu_tanh": (gelu_tanh, "gelu_tanh"),
    "gelu_tanh_factored": (gelu_tanh_factored, "gelu_tanh"),
    "silu": (silu, "silu"),
    "mish": (mish, "mish"),
    "hard_swish": (hard_swish, "hard_swish"),
    "hard_swish_by_sigmoid": (hard_swish_by_sigmoid, "hard_swish"),
}


def layer_norm(spell: Speller) -> SSAValue:
    centred = spell.add_op(SubOp(spell.x, spell.add_op(ReduceMeanOp(spell.x))))
    again = centred
    if spell.rng.random() < 0.5:
        again = spell.add_op(SubOp(spell.x, spell.add_op(ReduceMeanOp(spell.x))))
    variance = spell.plus(spell.add_op(ReduceMeanOp(spell.squared(again))), spell.number(1e-5))
    return spell.divided(centred, spell.activate("sqrt", variance))


def rms_norm(spell: Speller) -> SSAValue:
    mean = spell.plus(spell.add_op(ReduceMeanOp(spell.squared(spell.x))), spell.number(1e-5))
    return spell.divided(spell.x, spell.activate("sqrt", mean))


def spelled(seed: int, expression: Callable[[Speller], SSAValue]) -> ModuleOp:
    tensor = f32_tensor((DYNAMIC, FEATURES))
    block = Block(arg_types=[tensor])
    result = expression(Speller(np.random.default_rng(seed), block))
    block.add_op(ReturnOp(result))
    module = ModuleOp([FuncOp("main", ([tensor], [result.type]), Region(block))])
    module.verify()
    return module


def feeds() -> list[dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]]:
    rng = np.random.default_rng(0)
    return [{"x": 3.0 * rng.standard_normal((batch, FEATURES))} for batch in (0, 1, 7)]


seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("name", ACTIVATIONS)
@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_an_activation_is_recognized_in_any_order(name: str, seed: int) -> None:
    expression, kind = ACTIVATIONS[name]
    before = spelled(seed, expression)
    after = run(before, RecognizeLayers())
    assert only(after, ActivateOp).activation.kind == kind
    assert not all_of(after, BinaryOp)
    assert_same_function(before, after, feeds())


@settings(max_examples=40, deadline=None)
@given(seed=seeds, scaled=st.booleans(), shifted=st.booleans())
def test_a_layer_norm_is_recognized_with_scale_and_bias(seed: int, *, scaled: bool, shifted: bool) -> None:
    def expression(spell: Speller) -> SSAValue:
        norm = layer_norm(spell)
        norm = spell.times(norm, spell.features()) if scaled else norm
        return spell.plus(norm, spell.features()) if shifted else norm

    before = spelled(seed, expression)
    after = run(before, RecognizeLayers())
    assert (only(after, LayerNormOp).bias is not None) == shifted
    assert not all_of(after, BinaryOp)
    assert_same_function(before, after, feeds())


@settings(max_examples=40, deadline=None)
@given(seed=seeds, scaled=st.booleans())
def test_an_rms_norm_is_recognized_with_scale(seed: int, *, scaled: bool) -> None:
    before = spelled(seed, lambda spell: spell.times(rms_norm(spell), spell.features()) if scaled else rms_norm(spell))
    after = run(before, RecognizeLayers())
    only(after, RmsNormOp)
    assert not all_of(after, BinaryOp)
    assert_same_function(before, after, feeds())

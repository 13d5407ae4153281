"""Heads of attentions that nothing reads, or whose values are zeros, go; the function stays."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.attention import AttentionOp, Heads, Weighting
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.movement import ReshapeOp, SplitOp, TargetShapeAttr, TransposeOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor, shape_of
from redpebble.passes.simplify.drop_dead_units import DropDeadUnits
from redpebble.sparse.csr import CscMatrix
from tests.passes.pass_texts import all_of, assert_same_function, only, run

Matrix = NDArray[np.float32]

WIDTH, SIZE = 5, 3


class Case(NamedTuple):
    """An attention of so many heads of queries and of keys between layers; weights [inputs, outputs]."""

    heads: Heads = Heads(4, 4)
    query: Matrix | None = None
    value: Matrix | None = None
    value_bias: Matrix | None = None
    read: Matrix | None = None
    mask_heads: int = 0
    is_sparse: bool = False
    value_activation: ActivationAttr | None = None

    @property
    def queries(self) -> int:
        return self.heads.queries * SIZE

    @property
    def keys(self) -> int:
        return self.heads.keys * SIZE


def weights(case: Case, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)

    def random(*shape: int) -> Matrix:
        return rng.standard_normal(shape).astype(np.float32)

    return case._replace(
        query=random(WIDTH, case.queries),
        value=random(WIDTH, case.keys),
        value_bias=random(case.keys),
        read=random(case.queries, WIDTH),
    )


def module_of(case: Case, seed: int = 0) -> ModuleOp:
    rng = np.random.default_rng(seed)
    block = Block(arg_types=[f32_tensor((DYNAMIC, 6, WIDTH))])

    def layer(x: object, matrix: Matrix, bias: Matrix, activation: ActivationAttr | None = None) -> LinearOp:
        weight = SparseConstantOp(CscMatrix.from_dense(matrix)) if case.is_sparse else ConstantOp(matrix)
        constant = ConstantOp(bias)
        made = LinearOp(x, weight.result, constant.result, activation)  # pyright: ignore[reportArgumentType]
        block.add_ops([weight, constant, made])
        return made

    assert case.query is not None
    assert case.value is not None
    assert case.value_bias is not None
    assert case.read is not None
    x = block.args[0]
    q = layer(x, case.query, np.ones(case.queries, np.float32))
    k = layer(x, rng.standard_normal((WIDTH, case.keys)).astype(np.float32), np.ones(case.keys, np.float32))
    v = layer(x, case.value, case.value_bias, case.value_activation)
    mask = None
    if case.mask_heads:
        constant = ConstantOp(rng.standard_normal((1, case.mask_heads, 6, 6)).astype(np.float32))
        block.add_op(constant)
        mask = constant.result
    attention = AttentionOp((q.result, k.result, v.result), mask, case.heads, Weighting(0.5))
    block.add_op(attention)
    y = layer(attention.result, case.read, np.ones(WIDTH, np.float32))
    block.add_op(ReturnOp(y.result))
    return ModuleOp([FuncOp("main", ([x.type], [y.result.type]), Region(block))])


def check(case: Case, kept: Heads) -> ModuleOp:
    before = module_of(case)
    after = run(before, DropDeadUnits())
    attention = only(after, AttentionOp)
    assert attention.head_counts == kept
    assert shape_of(attention.q)[-1] == kept.queries * SIZE
    assert shape_of(attention.v)[-1] == kept.keys * SIZE
    rng = np.random.default_rng(1)
    assert_same_function(before, after, [{"x": rng.standard_normal((batch, 6, WIDTH))} for batch in (0, 1, 7)])
    return after


def without(matrix: Matrix | None, heads: list[int], axis: int, size: int = SIZE) -> Matrix:
    assert matrix is not None
    found = matrix.copy()
    for head in heads:
        part = slice(head * size, (head + 1) * size)
        found[(part,) if axis == 0 else (slice(None), part)] = 0
    return found


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("mask_heads", [0, 1, 4])
def test_heads_that_nobody_reads_are_dropped(is_sparse: bool, mask_heads: int) -> None:
    case = weights(Case(is_sparse=is_sparse, mask_heads=mask_heads))
    check(case._replace(read=without(case.read, [0, 2], 0)), Heads(2, 2))


def test_heads_of_zeros_are_dropped_and_those_of_a_bias_stay() -> None:
    case = weights(Case())
    zeros = case._replace(value=without(case.value, [1, 3], 1))
    check(zeros, Heads(4, 4))
    assert zeros.value_bias is not None
    check(zeros._replace(value_bias=without(zeros.value_bias[None], [1], 1)[0]), Heads(3, 3))
    # sigmoid makes a half of zero
    cleared = zeros._replace(value_bias=np.zeros_like(zeros.value_bias))
    check(cleared._replace(value_activation=ActivationAttr("sigmoid")), Heads(4, 4))


def test_queries_of_shared_keys_go_together() -> None:
    case = weights(Case(heads=Heads(6, 2)))
    check(case._replace(read=without(case.read, [0, 1], 0)), Heads(6, 2))
    check(case._replace(read=without(case.read, [0, 1, 2], 0)), Heads(3, 1))


def test_one_head_stays() -> None:
    case = weights(Case())
    check(case._replace(read=np.zeros_like(without(case.read, [], 0))), Heads(1, 1))


def test_what_is_not_finite_stays() -> None:
    case = weights(Case())
    read = without(case.read, [0, 1], 0)
    value = without(case.value, [], 1)
    value[0, 0] = np.nan
    before = module_of(case._replace(read=read, value=value))
    assert only(run(before, DropDeadUnits()), AttentionOp).head_counts == Heads(4, 4)


def test_layers_that_somebody_else_reads_stay() -> None:
    case = weights(Case())
    before = module_of(case._replace(read=without(case.read, [0], 0)))
    function = only(before, FuncOp)
    attention = only(before, AttentionOp)
    end = function.body.block.last_op
    assert end is not None
    end.operands = [*end.operands, attention.v]
    assert only(run(before, DropDeadUnits()), AttentionOp).head_counts == Heads(4, 4)
    assert len(all_of(before, LinearOp)) == 4


def joint_module(order: list[int], *, moves_rows: bool, reads_more: bool, samples: int = DYNAMIC) -> ModuleOp:
    """One layer makes queries, keys and values of 4 heads; `order` says where they lie among its outputs."""
    rng, heads = np.random.default_rng(0), Heads(4, 4)
    block = Block(arg_types=[f32_tensor((samples, 6, WIDTH))])
    x = block.args[0]
    matrix = rng.standard_normal((WIDTH, 36)).astype(np.float32)
    weight, bias = ConstantOp(matrix), ConstantOp(rng.standard_normal(36).astype(np.float32))
    made = LinearOp(x, weight.result, bias.result)
    moved = TransposeOp(made.result, [1, 0, 2]) if moves_rows else made
    back = TransposeOp(moved.result, [1, 0, 2]) if moves_rows else made
    parts = SplitOp(back.result, 2, [12, 12, 12])
    attention = AttentionOp(tuple(parts.parts[index] for index in order), None, heads, Weighting(0.5))  # pyright: ignore[reportArgumentType]
    read = rng.standard_normal((12, WIDTH)).astype(np.float32)
    reader = ConstantOp(without(read, [1, 2], 0))
    y = LinearOp(attention.result, reader.result)
    ops = [weight, bias, made, *([moved, back] if moves_rows else []), parts, attention, reader, y]
    block.add_ops(ops)
    results = [y.result, made.result] if reads_more else [y.result]
    block.add_op(ReturnOp(*results))
    return ModuleOp([FuncOp("main", ([x.type], [one.type for one in results]), Region(block))])


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 1, 1]])
@pytest.mark.parametrize("moves_rows", [False, True])
@pytest.mark.parametrize("reads_more", [False, True])
def test_a_joint_layer_is_taken_apart_where_a_head_is_unread(
    order: list[int], moves_rows: bool, reads_more: bool
) -> None:
    before = joint_module(order, moves_rows=moves_rows, reads_more=reads_more)
    after = run(before, DropDeadUnits())
    assert only(after, AttentionOp).head_counts == Heads(2, 2)
    assert len(all_of(after, LinearOp)) == 4 + reads_more
    rng = np.random.default_rng(1)
    assert_same_function(before, after, [{"x": rng.standard_normal((batch, 6, WIDTH))} for batch in (0, 1, 7)])


def test_a_joint_layer_whose_rows_are_others_stays() -> None:
    """Samples change their places on the way: each value has the outputs of a part, in rows of another place."""
    before = joint_module([0, 1, 2], moves_rows=False, reads_more=False, samples=4)
    parts, made = only(before, SplitOp), next(one for one in all_of(before, LinearOp))
    apart = ReshapeOp(made.result, TargetShapeAttr((2, 2, 6, 36)))
    exchanged = TransposeOp(apart.result, [1, 0, 2, 3])
    back = ReshapeOp(exchanged.result, TargetShapeAttr((4, 6, 36)))
    assert parts.parent is not None
    parts.parent.insert_ops_before([apart, exchanged, back], parts)
    parts.operands[0] = back.result
    after = run(before, DropDeadUnits())
    assert only(after, AttentionOp).head_counts == Heads(4, 4)
    assert len(all_of(after, LinearOp)) == 2


@pytest.mark.parametrize("samples", [6, DYNAMIC])
def test_heads_of_rows_of_tokens_are_dropped(samples: int) -> None:
    """Rows are [tokens, samples] in layers, and [samples, tokens] in the attention, as in that of torch."""
    before = joint_module([0, 1, 2], moves_rows=False, reads_more=False, samples=samples)
    parts, attention = only(before, SplitOp), only(before, AttentionOp)
    made, reader = all_of(before, LinearOp)
    turned, block = TransposeOp(made.result, [1, 0, 2]), parts.parent
    assert block is not None
    moved = SplitOp(turned.result, 2, [12, 12, 12])
    other = AttentionOp(tuple(moved.parts), None, Heads(4, 4), Weighting(0.5))  # pyright: ignore[reportArgumentType]
    back = TransposeOp(other.result, [1, 0, 2])
    block.insert_ops_before([turned, moved, other, back], parts)
    reader.operands[0] = back.result
    for one in (attention, parts):
        block.erase_op(one)
    before.verify()
    after = run(before, DropDeadUnits())
    assert only(after, AttentionOp).head_counts == Heads(2, 2)
    rng = np.random.default_rng(1)
    batches = (6,) if samples != DYNAMIC else (0, 1, 7)
    assert_same_function(before, after, [{"x": rng.standard_normal((batch, 6, WIDTH))} for batch in batches])

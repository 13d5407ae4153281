"""Groups of neurons and modules of networks with a hidden order: bands, blocks, strides, and random ones, shuffled."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.sparse.csr import CscMatrix, CsrPattern
from redpebble.theory.neuron_order.neuron_groups import Axis, GroupedWeight, NeuronGroups

Mask = NDArray[np.bool_]


def rows_of(mask: Mask) -> CsrPattern:
    """What the outputs of a mask [inputs, outputs] read."""
    pointers = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(mask.sum(axis=0))))
    return CsrPattern(pointers, np.nonzero(mask.T)[1], mask.shape[0])


def band(width: int, reach: int, each: int, rng: np.random.Generator) -> Mask:
    """Output n reads `each` of the inputs n to n + reach, from the start again behind the last."""
    return _reading((np.arange(width)[:, None] + rng.random((width, reach)).argsort(axis=1)[:, :each]) % width)


def blocks(width: int, size: int, each: int, rng: np.random.Generator) -> Mask:
    """Output n reads `each` inputs of its block."""
    return _reading(np.arange(width)[:, None] // size * size + rng.random((width, size)).argsort(axis=1)[:, :each])


def _reading(reads: NDArray[np.int64]) -> Mask:
    mask = np.zeros((len(reads), len(reads)), dtype=np.bool_)
    mask[reads, np.arange(len(reads))[:, None]] = True
    return mask


def shuffled(masks: Sequence[Mask], rng: np.random.Generator) -> list[Mask]:
    """The masks of consecutive layers with the neurons of every layer in another order, inputs and outputs too."""
    orders = [rng.permutation(len(mask)) for mask in masks] + [rng.permutation(masks[-1].shape[1])]
    return [mask[orders[at]][:, orders[at + 1]] for at, mask in enumerate(masks)]


def chain_groups(masks: Sequence[Mask]) -> NeuronGroups:
    """The groups of consecutive layers: the first and the last are pinned."""
    sizes = [len(masks[0]), *(mask.shape[1] for mask in masks)]
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
    axes = [
        Axis(start + np.arange(size), np.zeros(size, dtype=np.int64))
        for start, size in zip(starts[:-1], sizes, strict=True)
    ]
    weights = [GroupedWeight(rows_of(mask), axes[at], axes[at + 1]) for at, mask in enumerate(masks)]
    free = np.array([False, *[True] * (len(masks) - 1), False])
    return NeuronGroups(starts, free, tuple(weights))


def chain_module(masks: Sequence[Mask], rng: np.random.Generator) -> ModuleOp:
    """The layers as a module: sparse weights, biases, and Relu between them."""
    block = Block(arg_types=[f32_tensor((DYNAMIC, len(masks[0])))])
    value = block.args[0]
    for number, mask in enumerate(masks):
        dense = np.where(mask, rng.standard_normal(mask.shape, dtype=np.float32), np.float32(0))
        weight, bias = SparseConstantOp(CscMatrix.from_dense(dense)), ConstantOp(dense.sum(axis=0))
        relu = ActivationAttr("relu") if number < len(masks) - 1 else None
        layer = LinearOp(value, weight.result, bias.result, relu)
        block.add_ops([weight, bias, layer])
        value = layer.result
    block.add_op(ReturnOp(value))
    return ModuleOp([FuncOp("main", ((block.args[0].type,), (value.type,)), Region(block))])

"""Convolutions that are predicted to gain by eight bits, together with the convolutions that pass codes to them.

Sparse convolutions gain. A depthwise convolution is quantized together with the sparse convolutions beside it, or the
whole group stays in floats, whichever is predicted to take less time. A dense convolution before or behind them is
quantized where that takes no longer than the runtime and the way there and back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from xdsl.dialects.builtin import FloatAttr, ModuleOp, f64
from xdsl.ir import Operation, SSAValue

from ..dialect.attributes.codes import CodesAttr
from ..dialect.ops.constants import ConstantOp, SparseConstantOp
from ..dialect.ops.elementwise import ActivateOp, ConvertOp
from ..dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp
from ..dialect.ops.quantized_layers import QuantizedLayer
from ..kernels.image_prices import TOUCHED_US, image_shares
from ..kernels.machine import Machine
from ..passes.analysis.weights import weight_of
from ..passes.images.convolution_kernels import choose_for_convolutions, dense_convolution_us
from ..passes.images.image_layers import (
    dense_us,
    is_better_outside,
    is_sparse_convolution,
    layer_us,
    pixels_of,
)
from ..passes.kernels.choose_quantized_kernels import choose_for_convolution
from ..sparse.csr import CscMatrix

Convolution = Conv2dOp | Depthwise2dOp

BESIDE: Final = "is beside a depthwise convolution, with which floats are predicted to be as fast"
"""The reason why a sparse convolution stays as it is."""


def convolutions_of(module: ModuleOp, *, takes_all: bool = True) -> list[Convolution]:
    """Return convolutions of constants, or the sparse ones alone."""
    found = [op for op in module.walk() if isinstance(op, Convolution) and weight_of(op.weight) is not None]
    found = [op for op in found if op.bias is None or isinstance(op.bias.owner, ConstantOp)]
    found = [op for op in found if isinstance(op, Depthwise2dOp) or op.times is None]
    return [op for op in found if takes_all or is_sparse_convolution(op)]


def source_of(value: SSAValue) -> SSAValue:
    """Return the result of the convolution before max poolings, which move codes as they are; else the value."""
    source = value
    while isinstance(source.owner, Pool2dOp) and source.owner.kind.data == "max":
        source = source.owner.x
    return source if isinstance(source.owner, ActivateOp | Convolution) else value


def matrix_of(op: Convolution) -> CscMatrix:
    """Return the weight of a convolution as that of a layer of the taps of all channels, without zeros.

    Raises:
        ValueError: it is no constant.
    """
    weight = weight_of(op.weight)
    if weight is None:
        raise ValueError("a weight is no constant")
    if isinstance(weight, CscMatrix):
        return weight
    if isinstance(op, Conv2dOp):
        return CscMatrix.from_dense(weight)
    taps, channels = weight.shape
    pointers = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.count_nonzero(weight, axis=0))))
    channel, tap = np.nonzero(weight.T)
    return CscMatrix((taps * channels, channels), pointers, channel * taps + tap, weight[tap, channel])


def runtime_us(op: Convolution, machine: Machine) -> float:
    """Return the microseconds that an image takes by onnxruntime's dense convolution of floats."""
    if isinstance(op, Conv2dOp):
        return dense_convolution_us(op, machine)
    return dense_us([op], image_shares(machine))


def gaining_convolutions(ops: Sequence[Convolution], machine: Machine) -> list[Convolution]:
    """Return the convolutions among some, in the order of execution, that are to compute with codes."""
    times, chosen = _Times(machine), set[Convolution]()
    for group in _groups([op for op in ops if is_sparse_convolution(op) or isinstance(op, Depthwise2dOp)]):
        sparse = [op for op in group if isinstance(op, Conv2dOp)]
        if not sparse:
            continue
        apart = [op for op in sparse if not any(isinstance(one, Depthwise2dOp) for one in _beside(op))]
        chosen.update(group if len(apart) == len(sparse) or times.of_codes(group) < times.of_floats(group) else apart)
    for op in reversed(ops):
        is_dense = isinstance(op, Conv2dOp) and not is_sparse_convolution(op)
        if is_dense and _passes_codes(op, chosen) and not times.is_better_outside(op):
            chosen.add(op)
    return [op for op in ops if op in chosen]


def _groups(ops: Sequence[Convolution]) -> list[list[Convolution]]:
    """Return convolutions by what joins them: one reads, as windows or in a sum, what another yields."""
    group_of: dict[Operation, list[Convolution]] = {op: [op] for op in ops}
    for op in ops:
        for value in _read(op):
            mine, theirs = group_of[op], group_of.get(value.owner, []) if isinstance(value.owner, Operation) else []
            if theirs and mine is not theirs:
                mine += theirs
                group_of |= dict.fromkeys(theirs, mine)
    return list({id(group): group for group in group_of.values()}.values())


def _read(op: Convolution) -> list[SSAValue]:
    """Return the values that a convolution reads, traced back through max poolings."""
    residual = op.residual if isinstance(op, Conv2dOp) else None
    return [source_of(value) for value in (op.x, residual) if value is not None]


def _readers(value: SSAValue) -> Iterator[Operation]:
    """Yield the ops that read a value, those behind poolings of the largest instead of these."""
    for use in value.uses:
        op = use.operation
        if isinstance(op, Pool2dOp) and op.kind.data == "max":
            yield from _readers(op.result)
        else:
            yield op


def _beside(op: Conv2dOp) -> list[Operation]:
    """Return the ops before a convolution and behind it."""
    before = source_of(op.x).owner
    return [*([before] if isinstance(before, Operation) else []), *_readers(op.result)]


def _passes_codes(op: Convolution, chosen: set[Convolution]) -> bool:
    """Return whether a convolution reads quantized values of chosen ones, or only chosen ones read its result."""
    readers = list(_readers(op.result))
    return source_of(op.x).owner in chosen or (bool(readers) and all(reader in chosen for reader in readers))


@dataclass(frozen=True)
class _Times:
    """Predicted microseconds of an image on a machine."""

    machine: Machine

    def of_floats(self, group: Sequence[Convolution]) -> float:
        twins = [op.clone() for op in group]
        choose_for_convolutions([twin for twin in twins if isinstance(twin, Conv2dOp)], self.machine)
        total = sum(layer_us(twin, image_shares(self.machine)) for twin in twins)
        for twin in twins:
            twin.drop_all_references()
        return total

    def of_codes(self, group: Sequence[Convolution]) -> float:
        """Return the time of the same on codes, with the sums and roundings that are ops of their own."""
        sums = [op.result for op in group if isinstance(op, Conv2dOp) and op.residual is not None]
        rounded = {op.x for op in group if isinstance(op.x.owner, Operation) and source_of(op.x).owner not in group}
        touched = sum(map(pixels_of, (*sums, *sums, *rounded)))
        shares = image_shares(self.machine)
        return shares.values * TOUCHED_US * touched + sum(map(self._of_one, group))

    def _of_one(self, op: Convolution) -> float:
        made = self._in_codes(op)
        time = layer_us(made, image_shares(self.machine))
        _drop(made)
        return time

    def is_better_outside(self, op: Convolution) -> bool:
        """Return whether a dense convolution takes less time with the runtime, on the way there and back."""
        made = self._in_codes(op)
        result = is_better_outside(made, image_shares(self.machine))
        _drop(made)
        return result

    def _in_codes(self, op: Convolution) -> Conv2dOp:
        """Return a convolution on some codes, with its times; it stands nowhere."""
        weight, one = SparseConstantOp(matrix_of(op)), ConstantOp(np.ones(op.result.type.get_shape()[1], np.float32))
        codes = CodesAttr("u8", 1.0, 0)
        layer = QuantizedLayer("", weight.result, one.result, one.result, codes, op.activation)
        made = Conv2dOp.of_codes(ConvertOp(op.x, codes).result, layer, op.window)
        made.dense_us = FloatAttr(runtime_us(op, self.machine), f64)
        choose_for_convolution(made, self.machine.prices)
        return made


def _drop(made: Conv2dOp) -> None:
    """Drop a convolution that stands nowhere, and the rounding before it."""
    rounding = made.x.owner
    made.drop_all_references()
    if isinstance(rounding, ConvertOp):
        rounding.drop_all_references()

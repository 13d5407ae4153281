"""Linear layers as the cost model sees them, and times that a clock found, in words that a pass option can hold."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import SSAValue
from xdsl.utils.hints import isa

from ...dialect.ops.constants import SparseConstantOp, few_bits_of
from ...dialect.ops.layers import LinearOp
from ...kernels.few_bits_times import FewBits
from ...kernels.layer_with_pattern import LayerWithPattern
from ...kernels.machine import Machine
from ...kernels.prediction import candidates, predicted_us
from ...kernels.tile_widths import WIDTHS, time_of_rows
from ...kernels.work import Layer
from ...sparse.csr import CscMatrix, stored_bytes
from .weights import Weight, weight_of

OTHER_BYTES_UNIT: Final = 1 << 19
"""Other layers are told apart by powers of two of this size: a measured time is for about the same surroundings."""


SCALES_SHARE: Final = 1 / 16
"""Bytes of the scales of a weight that is codes: two for 32 of them."""


class Measurement(NamedTuple):
    """The time that a family took on a layer at a tile width; `layer` is its `layer_key`.

    `blocks` are the family's blocks of inputs, 0 for a family without them and for the usual number.
    """

    layer: str
    width: int
    family: str
    microseconds: float
    blocks: int = 0

    def __str__(self) -> str:
        kernel = f"{self.family}:{self.blocks}" if self.blocks else self.family
        return f"{self.layer}@{self.width} {kernel} {self.microseconds:.4g}"

    @staticmethod
    def parse(text: str) -> "Measurement":
        """Return what `str` made a text from.

        Raises:
            ValueError: the text is something else.
        """
        try:
            key, kernel, time = text.split()
            layer, width = key.split("@")
            family, _, blocks = kernel.partition(":")
            return Measurement(layer, int(width), family, float(time), int(blocks or 0))
        except ValueError:
            accepted = "LAYER@WIDTH FAMILY MICROSECONDS or LAYER@WIDTH FAMILY:BLOCKS MICROSECONDS"
            raise ValueError(f"expected {accepted}, got {text!r}") from None


MEASURED: Final = "pebble.measured"
"""The attribute of a module with the `Measurement`s of its layers, each as text."""


def write_measurements(module: ModuleOp, measured: Sequence[Measurement]) -> None:
    """Write times on a module, for kernels to be chosen by them."""
    module.attributes[MEASURED] = ArrayAttr([StringAttr(str(one)) for one in measured])


def take_measurements(module: ModuleOp) -> list[Measurement]:
    """Return the times that were written on a module, which loses them.

    Raises:
        ValueError: one cannot be read.
    """
    texts = module.attributes.pop(MEASURED, None)
    return [Measurement.parse(text.data) for text in texts] if isa(texts, ArrayAttr[StringAttr]) else []


def layers_of_ops(ops: Sequence[LinearOp]) -> list[Layer]:
    """Return each op's layer, see `layers_of`, and whether and how it may be rounded.

    Raises:
        ValueError: a weight is no constant matrix.
    """
    layers = layers_of([op.weight for op in ops])
    return [
        replace(layer, rounded=op.is_rounded, code_bits=rounded_code_bits(op.weight))
        for op, layer in zip(ops, layers, strict=True)
    ]


def rounded_code_bits(weight: SSAValue) -> int:
    """Return the bits of a weight that is codes for which groups of inputs may be rounded; 0 for any other one."""
    few_bits = few_bits_at(weight)
    return few_bits.bits if few_bits is not None and few_bits.rounds_inputs else 0


def few_bits_at(weight: SSAValue) -> FewBits | None:
    """Return what the time of a weight that is codes in onnxruntime depends on; None for any other one."""
    known = few_bits_of(weight)
    return None if known is None else FewBits(known.bits, known.size, known.may_round_inputs)


def layers_of(constants: Sequence[SSAValue]) -> list[Layer]:
    """Return each weight's layer among the others, which are read between two uses of it.

    Raises:
        ValueError: a value is no constant matrix.
    """
    sizes = [_read_bytes(value) for value in constants]
    return [_layer(value, float(sum(sizes) - size)) for value, size in zip(constants, sizes, strict=True)]


def linear_us(weight: SSAValue, rows: int, machine: Machine) -> float:
    """Return the predicted microseconds of a layer on so many rows, by the best kernels.

    Raises:
        ValueError: the weight is no constant matrix.
    """
    (layer,) = layers_of([weight])
    times = {
        width: min(predicted_us(name, layer, width, machine) for name in candidates(layer, width, machine))
        for width in WIDTHS
    }
    widest = max(times)
    return rows / widest * times[widest] if rows >= widest else time_of_rows(times, rows)


def read_bytes(weight: Weight) -> int:
    """Return the bytes that the kernel of a weight reads, about: it is not chosen yet."""
    if isinstance(weight, CscMatrix):
        return round(stored_bytes(len(weight.values), weight.shape[0] * weight.shape[1]))
    return weight.nbytes


def _read_bytes(value: SSAValue) -> int:
    """Return the same, of codes that are read as they are, too."""
    weight, bits = _weight(value), rounded_code_bits(value)
    floats = read_bytes(weight)
    return floats if not bits else min(floats, round(prod(weight.shape) * (bits / 8 + SCALES_SHARE)))


def _weight(value: SSAValue) -> Weight:
    weight = weight_of(value)
    if weight is None:
        raise ValueError("a weight is no constant")
    return weight


def _layer(value: SSAValue, other_bytes: float) -> Layer:
    weight = _weight(value)
    if not isinstance(weight, CscMatrix):
        return Layer(weight.shape[0], np.count_nonzero(weight, axis=0).astype(np.int64), other_bytes, "dense")
    counts = np.diff(weight.pointers)
    rows = weight.pattern
    panels = value.owner.panels if isinstance(value.owner, SparseConstantOp) else None
    if panels is None:
        return LayerWithPattern(weight.shape[0], counts, other_bytes, rows=rows)
    # shared connections are taken to be spread evenly over the outputs of all panels
    heights = [height for height, outputs in panels.panels for _ in outputs]
    reads = len(weight.rows) * (1 - panels.shared + panels.shared * len(heights) / max(1, sum(heights)))
    return LayerWithPattern(weight.shape[0], counts, other_bytes, "panels", reads, rows)


def layer_key(constant: SSAValue, layer: Layer) -> str:
    """Return a name for the pattern of a weight and for how much else is read, the same on every machine."""
    weight, code_bits = _weight(constant), f", {layer.code_bits} bits" if layer.code_bits else ""
    stored = layer.stored + ", rounded" * layer.rounded + code_bits
    digest = hashlib.sha256(
        repr((weight.shape, stored, round(np.log2(1 + layer.other_bytes / OTHER_BYTES_UNIT)))).encode()
    )
    if isinstance(weight, CscMatrix):
        digest.update(np.ascontiguousarray(weight.pointers).data)
        digest.update(np.ascontiguousarray(weight.rows).data)
    return digest.hexdigest()[:16]


def times_by_layer(measured: Iterable[Measurement]) -> dict[tuple[str, int], dict[tuple[str, int], float]]:
    """Return the microseconds by layer and width, of families and their numbers of blocks."""
    times: dict[tuple[str, int], dict[tuple[str, int], float]] = {}
    for one in measured:
        times.setdefault((one.layer, one.width), {})[one.family, one.blocks] = one.microseconds
    return times

"""The attribute of a sparse weight of few bits: codes with a scale for each group of inputs, as MatMulNBits has them.

The entries of the weight are the floats `scale * (code - zero)`; the attribute holds what makes codes of them again.
A pass that changes a weight stores another constant, which has no such attribute: its entries are floats like others.
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import IntegerType
from xdsl.utils.exceptions import VerifyException

from ...sparse.csr import CscMatrix
from ..record import Record
from ..tensors import FloatArray, integers

Zeros = Annotated[NDArray[np.int16], integers(IntegerType(16))]

ROUNDED_INPUTS = 4
"""The accuracy level at which MatMulNBits may round inputs to integers of eight bits, group by group."""


SIGNED_BYTES = 64
"""The middle code up to which differences of two codes are bytes."""


class FewBitsAttr(Record, text="{bits} bits, groups of {size}, accuracy {accuracy}, scales {scales}, zeros {zeros}"):
    """Codes of `bits` bits; `size` neighbouring inputs of one output are a group, which has a scale and a zero.

    ```mlir
    #pebble.few_bits<4 bits, groups of 32, accuracy 0, scales dense<"0x0000003F"> : tensor<1xf32>,
        zeros dense<> : tensor<0xi16>>
    ```
    """

    name = "pebble.few_bits"

    bits: int
    size: int
    accuracy: int
    """The accuracy level of the node: see `ROUNDED_INPUTS`; at others inputs stay floats."""
    scales: FloatArray
    """[outputs * groups], those of an output one behind the other."""
    zeros: Zeros
    """The code of 0 in each group, [outputs * groups]; empty where it is the middle one everywhere."""

    @property
    def middle(self) -> int:
        """The zero of a symmetric weight."""
        return 1 << (self.bits - 1)

    @property
    def may_round_inputs(self) -> bool:
        """Whether inputs may be rounded to integers of eight bits."""
        return self.accuracy == ROUNDED_INPUTS

    def groups(self, inputs: int) -> int:
        """Return the groups of an output that has so many inputs; the last one may be shorter."""
        return -(-inputs // self.size)

    def group_of(self, weight: CscMatrix) -> NDArray[np.int64]:
        """Return the group of each entry of the weight, [nonzeros], as an index of `scales`."""
        return weight.columns * self.groups(weight.shape[0]) + weight.rows // self.size

    def steps(self, weight: CscMatrix) -> NDArray[np.int64]:
        """Return code - zero of each entry of the weight, [nonzeros]."""
        scales = self.scales[self.group_of(weight)].astype(np.float64)
        # an entry is the float32 nearest to a multiple of its scale
        return np.rint(weight.values / scales).astype(np.int64)

    def dense_steps(self, weight: NDArray[np.float32]) -> NDArray[np.int8 | np.int16]:
        """Return code - zero of a dense weight [inputs, outputs], as [outputs, inputs]."""
        inputs, outputs = weight.shape
        steps = np.empty((outputs, inputs), np.int8 if self.middle < SIGNED_BYTES else np.int16)
        # where a scale is 0 the weight is, too, whatever its code was
        scales = np.where(self.scales == 0, np.float32(1), self.scales).reshape(outputs, -1).T
        for group, scale in enumerate(scales):
            own = slice(group * self.size, (group + 1) * self.size)
            steps[:, own] = np.rint(weight[own] / scale).astype(steps.dtype).T
        return steps

    def codes(self, weight: CscMatrix | NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the codes of the weight [inputs, outputs] with its zeros, [outputs, groups * size]."""
        inputs, outputs = weight.shape
        groups = self.groups(inputs)
        codes = np.zeros((outputs, groups * self.size), np.int16)
        if isinstance(weight, CscMatrix):
            codes[weight.columns, weight.rows] = self.steps(weight)
        else:
            codes[:, :inputs] = self.dense_steps(weight)
        by_group = codes.reshape(outputs, groups, self.size)
        by_group += self.zeros.reshape(outputs, groups, 1) if len(self.zeros) else np.int16(self.middle)
        return codes.astype(np.uint8)

    def verify(self) -> None:
        if self.bits not in (4, 8):
            raise VerifyException(f"expected 4 or 8 bits, got {self.bits}")
        if self.size < 16 or self.size & (self.size - 1):
            raise VerifyException(f"expected groups of a power of two from 16 on, got {self.size}")
        if len(self.zeros) not in (0, len(self.scales)):
            raise VerifyException(f"expected no zeros or {len(self.scales)}, got {len(self.zeros)}")

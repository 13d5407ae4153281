"""The kernel families of linear layers. A new family is one file and one line in `FAMILIES`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.lowering.count_blocks import CountBlocks
from redpebble.lowering.dense_outputs import DenseOutputs
from redpebble.lowering.emission import Code
from redpebble.lowering.linear import LinearForm, PackedArrays
from redpebble.lowering.narrow_blocks import NarrowBlocks
from redpebble.lowering.panels import Panels
from redpebble.lowering.sell_gather import SellGather
from redpebble.lowering.sparse_rows import SparseRows
from redpebble.lowering.strips import Strips
from redpebble.lowering.walk import Walk


class KernelFamily(Protocol):
    """One way to compute a linear layer on a feature-major batch tile."""

    def pack(self, weight: SSAValue, bias: NDArray[np.float32]) -> PackedArrays:
        """Return the arrays that the kernel reads for a constant `weight` [K, N], in the order of its pointers."""
        ...

    def emit(self, code: Code, form: LinearForm) -> ir.Function:
        """Return the kernel `void (x, y, packed arrays..., inputs, outputs)` for tiles of `form.width` columns."""
        ...


FAMILIES: Final[Mapping[str, KernelFamily]] = MappingProxyType(
    {
        "sparse_rows": SparseRows(),
        "count_blocks": CountBlocks(),
        "narrow_blocks": NarrowBlocks(),
        "dense_outputs": DenseOutputs(),
        "panels": Panels(),
        "strips": Strips(),
        "walk": Walk(compact=False),
        "compact_walk": Walk(compact=True),
        "sell_gather": SellGather(),
    }
)

SINGLE_ROW_FAMILIES: Final = frozenset({"walk", "compact_walk", "sell_gather"})
"""Those with code for tiles of one batch column only."""

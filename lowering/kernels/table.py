"""The kernel families of linear layers. A new family is one file and one line in `FAMILIES`."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.lowering.kernels.count_blocks import CountBlocks
from redpebble.lowering.kernels.dense_outputs import DenseOutputs
from redpebble.lowering.kernels.kernel_form import LinearForm, PackedArrays
from redpebble.lowering.kernels.narrow_blocks import NarrowBlocks
from redpebble.lowering.kernels.permute_lookup import PermuteLookup
from redpebble.lowering.kernels.row_panels import Panels
from redpebble.lowering.kernels.sparse_rows import SparseRows
from redpebble.lowering.kernels.strips import Strips
from redpebble.lowering.llvm.builder import Code


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
        "permute_lookup": PermuteLookup(),
    }
)

SINGLE_ROW_FAMILIES: Final = frozenset({"permute_lookup"})
"""Those with code for tiles of one batch column only."""


def over_blocks(family: str, blocks: int | None) -> KernelFamily:
    """Return a family over so many blocks of inputs, if it is one over blocks; None: the fewest there are."""
    found = FAMILIES[family]
    return replace(found, blocks=blocks) if isinstance(found, CountBlocks | NarrowBlocks) else found


def family_of(kernel: KernelAttr | None, width: int) -> KernelFamily:
    """Return the family that a layer's kernel has for tiles of `width` columns, over the blocks of inputs given there.

    Raises:
        ValueError: there is no kernel of ours.
    """
    name = kernel.family_at(width) if kernel is not None else ""
    if kernel is None or name not in FAMILIES:
        raise ValueError(f"pebble.linear has no kernel of ours chosen, accepted are {', '.join(sorted(FAMILIES))}")
    return over_blocks(name, kernel.blocks.by_family.get(name))

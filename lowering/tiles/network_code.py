"""The code of layers that run as one graph of neurons inside a tile, depth first.

What a graph works on lies behind the result of the group's last layer, see `tile_memory`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ..kernels.kernel_form import OUTPUT_PADDING
from ..llvm.builder import Code
from ..llvm.call_tables import ConstantTable
from ..llvm.flow import allocated, call
from ..llvm.values import ADDRESS_BYTES, Bytes, Floats, Number, Pointers
from ..neurons.neuron_kernel import NetworkForm, neuron_loop
from ..neurons.neuron_stream import pack_neurons
from .depth_first_groups import LayerGroup
from .tile_memory import features_of


@dataclass(frozen=True)
class NetworkCode:
    """The code of graphs in a tile; `address` is that of a feature of a value."""

    code: Code
    tables: tuple[ConstantTable, Pointers]
    width: int
    address: Callable[[SSAValue, int], Floats]
    batch_rows: tuple[Mapping[SSAValue, Floats], Number] | None = None
    """The addresses of the rows that a group transposes itself, and their number; None where all columns count."""

    def emit_group(self, group: LayerGroup) -> None:
        """Emit a group of layers depth first."""
        graph, result = group.graph(), group.last.result
        pack = partial(pack_neurons, graph, group.neuron_order, group.transposed)
        stream = self._packed((group.last, "neurons"), pack)
        nowhere: Mapping[SSAValue, Floats] = {}
        rows, count = (nowhere, self.width) if self.batch_rows is None else self.batch_rows
        ends = (group.first.x, result)
        table = self._table([rows[value] if value in rows else self.address(value, 0) for value in ends])
        loop = neuron_loop(self.code, NetworkForm(self.width, graph.activations), group.transposed)
        call(loop, stream, self._behind(result, 0), table, count)

    def _packed(self, key: Hashable, pack: Callable[[], NDArray[np.uint32]]) -> Bytes:
        constants, table = self.tables
        return constants.pointers(table, key, lambda _: [pack()])[0]

    def _behind(self, value: SSAValue, row: int) -> Floats:
        """Return the address of a row behind all that kernels write."""
        return self.address(value, features_of(value) + OUTPUT_PADDING + row)

    def _table(self, buffers: Sequence[Floats]) -> Pointers:
        """Return a table of addresses."""
        table = allocated(buffers[0], Pointers, len(buffers), align=ADDRESS_BYTES)
        for index, buffer in enumerate(buffers):
            table[index] = buffer
        return table

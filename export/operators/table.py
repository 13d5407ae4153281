"""The table of export: op to the function that writes it, group by group."""

from collections.abc import Sequence
from typing import Final

import onnx_ir as ir
from xdsl.ir import Operation

from ...foundation.extensible_table import ExtensibleTable
from ..writing.node_builder import Emitter, NodeBuilder
from .attention import ATTENTION_EMITTERS
from .elementwise import ELEMENTWISE_EMITTERS
from .graphs import GRAPHS_EMITTERS
from .images import IMAGES_EMITTERS
from .layers import LAYERS_EMITTERS
from .movement import MOVEMENT_EMITTERS
from .normalization import NORMALIZATION_EMITTERS
from .quantized import QUANTIZED_EMITTERS
from .recurrences import RECURRENCE_EMITTERS

EMITTERS: Final = ExtensibleTable[type[Operation], Emitter](
    {
        **LAYERS_EMITTERS,
        **QUANTIZED_EMITTERS,
        **ELEMENTWISE_EMITTERS,
        **NORMALIZATION_EMITTERS,
        **ATTENTION_EMITTERS,
        **IMAGES_EMITTERS,
        **GRAPHS_EMITTERS,
        **MOVEMENT_EMITTERS,
        **RECURRENCE_EMITTERS,
    }
)


def emit(op: Operation, builder: NodeBuilder) -> Sequence[ir.Value]:
    """Add the nodes that stand for `op` to `builder`, and return the values of its results.

    Raises:
        ValueError: the op has no form in ONNX (a tile, say, which only the native target forms).
    """
    emitter = EMITTERS.get(type(op))
    if emitter is None:
        names = ", ".join(known.name for known in EMITTERS)
        raise ValueError(f"expected an op with a form in onnx, one of {names}, got {op.name}")
    return emitter(op, builder)

"""Origins of ops: the names of the ONNX node and values they stand for, kept for reports, errors and ONNX out.

They are discardable attributes: `{pebble.node = "fc1", pebble.values = ["h1"]}`.
"""

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

NODE = "pebble.node"
VALUES = "pebble.values"
ORDER = "pebble.order"
"""Order that `pebble-reorder-neurons` gave the neurons, and what it gains; on a module and on its layers."""
SEARCH = "pebble.search"
"""Search of `pebble-schedule-network`, on a module: what it began with, what it found, and in how many proposals."""


def set_provenance(op: Operation, node: str, values: Sequence[str]) -> None:
    """Record that `op` stands for the ONNX node `node`, whose outputs are called `values` (one for each result)."""
    if node:
        op.attributes[NODE] = StringAttr(node)
    if any(values):
        op.attributes[VALUES] = ArrayAttr([StringAttr(value) for value in values])


def copy_provenance(source: Operation, target: Operation) -> None:
    """Let `target` carry the names that `source` carries, where it has any."""
    for key in (NODE, VALUES):
        if key in source.attributes:
            target.attributes[key] = source.attributes[key]


def node_name(op: Operation) -> str:
    """Return the name of the ONNX node `op` stands for, or the empty string."""
    name = op.attributes.get(NODE)
    return name.data if isinstance(name, StringAttr) else ""


def value_name(value: SSAValue) -> str:
    """Return the name of the ONNX value that an op's result stands for, or the empty string."""
    if not isinstance(value, OpResult):
        return ""
    names = texts_of(value.op.attributes.get(VALUES))
    return names[value.index] if value.index < len(names) else ""


def texts_of(attribute: Attribute | None) -> list[str]:
    """Return the strings of an attribute that is a list of such; none for any other."""
    entries = cast("ArrayAttr[Attribute]", attribute).data if isinstance(attribute, ArrayAttr) else ()
    texts = [entry.data for entry in entries if isinstance(entry, StringAttr)]
    return texts if len(texts) == len(entries) else []

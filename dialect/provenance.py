"""Origins of ops: the names of the ONNX node and values they stand for, kept for reports, errors and ONNX out.

They are discardable attributes: `{pebble.node = "fc1", pebble.values = ["h1"]}`. Text has such names, too: `%h1`. A
node without a name is `pebble.node = @h1`, by its first output, where it has to be known: no file gets such a name.
"""

import re
from collections.abc import Sequence
from typing import Final, cast

from xdsl.dialects.builtin import ArrayAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

NODE = "pebble.node"
VALUES = "pebble.values"
ORDER = "pebble.order"
"""Order that `pebble-reorder-neurons` gave the neurons, and what it gains; on a module and on its layers."""
SEARCH = "pebble.search"
"""Search of `pebble-schedule-network`, on a module: what it began with, what it found, and in how many proposals."""
NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_$.-]+")
"""Characters that no name of a value in the IR has."""


def set_provenance(op: Operation, node: str | Attribute | None, values: Sequence[str]) -> None:
    """Record that `op` stands for the ONNX node `node`, whose outputs are called `values` (one for each result).

    A node is given by its name, or as `origin_of` another op.
    """
    if node:
        op.attributes[NODE] = StringAttr(node) if isinstance(node, str) else node
    if any(values):
        op.attributes[VALUES] = ArrayAttr([StringAttr(value) for value in values])
        for result, value in zip(op.results, values, strict=False):
            name_in_text(result, value)


def copy_provenance(source: Operation, target: Operation) -> None:
    """Let `target` carry the names that `source` carries, where it has any."""
    if NODE in source.attributes:
        target.attributes[NODE] = source.attributes[NODE]
    if VALUES in source.attributes:
        take_value_names(source, target)


def take_value_names(source: Operation, target: Operation) -> None:
    """Let the results of `target` be called what those of `source` are called, which they replace."""
    target.attributes.pop(VALUES, None)
    if VALUES in source.attributes:
        target.attributes[VALUES] = source.attributes[VALUES]
    for old, new in zip(source.results, target.results, strict=False):
        new.name_hint = old.name_hint


def keep_value_name(gone: SSAValue, kept: SSAValue) -> None:
    """Let a value without an ONNX name, the one result of its op, have that of a value whose place it takes."""
    name_value(kept, value_name(gone))


def name_value(value: SSAValue, name: str) -> None:
    """Let a value without an ONNX name, the one result of its op, have this one."""
    if name and isinstance(value, OpResult) and len(value.op.results) == 1 and not value_name(value):
        value.op.attributes[VALUES] = ArrayAttr([StringAttr(name)])


def name_in_text(value: SSAValue, name: str) -> None:
    """Let a value be printed with an ONNX name, unless it has one: `/fc/Relu` becomes `%fc_Relu`."""
    text = NOT_IN_NAMES.sub("_", name).strip("_")
    if text and value.name_hint is None:
        value.name_hint = f"v{text}" if text[0].isdigit() else text


def node_name(op: Operation) -> str:
    """Return the name of the ONNX node `op` stands for, or the empty string."""
    name = op.attributes.get(NODE)
    return name.data if isinstance(name, StringAttr) else ""


def origin_of(op: Operation) -> Attribute | None:
    """Return what is recorded of the ONNX node that `op` stands for, None for nothing."""
    return op.attributes.get(NODE)


def node_key(op: Operation) -> str:
    """Return the name of the ONNX node `op` stands for, that of its first output where it has none, or nothing."""
    origin = origin_of(op)
    return origin.string_value() if isinstance(origin, SymbolRefAttr) else node_name(op)


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

"""Cosines and sines of the positions of tokens, which RotaryEmbedding takes from tables by itself.

```
y = RotaryEmbedding(x, cosine_table, sine_table, positions)
// beside it
cosines = Gather(cosine_table, positions)      [B, S, features / 2]
sines = Gather(sine_table, positions)
```

Nodes that take the same ones share them; those that nothing reads go again.
"""

from types import MappingProxyType
from typing import Final, NamedTuple

import onnx_ir


class Angles(NamedTuple):
    """Cosines and sines for each token."""

    cosines: onnx_ir.Value
    sines: onnx_ir.Value


class _Inputs(NamedTuple):
    """Places of a node's tables and positions."""

    cosines: int
    sines: int
    positions: int


INPUTS: Final = MappingProxyType(
    {("", "RotaryEmbedding"): _Inputs(1, 2, 3), ("com.microsoft", "RotaryEmbedding"): _Inputs(2, 3, 1)}
)
"""(domain, operator) -> places of inputs."""


def add_angles(model: onnx_ir.Model) -> dict[onnx_ir.Node, Angles]:
    """Add, in place, and return the angles of each node that takes them from tables by positions [B, S]."""
    found: dict[onnx_ir.Node, Angles] = {}
    taken: dict[tuple[onnx_ir.Value, onnx_ir.Value], onnx_ir.Value] = {}
    for node in list(model.graph):
        places = INPUTS.get((node.domain, node.op_type))
        inputs = [*node.inputs, None, None, None, None]
        if places is None:
            continue
        positions = inputs[places.positions]
        tables = [inputs[place] for place in places[:2]]
        if positions is None or positions.shape is None or len(positions.shape) != 2:
            continue
        rows: list[onnx_ir.Value] = []
        for table in tables:
            if table is None or table.shape is None or len(table.shape) != 2:
                break
            if (table, positions) not in taken:
                taken[table, positions] = _taken(model.graph, node, table, positions)
            rows.append(taken[table, positions])
        if len(rows) == len(tables):
            found[node] = Angles(*rows)
    return found


def _taken(graph: onnx_ir.Graph, before: onnx_ir.Node, table: onnx_ir.Value, positions: onnx_ir.Value) -> onnx_ir.Value:
    name = f"{table.name}/redpebble.at.{positions.name}"
    added = onnx_ir.node("Gather", [table, positions], name=name)
    assert table.shape is not None
    assert positions.shape is not None
    result = added.outputs[0]
    result.name, result.type = name, onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
    result.shape = onnx_ir.Shape([*positions.shape, table.shape[1]])
    graph.insert_before(before, added)
    return result

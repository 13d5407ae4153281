"""Masks that take the place of scores, as what is added to them.

```
hidden = Where(seen, scores, -inf)            weights = Softmax(hidden)
// beside it
mask = Where(seen, 0, -inf)                   for an attention, which adds it
```

What hides is so low that a score added to it is lost by rounding; only scores that are NaN or infinite would still be
seen. The new nodes stand where they can be read; those that no attention reads go again.
"""

from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from .known_constants import constant_array

HIDING: Final = -1e30
"""Largest number that hides scores: those below 1e22 are lost beside it."""


class HiddenScores(NamedTuple):
    """A Where that hides scores: its places of scores and of the number that hides, and that number, of any shape."""

    scores: int
    hiding: int
    number: NDArray[np.float32]


def hidden_scores(node: onnx_ir.Node, ir_version: int) -> HiddenScores | None:
    """Return the scores that a node hides; None where it is no Where with a constant that hides."""
    if (node.domain, node.op_type) != ("", "Where") or len(node.inputs) != 3 or None in node.inputs:
        return None
    for scores, hiding in ((1, 2), (2, 1)):
        value = node.inputs[hiding]
        number = None if value is None else constant_array(value, ir_version)
        shown = node.inputs[scores]
        if shown is not None and constant_array(shown, ir_version) is not None:
            continue  # a mask already
        if (
            number is not None
            and number.dtype == np.float32
            and number.size == 1
            and float(number.reshape(-1)[0]) <= HIDING
        ):
            return HiddenScores(scores, hiding, number.astype(np.float32))
    return None


def add_score_masks(model: onnx_ir.Model) -> dict[onnx_ir.Node, onnx_ir.Value]:
    """Add, in place, and return a mask for each Where that hides scores by a condition that only a call knows."""
    masks: dict[onnx_ir.Node, onnx_ir.Value] = {}
    for node in list(model.graph):
        hidden = hidden_scores(node, model.ir_version)
        condition = node.inputs[0] if hidden is not None else None
        if hidden is None or condition is None or constant_array(condition, model.ir_version) is not None:
            continue
        name = f"{node.outputs[0].name}/redpebble.mask"
        inputs = list(node.inputs)
        inputs[hidden.scores] = _zero(model.graph, f"{name}.zero")
        added = onnx_ir.Node("", "Where", inputs, num_outputs=1, name=name)
        added.outputs[0].name = name
        added.outputs[0].type = onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
        model.graph.insert_before(node, added)
        masks[node] = added.outputs[0]
    return masks


def _zero(graph: onnx_ir.Graph, name: str) -> onnx_ir.Value:
    value = onnx_ir.Value(
        name=name,
        shape=onnx_ir.Shape([]),
        type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT),
        const_value=onnx_ir.tensor(np.zeros((), np.float32), name=name),
    )
    graph.register_initializer(value)
    return value


def mask_of_constant(seen: NDArray[np.generic], hidden: HiddenScores) -> NDArray[np.float32]:
    """Return the mask to be added instead of a Where whose condition is `seen`."""
    shown = np.float32(0.0)
    numbers = (shown, hidden.number) if hidden.scores == 1 else (hidden.number, shown)
    return np.where(seen, *numbers).astype(np.float32)

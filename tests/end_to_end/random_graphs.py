"""A strategy for random ONNX models of which every node is covered natively."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.end_to_end.graph_attention import attention
from tests.end_to_end.graph_draft import Batch, Dim, GraphDraft, Value
from tests.end_to_end.graph_layers import LAYERS
from tests.end_to_end.graph_moves import MOVES

OPSETS = (21, 7, 9, 11, 13, 17)
SYMBOLIC_BATCHES = (0, 1, 7, 17)
STATIC_BATCHES = (1, 7)
LAYER_COUNTS = (1, 3, 5, 8, 12)


class DrawnModel(NamedTuple):
    """A model, the batches it can run with, and the shapes of its inputs."""

    proto: onnx.ModelProto
    batches: tuple[int, ...]
    inputs: tuple[Value, ...]

    def feeds(self, batch: int, seed: int = 0) -> dict[str, NDArray[np.float32]]:
        """Standard normal inputs for a batch."""
        rng = np.random.default_rng((seed, batch))
        return {
            value.name: rng.standard_normal(
                [dim if isinstance(dim, int) else dim.factor * batch for dim in value.shape]
            ).astype(np.float32)
            for value in self.inputs
        }


@st.composite
def models(draw: st.DrawFn, opsets: Sequence[int] = OPSETS) -> DrawnModel:
    """Models of one to three inputs, up to 12 layers with fan-out and skip connections, several outputs."""
    draft = GraphDraft(draw, draft_opset(draw, opsets), np.random.default_rng(draw(st.integers(0, 2**16))))
    _draw_inputs(draft)
    current = draft.values[0]
    for _ in range(draw(st.sampled_from(LAYER_COUNTS))):
        layer = draft.choose((*LAYERS, *MOVES))
        made = layer(draft, current)
        if made is not None:
            current = made
        if draw(st.integers(0, 3)) == 3:
            current = draft.choose(draft.values)
    computed = [value for value in draft.values if value not in draft.inputs]
    if not computed:
        computed = [draft.node("Identity", [current], current.shape)]
    count = min(draw(st.integers(1, 3)), len(computed))
    outputs = list(dict.fromkeys([computed[-1], *(draft.choose(computed) for _ in range(count - 1))]))
    static = draft.choose((None, None, *STATIC_BATCHES))
    batches = SYMBOLIC_BATCHES if static is None else (static,)
    return DrawnModel(draft.model([*outputs, *draft.kept], static), batches, tuple(draft.inputs))


def _draw_inputs(draft: GraphDraft) -> None:
    """One main input, and sometimes further ones: of the same shape, of the same features, or of their own."""
    width = draft.size()
    inner: tuple[int, ...] = draft.choose(((), (), (3,), (2, 3)))
    shape: tuple[Dim, ...] = (Batch(1), *inner, width)
    draft.input(shape)
    for _ in range(draft.choose((0, 0, 1, 2))):
        forms: tuple[tuple[Any, ...], ...] = (shape, (width,), (Batch(1), draft.size()), (Batch(1), *inner, 1))
        draft.input(draft.choose(forms))


@st.composite
def attending_models(draw: st.DrawFn, opsets: Sequence[int] = OPSETS) -> DrawnModel:
    """Models of one input of rank 3, in which attention comes before a layer and after it."""
    draft = GraphDraft(draw, draft_opset(draw, opsets), np.random.default_rng(draw(st.integers(0, 2**16))))
    size = draft.choose((3, 1, 7, 20))
    rows: tuple[Dim, Dim] = (size, Batch(1)) if draft.flip() else (Batch(1), size)
    current = draft.input((*rows, draft.size()))
    for layer in (attention, draft.choose((*LAYERS, *MOVES)), attention):
        current = layer(draft, current) or current
    static = draft.choose((None, None, *STATIC_BATCHES))
    batches = SYMBOLIC_BATCHES if static is None else (static,)
    return DrawnModel(draft.model([current, *draft.kept], static), batches, tuple(draft.inputs))


def draft_opset(draw: st.DrawFn, opsets: Sequence[int]) -> int:
    """One of the opsets; shrinks towards the first."""
    return opsets[draw(st.integers(0, len(opsets) - 1))]

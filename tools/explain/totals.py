"""One total: what all layers of a model take together for a batch."""

from collections.abc import Sequence

from ...dialect.ops.images import Conv2dOp
from ...dialect.ops.layers import LinearOp
from ...dialect.reports.layer_report import LayerReport
from ...frontend.import_model import Imported
from ...frontend.multiply_adds import value_shapes
from ...passes.analysis.data_movement import FreeSizes, module_movement
from .lowering_levels import BATCHES
from .story import LayerTime, layer_times


def total_line(imported: Imported, layers: Sequence[LayerReport]) -> str:
    """Return the times of all layers together, by batch; empty for one layer, or where rows or times are unknown."""
    if len(layers) < 2 or not all(layer.predicted_us for layer in layers):
        return ""
    texts: list[str] = []
    for batch in BATCHES:
        rows = _rows(imported, batch)
        if any(layer.name not in rows for layer in layers):
            return ""
        texts.append(f"{_text(layer_times(layers, [rows[layer.name] for layer in layers]))} at batch {batch}")
    return f"all {len(layers)} layers, one after the other on one thread: {', '.join(texts)}"


def _rows(imported: Imported, batch: int) -> dict[str, int]:
    """Return the rows of layers by name: of images as many as there are pixels, of texts as there are tokens."""
    moved = module_movement(imported.module, FreeSizes(batch, by_value=value_shapes(imported.model, batch)))
    return {one.name: one.rows for one in moved if isinstance(one.op, LinearOp | Conv2dOp)}


def _text(times: Sequence[LayerTime]) -> str:
    predicted = sum(one.predicted_us for one in times)
    measured = [one.measured_us for one in times if one.measured_us is not None]
    known = f", {sum(measured):,.0f} measured" if len(measured) == len(times) else ""
    return f"{predicted:,.0f} us predicted{known}"

"""The number of rows that a model is meant for, which it can state itself: its layers get so many at once."""

from typing import Final

import onnx_ir

ROWS_KEY: Final = "redpebble.rows"
"""The metadata entry of an ONNX model that states it."""

PRUNED_KEY: Final = "redpebble.pruned"
"""The entry that says in a line what a model was pruned to."""


def stated_rows(model: onnx_ir.Model) -> int:
    """Return the rows that a model states, 0 where it states none."""
    text = model.metadata_props.get(ROWS_KEY, "")
    return int(text) if text.isdecimal() else 0


def state_rows(model: onnx_ir.Model, rows: int) -> None:
    """Let a model state the rows that it is meant for."""
    model.metadata_props[ROWS_KEY] = str(rows)

"""Sparse kernel family for one row of activations: every vector of weights meets values looked up in two registers.

Cut x into blocks of 16. A panel of 32 output rows shares a walk v0, v1, ... over the blocks. Step t holds the blocks
v_t and v_t+1 in two registers (one of them from the step before), looks up one of these 32 values for every row, and
multiplies it by the row's weight. So an entry may go into any step that touches its block, and no sum leaves its
register before its row is complete. What fits no step is gathered, into the same sums. `walk_packing` makes the walks.

An unused lane multiplies 0 by a real x: an infinity or NaN in x may spread to rows without a connection to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.lowering.emission import (
    FLOAT,
    I32,
    I64,
    POINTER,
    Code,
    byte_at,
    counted_loop,
    float_at,
    i64,
    reduce_loop,
)
from redpebble.lowering.gathers import gather, load_ints, lookup, scatter_rows
from redpebble.lowering.linear import LinearForm, PackedArrays, activated, sparse_weight
from redpebble.lowering.vectors import Lanes
from redpebble.lowering.walk_packing import (
    BLOCK,
    CHUNK_STEPS,
    FIELD_BITS,
    PANEL_ROWS,
    pack_walks,
)

HEAD_WORDS = 2 * PANEL_ROWS
"""A panel begins with its biases and its rows,"""
CHUNK_WORDS = PANEL_ROWS * (1 + CHUNK_STEPS)
"""then come the chunks: a word of lookup places a row, and the weights of its steps;"""
GATHER_WORDS = 2 * PANEL_ROWS
"""then the gathers: a column and a weight for every row."""


class Walk:
    """Panels of 32 rows: [chunks, gathers] u32 of each, the walks as byte offsets u32 in x, the panels' words."""

    def pack(self, weight: SSAValue, bias: NDArray[np.float32]) -> PackedArrays:
        """Return the lengths, the walks and the words."""
        return pack_walks(sparse_weight(weight), bias)

    def emit(self, code: Code, form: LinearForm) -> ir.Function:
        """Return the kernel for one row of activations."""
        arguments = [POINTER] * 5 + [I64, I64]

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            _WalkCode(code, builder, form).emit(args)

        return code.function(f"walk_{form.key}", arguments, body)

"""The sizes of a call: what follows from the shapes of the inputs of a network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from redpebble.dialect.symbolic_sizes import bind_symbols
from redpebble.lowering.buffer_packing import Lifetime, plan_offsets
from redpebble.lowering.program import Program, Size, Step


@dataclass(frozen=True)
class CallSizes:
    """Everything about a call that depends on the shapes of its inputs only."""

    sizes: NDArray[np.int64]
    """The table that the code reads."""
    rows: tuple[int, ...]
    """The rows of each step, 0 where it is one piece of work."""
    output_shapes: tuple[tuple[int, ...], ...]
    temporary_offsets: tuple[int, ...]
    temporary_bytes: int


def call_sizes(program: Program, shapes: Sequence[tuple[int, ...]]) -> CallSizes:
    """Return the sizes of a call with inputs of `shapes`.

    Raises:
        ValueError: a shape does not fit the model; the message names the input, the size and what is expected.
    """
    symbols = bind_symbols({tensor.name: tensor.shape for tensor in program.inputs}, shapes)
    for first, second in program.equal:
        if first.evaluate(symbols) != second.evaluate(symbols):
            raise ValueError(
                f"size {first} is {first.evaluate(symbols)} and size {second} is {second.evaluate(symbols)}, "
                "expected the same"
            )
    lifetimes = [
        Lifetime(4 * temporary.size.evaluate(symbols), temporary.first_step, temporary.last_step)
        for temporary in program.temporaries
    ]
    plan = plan_offsets(lifetimes)
    return CallSizes(
        sizes=np.array([size.evaluate(symbols) for size in program.sizes] or [0], dtype=np.int64),
        rows=tuple(_step_rows(step, symbols) for step in program.steps),
        output_shapes=tuple(tuple(size.evaluate(symbols) for size in tensor.shape) for tensor in program.outputs),
        temporary_offsets=plan.offsets,
        temporary_bytes=plan.total,
    )


def dimensions(shape: Sequence[Size]) -> list[int | str]:
    """Return a symbolic shape as onnxruntime prints it: numbers, and names of sizes that a call chooses."""
    return [str(size) if size.constant is None else size.constant for size in shape]


def _step_rows(step: Step, symbols: Mapping[str, int]) -> int:
    return 0 if step.rows is None else step.rows.evaluate(symbols)

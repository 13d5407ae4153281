"""Whether a part can be run: every number in it names what is there, before native code sees one.

What its functions read and write is looked at where they are compiled, see `check_calls`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..errors import PartError
from .part_file import Part
from .plan_file import PlanFile
from .steps import Buffer, Call, Indices, Receive, Send

KINDS: Final = ("blocks", "zeros", "input", "output", "nodes")

MOST_VALUES: Final = 1 << 26
"""Values that have numbers, which become tags of messages."""

MOST_FEATURES: Final = 1 << 27
"""Features of a buffer, which is made for every slot."""


def check_part(part: Part, plan: PlanFile) -> None:
    """Check buffers, steps and routes of a part against each other and against the plan.

    Raises:
        PartError: names the buffer or the step, and what is accepted.
    """
    if part.whole:
        return
    ports = {"input": part.inputs, "output": part.outputs}
    _expect(len(part.inputs) == len(plan.inputs), f"{len(part.inputs)} inputs, expected {len(plan.inputs)}")
    _expect(len(part.outputs) == len(plan.outputs), f"{len(part.outputs)} outputs, expected {len(plan.outputs)}")
    for kind, features in ports.items():
        for number, rows in enumerate(features):
            _check_features(f"{kind} {number}", rows)
    for number, buffer in enumerate(part.buffers):
        _check_buffer(f"buffer {number}", buffer, ports.get(buffer.kind, ()))
    for number, step in enumerate(part.steps):
        where = f"step {number}"
        if isinstance(step, Call):
            for operand in step.operands:
                buffer = _buffer(where, part.buffers, operand.buffer)
                _expect(
                    0 <= operand.row <= buffer.features, f"{where} begins at row {operand.row} of {buffer.features}"
                )
        else:
            _check_exchange(where, step, part)


def _check_exchange(where: str, step: Send | Receive, part: Part) -> None:
    buffer = _buffer(where, part.buffers, step.buffer)
    _expect(_is_below(step.tag, MOST_VALUES), f"{where} exchanges value {step.tag!r}")
    _expect(buffer.port < 0, f"{where} exchanges buffer {step.buffer}, which is no block")
    for route in step.routes:
        other = _is_below(route.rank, part.part_count) and route.rank != part.rank
        _expect(other, f"{where} exchanges with rank {route.rank}, accepted are others below {part.part_count}")
        rows = route.rows
        _expect(rows.ndim == 1 and len(rows) > 0, f"{where} exchanges no rows")
        inside = int(rows.min()) >= 0 and int(rows.max()) < buffer.features
        _expect(inside, f"{where} exchanges a row outside of buffer {step.buffer}, which has {buffer.features}")
        if isinstance(step, Receive):
            _expect(bool(np.all(np.diff(rows) == 1)), f"{where} receives rows that do not follow each other")


def _check_buffer(where: str, buffer: Buffer, ports: Sequence[Indices]) -> None:
    _expect(buffer.kind in KINDS, f"{where} is of kind {buffer.kind!r}, accepted are {', '.join(KINDS)}")
    count = buffer.features
    is_filled = count != 0 or buffer.kind == "nodes"
    _expect(is_filled and _is_below(count, MOST_FEATURES + 1), f"{where} has {count} features")
    if buffer.kind not in ("input", "output"):
        _expect(buffer.port == -1, f"{where} is port {buffer.port}, expected -1")
        return
    _expect(_is_below(buffer.port, len(ports)), f"{where} is port {buffer.port}")
    own = len(ports[buffer.port])
    _expect(count == own, f"{where} has {count} features, its port {own}")


def _check_features(where: str, rows: Indices) -> None:
    ascending = rows.ndim == 1 and bool(np.all(np.diff(rows) > 0)) and (not len(rows) or int(rows[0]) >= 0)
    _expect(ascending, f"{where} has features that do not ascend from 0 on")


def _buffer(where: str, buffers: Sequence[Buffer], number: int) -> Buffer:
    _expect(_is_below(number, len(buffers)), f"{where} names buffer {number} of {len(buffers)}")
    return buffers[number]


def _is_below(number: object, end: int) -> bool:
    """Whether what a file has in the place of a number is one from 0 up to `end`."""
    return isinstance(number, int) and 0 <= number < end


def _expect(condition: bool, problem: str) -> None:
    if not condition:
        raise PartError(f"the part is damaged: {problem}")

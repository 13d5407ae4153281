"""Outcome for a model, in a few lines that a stranger understands: the gain, and why operators were left alone."""

import re
import textwrap
from collections.abc import Iterator
from typing import Final

from ..driver.compiler import Optimized
from ..driver.model_rows import PRUNED_KEY
from ..driver.placement import Placement
from ..driver.predicted_gain import PredictedGain
from ..frontend.multiply_adds import LONG
from .console.console import console

FIXED_SPACE: Final = "\N{NO-BREAK SPACE}"
"""Between a number and its unit, which are not to be parted by the end of a line."""

BEHIND_NUMBER: Final = r"(?<=\d) "

TEXT_WIDTH: Final = 120
"""Columns of sentences, however wide a table may be."""

FEWEST_STAYING: Final = 0.005
"""Share of the multiply-adds from which an operator is named."""

UNITS: Final = ((1e6, "s"), (1e3, "ms"), (1.0, "us"), (0.0, "us"))
"""Microseconds from which a unit is used."""


UNKNOWN: Final = frozenset({"", "is not covered"})
"""Reasons of an import that only make sense behind the name of the operator."""

NO_CODE: Final = "redpebble has no code for this operator"


def print_gain(result: Optimized) -> None:
    """Show what an optimized model is predicted to gain, and what stays with onnxruntime and why."""
    width = min(console.width, TEXT_WIDTH)
    lines = lines_of(gain_sentence(result), width)
    if pruned := result.model.metadata_props.get(PRUNED_KEY):
        lines += lines_of(pruned, width)
    if result.placement is not None:
        lines += left_alone(result.placement, width)
    if result.networks and result.obstacle:
        lines += lines_of(f"standard operators alone: {result.obstacle}", width)
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def gain_sentence(result: Optimized) -> str:
    """Return the first sentence about an optimized model."""
    return "; ".join(headline(result))


def headline(result: Optimized) -> list[str]:
    """Return the parts of the first sentence: the gain, the share that was taken, and the time that stays."""
    placement = result.placement
    if placement is None or not placement.multiply_adds:
        if result.networks:
            count = len(result.networks)
            return [f"{count} sparse network{'s' * (count != 1)}, the gain is not known: sizes of the model are not"]
        unknown = placement.uncounted if placement is not None else 0
        nothing = f"the work of {unknown} nodes cannot be counted" if unknown else "nothing in the model multiplies"
        return [result.obstacle or nothing]
    counted = f"{re.sub(BEHIND_NUMBER, FIXED_SPACE, placement.counted)}, " if placement.layers else ""
    taken = f"{counted}{_percent(placement.share)} of multiply-adds{placement.uncounted_text} taken"
    gain = result.gain
    if gain is None:
        return [f"nothing gains: {result.obstacle}"] if result.obstacle else [taken]
    rows = f"{gain.rows}{FIXED_SPACE}row{'s' * (gain.rows != 1)}" if gain.rows else f"1{FIXED_SPACE}image"
    bound = f", at most {gain.bound:.1f}x by Amdahl's law" if placement.stayed else ""
    return [f"{gain.ratio:.1f}x predicted in a session at {rows}{bound}", taken, _staying(gain, placement)]


def left_alone(placement: Placement, width: int) -> Iterator[str]:
    """Yield lines that name the operators which stay with onnxruntime, most work first, and why."""
    if not placement.stayed:
        return
    yield from lines_of(
        f"left with onnxruntime, of the multiply-adds for a batch of 1 (other free axes {LONG}):", width
    )
    for line in placement.stayed:
        share = _percent(line.multiply_adds / placement.multiply_adds)
        nodes = f"{line.nodes}{FIXED_SPACE}node{'s' * (line.nodes != 1)}"
        reason = NO_CODE if line.reason in UNKNOWN else line.reason
        text = f"{line.operator}, {nodes}, {share}: {reason}"
        yield from lines_of(text, width, "  ")


def lines_of(text: str, width: int, indent: str = "") -> list[str]:
    """Return text in lines of at most `width` columns, in which no number is parted from its unit."""
    lines = textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=2 * indent, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(FIXED_SPACE, " ") for line in lines]


def _staying(gain: PredictedGain, placement: Placement) -> str:
    if not placement.stayed:
        return "nothing that multiplies stays with onnxruntime"
    least, unit = next((least or 1.0, unit) for least, unit in UNITS if gain.original_us >= least)
    stays, original = _number(gain.stays_us / least), _number(gain.original_us / least)
    times = f"{stays}{FIXED_SPACE}of{FIXED_SPACE}{original}{FIXED_SPACE}{unit}"
    work: dict[str, int] = {}
    for line in placement.stayed:
        work[line.operator] = work.get(line.operator, 0) + line.multiply_adds
    shares = {operator: done / placement.multiply_adds for operator, done in work.items()}
    named = [f"{name} {_percent(share)}" for name, share in shares.items() if share >= FEWEST_STAYING]
    return f"{times} stay with onnxruntime" + (f": {', '.join(named)}" if named else "")


def _percent(share: float) -> str:
    return f"{100 * share:.0f}{FIXED_SPACE}%"


def _number(value: float) -> str:
    return f"{value:.{0 if value >= 10 else 1 if value >= 1 else 2}f}"

"""plan.json: the identity of a folder of parts, by which every rank checks its own part."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ...dialect.symbolic_sizes import Size, SymbolicShape
from ..errors import PartError
from .part_file import PARTS_VERSION

PLAN_NAME: Final = "plan.json"

PART_NAME: Final = re.compile(r"part-\d{4,}\.pebble")
"""Names of the parts that lie beside it."""

MOST_POWER: Final = 16
"""Power of a symbol that no size has: each stands for an axis of a tensor."""
KINDS: Final = ("rows", "batch", "layers", "nodes")

Json = Any
"""A value that the json module reads and writes."""


@dataclass(frozen=True)
class PortShape:
    """An input or output of the whole network."""

    name: str
    shape: SymbolicShape


@dataclass(frozen=True)
class PartEntry:
    """The file of a part, by its name in the folder, and its sha256 in hexadecimal digits."""

    file: str
    sha256: str


@dataclass(frozen=True)
class PlanFile:
    """A folder of parts."""

    kind: str
    """The kind of split: one of `KINDS`."""
    part_count: int
    model: str
    """sha256 of the model in hexadecimal digits, empty where it was in memory."""
    batch_tile: int
    """Samples that travel together unless a run says otherwise."""
    volume: int
    """Values sent for a batch of one."""
    inputs: tuple[PortShape, ...]
    outputs: tuple[PortShape, ...]
    parts: tuple[PartEntry, ...]
    note: str = ""
    """The reason for this split."""
    block: int = 64
    """Samples of a block of feature-major values: for so many the kernels are predicted to be fastest."""


def write_plan(folder: Path, plan: PlanFile) -> None:
    """Write plan.json into a folder."""
    content = {
        "format": PARTS_VERSION,
        "plan": plan.kind,
        "part_count": plan.part_count,
        "model": plan.model,
        "batch_tile": plan.batch_tile,
        "block": plan.block,
        "volume": plan.volume,
        "inputs": [_port_json(port) for port in plan.inputs],
        "outputs": [_port_json(port) for port in plan.outputs],
        "parts": [{"file": part.file, "sha256": part.sha256} for part in plan.parts],
        "note": plan.note,
    }
    (folder / PLAN_NAME).write_text(json.dumps(content, indent=2) + "\n")


def is_plan(path: Path) -> bool:
    """Return whether a file is a plan of parts, of whatever version."""
    try:
        content: Json = json.loads(path.read_bytes())
        return isinstance(content, dict) and {"format", "plan", "part_count", "parts"} <= content.keys()
    except (OSError, ValueError, RecursionError):
        return False


def read_plan(folder: Path) -> tuple[PlanFile, str]:
    """Return the plan of a folder of parts, and the sha256 of the file.

    Raises:
        PartError: there is none, or it cannot be read.
    """
    path = folder / PLAN_NAME
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PartError(f"{path} cannot be read: {(error.strerror or '').lower()}") from error
    try:
        content: Json = json.loads(data)
        if content["format"] != PARTS_VERSION:
            raise PartError(f"{path}: expected format {PARTS_VERSION}, got {content['format']}")
        plan = PlanFile(
            kind=content["plan"],
            part_count=content["part_count"],
            model=content["model"],
            batch_tile=content["batch_tile"],
            volume=content["volume"],
            inputs=tuple(_port(entry) for entry in content["inputs"]),
            outputs=tuple(_port(entry) for entry in content["outputs"]),
            parts=tuple(PartEntry(entry["file"], entry["sha256"]) for entry in content["parts"]),
            note=content["note"],
            block=content["block"],
        )
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise PartError(f"{path} is no plan of parts, or damaged") from error
    bound, used = _symbols(plan.inputs), _symbols(plan.outputs)
    if plan.kind not in KINDS or len(plan.parts) != plan.part_count or used - bound:
        raise PartError(f"{path} is no plan of parts, or damaged")
    return plan, hashlib.sha256(data).hexdigest()


def _port_json(port: PortShape) -> Json:
    sizes = [[[size.coefficient.numerator, size.coefficient.denominator], list(size.powers)] for size in port.shape]
    return {"name": port.name, "dims": [str(size) for size in port.shape], "sizes": sizes}


def _port(entry: Json) -> PortShape:
    """Return the name and the shape of an input or an output.

    Raises:
        ValueError: a size has a symbol to a power that none has.
    """
    sizes = [
        Size(Fraction(numerator, denominator), tuple((name, power) for name, power in powers))
        for (numerator, denominator), powers in entry["sizes"]
    ]
    if not all(0 < abs(power) <= MOST_POWER for size in sizes for _, power in size.powers):
        raise ValueError(f"a power of a size of {entry['name']}")
    return PortShape(entry["name"], tuple(sizes))


def _symbols(ports: Iterable[PortShape]) -> set[str]:
    return {name for port in ports for size in port.shape for name, _ in size.powers}

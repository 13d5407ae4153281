"""Measured machines in a file, for others to read: `redpebble tune --export` and `--import`."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from ..foundation.atomic_files import replacing
from ..foundation.regular_files import open_regular
from ..runtime.store.json_cache import Json
from .machines import FILES, KnownMachine, machine_from, recalled_machine, remember_machine

FORMAT: Final = "redpebble measured machines 1"

MOST_BYTES: Final = 64 << 20
"""Bytes of a file that are read: a machine has some hundred kilobytes."""

NAME: Final = re.compile("[0-9a-f]{16}")
"""The form of a name of `machine_name`, which becomes part of a file's name."""


def known_machines(folder: Path) -> list[KnownMachine]:
    """Return the machines of which `folder` has measurements: this one, and those that were imported."""
    names = sorted(file.stem.removeprefix(FILES) for file in folder.glob(f"{FILES}*.json"))
    found = [recalled_machine(folder, name) for name in names if NAME.fullmatch(name)]
    return [known for known in found if known is not None]


def export_machines(folder: Path, file: Path) -> list[KnownMachine]:
    """Write the measured machines of `folder` to a file, and return them.

    Raises:
        ValueError: there are none.
    """
    known = known_machines(folder)
    if not known:
        raise ValueError("nothing to export: no machine was measured, redpebble tune does that")
    machines = [{"name": one.name, "cpu": one.cpu, "machine": asdict(one.machine)} for one in known]
    with replacing(file) as stream:
        stream.write(json.dumps({"format": FORMAT, "machines": machines}, indent=1).encode())
    return known


def import_machines(folder: Path, file: Path) -> list[KnownMachine]:
    """Add the machines of a file to `folder`, and return them; what was measured here stays as it is.

    Raises:
        ValueError: the file is none that `export_machines` has written.
    """
    found = [_machine_of(file, content) for content in _machines_of(file)]
    for one in found:
        before = recalled_machine(folder, one.name)
        if before is not None:
            # factors beside other prices would mean something else
            same = before.machine.prices == one.machine.prices
            examples = one.machine.examples.with_more(before.machine.examples) if same else before.machine.examples
            remember_machine(folder, before._replace(machine=replace(before.machine, examples=examples)))
        else:
            remember_machine(folder, one)
    return found


def _machines_of(file: Path) -> list[Json]:
    try:
        with open_regular(file) as stream:
            content: Json = json.loads(stream.read(MOST_BYTES))
        if content["format"] == FORMAT:
            return list(content["machines"])
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError(f"{file}: expected what redpebble tune --export writes, got another file")


def _machine_of(file: Path, content: Json) -> KnownMachine:
    try:
        known = machine_from(str(content["name"]), content)
    except (TypeError, KeyError):
        known = None
    if known is None or NAME.fullmatch(known.name) is None:
        raise ValueError(f"{file}: expected machines that redpebble tune --export writes, got one that makes no sense")
    return known

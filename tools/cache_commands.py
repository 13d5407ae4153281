"""The commands of the cache: compiled networks, and what was measured of this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ..runtime.jit import host_target
from ..runtime.store.cache import default_folder
from ..runtime.store.kept_files import KeptFile, kept_files, remove, size_limit
from ..tuning.exchange import export_machines, import_machines
from ..tuning.machines import KnownMachine, measured_before
from ..tuning.measure_kernels import known_times
from .console.console import console
from .json_reports import write_report
from .tables import machine_line

KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".pebble": "compiled networks",
        ".onnx": "optimized models of sessions",
        ".plan": "what onnxruntime's provider takes of a model",
        ".o": "code that calls networks",
        ".so": "libraries for onnxruntime",
        ".json": "digests of files",
        ".nbc": "loops of searches",
        ".nbi": "lists of loops of searches",
    }
)
"""Ending of a file -> what it holds."""


def show_cache(report: Path | None) -> None:
    """Print the folder of the cache, what is in it by kind, and how much it may take; report that."""
    folder = default_folder()
    files = kept_files(folder)
    console.print(str(folder), highlight=False, soft_wrap=True)
    for kind, of_kind in _by_kind(files).items():
        console.print(f"{len(of_kind):>6}  {_size(of_kind):>10}  {kind}", highlight=False)
    limit = size_limit()
    console.print(f"{len(files):>6}  {_size(files):>10}  of at most {_text(limit)}", highlight=False)
    kinds = [{"kind": kind, "files": len(of), "bytes": _bytes(of)} for kind, of in _by_kind(files).items()]
    write_report(report, "cache show", {"folder": str(folder), "limit_bytes": limit, "kinds": kinds})


def clean_cache(report: Path | None) -> None:
    """Remove every file that can be made again, and report the files."""
    going = [file for file in kept_files(default_folder()) if not file.is_measured]
    freed = remove(going)
    console.print(f"{len(going)} files, {_text(freed)}, are gone from {default_folder()}", highlight=False)
    write_report(report, "cache clean", {"folder": str(default_folder()), "files": len(going), "bytes": freed})


def show_measured(report: Path | None) -> None:
    """Print and report what was measured of this machine and its kernels, and when; or that nothing was."""
    folder = default_folder()
    machine = measured_before(folder)
    write_report(report, "tune", {"machine": None if machine is None else asdict(machine)})
    if machine is None:
        console.print("nothing was measured on this machine: what is built in decides", highlight=False)
        return
    console.print(machine_line(machine), highlight=False)
    for file in _measured(folder):
        console.print(f"{datetime.fromtimestamp(file.used / 1e9):%Y-%m-%d %H:%M}  {file.path}", soft_wrap=True)
    console.print(f"times of {len(known_times(host_target(), folder)):,} kernels", highlight=False)


def exchange_measured(export: Path | None, take: Path | None, report: Path | None) -> None:
    """Add what others have measured, then write what is known to a file; print a line for each machine, and report it.

    Raises:
        ValueError: there is nothing to write, or the file that is read is none of ours.
    """
    taken = () if take is None else import_machines(default_folder(), take)
    given = () if export is None else export_machines(default_folder(), export)
    _show_exchanged(f"from {take}", taken)
    _show_exchanged(f"to {export}", given)
    content = {"imported": [known.cpu for known in taken], "exported": [known.cpu for known in given]}
    write_report(report, "tune", content)


def _show_exchanged(way: str, machines: Sequence[KnownMachine]) -> None:
    for known in machines:
        layers = len(known.machine.examples.words)
        console.print(f"{known.cpu}: kernels on {layers} layers {way}", highlight=False, soft_wrap=True)


def forget_measured(report: Path | None) -> None:
    """Remove what was measured of machines, and report how much: what is built in decides again."""
    going = _measured(default_folder())
    remove(going)
    console.print(f"{len(going)} files of measured times are gone", highlight=False)
    write_report(report, "tune", {"files": len(going)})


def _measured(folder: Path) -> list[KeptFile]:
    return [file for file in kept_files(folder) if file.is_measured]


def _by_kind(files: Sequence[KeptFile]) -> dict[str, list[KeptFile]]:
    kinds: dict[str, list[KeptFile]] = {}
    for file in files:
        kind = "measured times" if file.is_measured else KINDS.get(file.path.suffix, "other files")
        kinds.setdefault(kind, []).append(file)
    return dict(sorted(kinds.items()))


def _size(files: Sequence[KeptFile]) -> str:
    return _text(_bytes(files))


def _text(count: int) -> str:
    """Return bytes in the units in which the limit is documented."""
    return f"{count / (1 << 20):,.1f} MiB" if count < 1 << 30 else f"{count / (1 << 30):,.1f} GiB"


def _bytes(files: Sequence[KeptFile]) -> int:
    return sum(file.size for file in files)

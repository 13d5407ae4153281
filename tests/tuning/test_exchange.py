import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from redpebble.kernels.machine import Machine
from redpebble.kernels.measured.neighbours import Examples
from redpebble.tuning.exchange import export_machines, import_machines, known_machines
from redpebble.tuning.machines import KnownMachine, remember_machine
from tests.support.command_line import exit_code

FIRST, SECOND = "8/8/0.5/0.0/0.0|strips@64=2", "9/9/0.5/0.0/0.0|strips@64=3"
HERE = KnownMachine("0123456789abcdef", "a CPU", Machine(8, examples=Examples((FIRST,))))


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """The file that another machine has written."""
    remember_machine(tmp_path / "there", HERE)
    assert export_machines(tmp_path / "there", tmp_path / "shared.json") == [HERE]
    return tmp_path / "shared.json"


def test_machines_are_known_where_they_were_imported(exported: Path, tmp_path: Path) -> None:
    assert import_machines(tmp_path / "new", exported) == [HERE]
    assert known_machines(tmp_path / "new") == [HERE]


def test_layers_are_merged_and_what_was_measured_here_stays(exported: Path, tmp_path: Path) -> None:
    own = replace(HERE.machine, l3_ns=0.5, examples=Examples((SECOND, FIRST.replace("=2", "=4"))))
    remember_machine(tmp_path / "here", HERE._replace(machine=own))
    import_machines(tmp_path / "here", exported)
    (merged,) = known_machines(tmp_path / "here")
    assert merged.machine == replace(own, examples=Examples((FIRST.replace("=2", "=4"), SECOND)))


def test_layers_beside_other_prices_are_not_mixed(exported: Path, tmp_path: Path) -> None:
    own = replace(HERE.machine, prices="zen5", examples=Examples((SECOND,)))
    remember_machine(tmp_path / "here", HERE._replace(machine=own))
    import_machines(tmp_path / "here", exported)
    assert known_machines(tmp_path / "here") == [HERE._replace(machine=own)]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "another"}', '{"format": "redpebble measured machines 1"}', "[" * 100_000]
)
def test_a_file_of_another_kind_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(ValueError, match=r"file: expected what redpebble tune --export writes, got another file$"):
        import_machines(tmp_path, tmp_path / "file")


DAMAGES: tuple[dict[str, object], ...] = (
    {"name": "../../x"},
    {"name": 3},
    {"machine": {"lanes": 3}},
    {"machine": asdict(HERE.machine) | {"lanes": 8.0}},
    {"machine": asdict(HERE.machine) | {"l3_bytes": 10**400}},
    {"machine": asdict(HERE.machine) | {"dram_ns": 10**400}},
    {"machine": asdict(HERE.machine) | {"examples": {"words": [f"{10**400}/8/0.5/0.0/0.0|strips@64=2"]}}},
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_machine_that_makes_no_sense_is_refused_and_nothing_is_taken(
    damage: dict[str, object], exported: Path, tmp_path: Path
) -> None:
    content = json.loads(exported.read_text())
    content["machines"].append(content["machines"][0] | damage)
    exported.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"shared.json: expected machines that redpebble tune --export writes, got "):
        import_machines(tmp_path / "new", exported)
    assert not known_machines(tmp_path / "new")


def test_the_command_takes_and_writes(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    assert exit_code(monkeypatch, "tune", "--export", tmp_path / "out.json") == 2
    assert "nothing to export: no machine was measured" in capsys.readouterr().err
    assert exit_code(monkeypatch, "tune", "--import", exported, "--export", tmp_path / "out.json") == 0
    assert "a CPU: kernels on 1 layers from" in capsys.readouterr().out
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(exported.read_text())
    assert exit_code(monkeypatch, "tune", "--import", tmp_path / "missing.json") == 2


@pytest.mark.parametrize("kind", ["/dev/zero", "pipe"])
def test_a_file_without_an_end_is_refused(kind: str, tmp_path: Path) -> None:
    if kind == "pipe":
        kind = str(tmp_path / "pipe")
        os.mkfifo(kind)
    with pytest.raises(OSError, match=r"it is no regular file: "):
        import_machines(tmp_path, Path(kind))

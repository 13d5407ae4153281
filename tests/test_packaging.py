"""What is downloaded is whole, states what it needs, and works with the oldest versions that it accepts."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.test_architecture import FILES, imports_of

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = {"PIL", "matplotlib", "mpi4py", "mtkahypar", "sklearn", "torch", "transformers", "onnxscript"}
"""Modules that extras bring; what uses them says which extra it is."""

USE = """
import numpy as np, redpebble
from redpebble.models.zoo import build
model = build("ffnn(depth=2, width=64, density=0.2)")
x = np.random.default_rng(0).random((5, 64), dtype=np.float32)
(ours,) = redpebble.compile(model).run(None, {"x": x})
(inside,) = redpebble.session(model).run(None, {"x": x})
np.testing.assert_allclose(ours, inside, rtol=1e-4, atol=1e-5)
"""


def name_of(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement)[0].lower().replace("_", "-")


def test_every_import_is_stated_as_a_dependency() -> None:
    imported = {module.split(".")[0] for file in FILES for module in imports_of(file) if module}
    homes = packages_distributions()
    foreign = imported - set(sys.stdlib_module_names) - {"redpebble"} - OPTIONAL
    stated = {name_of(one) for one in PROJECT["dependencies"]}
    assert not {module for module in foreign if not {name_of(one) for one in homes.get(module, [])} & stated}


def test_the_version_is_the_same_everywhere() -> None:
    version = PROJECT["version"]
    newest = re.search(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_each_dependency_has_a_lowest_version() -> None:
    assert all(re.search(r"(>=|~=)\d", one) for one in PROJECT["dependencies"])


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.splitlines() if (ROOT / name).exists()}


def copy_of_the_sources(folder: Path) -> Path:
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


SYSTEMS = {
    "macosx": ("11_0", "12_0", "13_0", "14_0"),
    "manylinux": ("2014", "_2_17", "_2_26", "_2_27", "_2_28"),
}
"""Systems on 64-bit ARM, and the kinds of wheels that they take."""


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_dependency_has_a_wheel_for_arm(system: str, tmp_path: Path) -> None:
    machine = "arm64" if system == "macosx" else "aarch64"
    kinds = [f"{system}{'_' if system == 'macosx' else ''}{one}_{machine}" for one in SYSTEMS[system]]
    platforms = [word for kind in kinds for word in ("--platform", kind)]
    words = ["--dry-run", "--ignore-installed", "--only-binary=:all:", "--python-version", "3.13", *platforms]
    report = tmp_path / "report.json"
    command = ["pip", "install", "-q", *words, "--target", str(tmp_path), "--report", str(report)]
    subprocess.run([sys.executable, "-m", *command, *PROJECT["dependencies"]], check=True)
    wheels = [one["download_info"]["url"].rsplit("/", 1)[1] for one in json.loads(report.read_text())["install"]]
    assert {name_of(one) for one in wheels} >= {name_of(one).replace("-", "_") for one in PROJECT["dependencies"]}
    assert not [one for one in wheels if "x86" in one]


@pytest.mark.slow
def test_the_source_distribution_holds_every_file(tmp_path: Path) -> None:
    copy = copy_of_the_sources(tmp_path / "sources")
    code = f"import setuptools.build_meta as b; print(b.build_sdist({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert not tracked() - held


@pytest.mark.slow
def test_the_wheel_holds_every_module_but_those_of_measurements_and_tests(tmp_path: Path) -> None:
    copy = copy_of_the_sources(tmp_path / "sources")
    code = f"import setuptools.build_meta as b; print(b.build_wheel({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        held = {name for name in archive.namelist() if name.endswith(".py")}
    assert held == {
        f"redpebble/{file.relative_to(ROOT)}" for file in FILES if file.relative_to(ROOT).parts[0] != "bench"
    }


def test_no_page_says_that_an_index_has_the_package() -> None:
    pages = [ROOT / name for name in tracked() if name.endswith(".md") and not name.startswith("tests/")]
    assert not [page for page in pages if re.search(r"pip install ['\"]?redpebble", page.read_text())]


def wheel_of_the_sources(folder: Path) -> str:
    copy = copy_of_the_sources(folder / "sources")
    pip = [sys.executable, "-m", "pip", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(copy)], check=True)
    return str(next(folder.glob("*.whl")))


def interpreter(minor: int) -> str | None:
    """Return the path of an interpreter of Python 3.`minor` that runs here."""
    folders = [*Path.home().glob(f".pyenv/versions/3.{minor}.*/bin"), *os.get_exec_path()]
    for folder in folders:
        found = shutil.which(f"python3.{minor}", path=str(folder))
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return None


@pytest.mark.slow
@pytest.mark.parametrize("minor", [11, 12, 13, 14])
def test_the_wheel_works_in_a_clean_environment_and_leaves_nothing(minor: int, tmp_path: Path) -> None:
    found = interpreter(minor)
    if found is None:
        pytest.skip(f"there is no Python 3.{minor} here")
    wheel, home = wheel_of_the_sources(tmp_path), tmp_path / "home"
    home.mkdir()
    subprocess.run([found, "-m", "venv", str(tmp_path / "venv")], check=True)
    scripts, environment = tmp_path / "venv" / "bin", {"HOME": str(home), "PATH": "/usr/bin:/bin"}

    def run(*words: str) -> str:
        command = [str(scripts / words[0]), *words[1:]]
        done = subprocess.run(
            command, check=True, cwd=home, env=os.environ | environment, capture_output=True, text=True
        )
        return done.stdout

    run("python", "-m", "pip", "-q", "install", "--only-binary", ":all:", wheel)
    assert run("redpebble", "--version") == f"redpebble {PROJECT['version']}\n"
    run("python", "-c", USE)
    run("redpebble", "zoo", "ffnn(depth=2, width=256, density=0.1)", "in.onnx")
    run("redpebble", "optimize", "in.onnx", "out.onnx", "--library", "--check", "1")
    assert (home / "out.so").stat().st_size < 5_000_000
    run("python", "-m", "pip", "-q", "uninstall", "-y", "redpebble")
    assert not list((tmp_path / "venv").rglob("*redpebble*"))


@pytest.mark.slow
def test_the_lowest_versions_work(tmp_path: Path) -> None:
    wheel = wheel_of_the_sources(tmp_path)
    pins = [re.sub(r">=|~=", "==", one) for one in PROJECT["dependencies"]]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "-q", "install", "--only-binary", ":all:", wheel, *pins], check=True)
    subprocess.run([python, "-c", USE], check=True, cwd=tmp_path)
    subprocess.run([python, "-m", "redpebble", "zoo", "--list"], check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)


def test_the_lock_file_has_every_package_that_is_needed_in_versions_that_are_accepted() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    for needed in map(Requirement, PROJECT["dependencies"]):
        assert needed.specifier.contains(locked[needed.name]), f"make lock, for {needed}"
    blocks = re.split(r"^(?=[\w.-]+==)", lock, flags=re.MULTILINE)[1:]
    assert len(blocks) >= len(locked)
    assert all("--hash=sha256:" in block for block in blocks)

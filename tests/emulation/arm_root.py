"""A root of 64-bit ARM with Python, numpy and onnxruntime, and the qemu that runs it, which `make test-arm` sets up.

Debian's packages and the wheels of PyPI are downloaded and unpacked, nothing is installed: no right of root is needed.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
FOLDER: Final = REPOSITORY / "build" / "arm64"
ROOT: Final = FOLDER / "root"
PYTHON: Final = ROOT / "usr" / "bin" / "python3.11"
SITE: Final = ROOT / "usr" / "lib" / "python3" / "dist-packages"
QEMU: Final = FOLDER / "qemu" / "usr" / "bin" / "qemu-aarch64-static"
READY: Final = FOLDER / "ready"

MIRROR: Final = "http://deb.debian.org/debian"
PACKAGES: Final = ("python3.11", "libstdc++6", "libgomp1")

WHEELS: Final = ("numpy", "onnxruntime", "onnx", "onnx-ir", "llvmlite", "numba", "scipy", "xdsl")
"""Packages whose versions are those of this environment; what they need comes with them."""

MORE_WHEELS: Final = ("platformdirs", "typer", "rich", "threadpoolctl")

PLATFORMS: Final = ("2_28", "2_27", "2_26", "2_17")

CPUS: Final = """processor\t: {number}
BogoMIPS\t: 100.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
CPU revision\t: 1

"""
"""`/proc/cpuinfo` of a Cortex-A72: qemu shows programs the host's, which onnxruntime for ARM does not survive, and by a
newer one it would run instructions that an emulated Cortex-A72 lacks."""


def emulated(*words: object, cpu: str = "max", **environment: str) -> list[str]:
    """Return the command that runs Python for ARM with some words, on one of qemu's CPUs."""
    variables = [word for name, value in environment.items() for word in ("-E", f"{name}={value}")]
    return [str(QEMU), "-cpu", cpu, *variables, "-L", str(ROOT), str(PYTHON), *map(str, words)]


def set_up() -> None:
    """Download and unpack what is missing.

    Raises:
        OSError, subprocess.CalledProcessError: the programs of Debian are missing, or there is no network.
    """
    if READY.exists():
        return
    for package in _downloaded("amd64", ("qemu-user-static",)):
        if package.name.startswith("qemu"):
            _unpack(package, FOLDER / "qemu")
    for package in _downloaded("arm64", PACKAGES):
        _unpack(package, ROOT)
    wheels = FOLDER / "wheels"
    versions = [f"{name}=={version(name)}" for name in WHEELS]
    platforms = [word for name in PLATFORMS for word in ("--platform", f"manylinux_{name}_aarch64")]
    kind = ["--python-version", "3.11", "--only-binary=:all:", "--platform", "manylinux2014_aarch64", *platforms]
    words = ["pip", "download", "-q", "-d", str(wheels), *kind, *versions, *MORE_WHEELS]
    subprocess.run([sys.executable, "-m", *words], check=True)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as content:
            content.extractall(SITE)
    cpus = ROOT / "proc" / "cpuinfo"
    cpus.parent.mkdir(exist_ok=True)
    cpus.write_text("".join(CPUS.format(number=number) for number in range(os.cpu_count() or 1)))
    READY.touch()


def _downloaded(architecture: str, packages: tuple[str, ...]) -> list[Path]:
    """Return Debian's packages and those that they need, whatever this machine has."""
    state = FOLDER / f"apt-{architecture}"
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    keys = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
    (state / "sources.list").write_text(f"deb [arch={architecture} {keys}] {MIRROR} bookworm main\n")
    options = {
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state,
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Debug::NoLocking": 1,
    }
    apt = ["apt-get", "-qq", "-y", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "install", "--download-only", "--no-install-recommends", *packages], check=True)
    return sorted((state / "archives").glob("*.deb"))


def _unpack(package: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)


if __name__ == "__main__":
    missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"expected a Debian with {' and '.join(missing)}")
    set_up()

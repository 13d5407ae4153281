"""Places as containers are: nothing can be written but one folder, no /dev/shm, a user that the system does not know.

Linux makes them of namespaces, with or without root: `unshare` of util-linux. Where it may not, tests are skipped.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
USER: Final = 64321
"""A number of no user."""

FURNISH: Final = """
set -e
room=$1; shift
mkdir -p "$room/dev" "$room/open"
mount -t tmpfs tmpfs "$room/dev"
for device in null zero urandom; do
  touch "$room/dev/$device"
  mount --bind "/dev/$device" "$room/dev/$device"
done
mount --rbind "$room/dev" /dev
mount --bind "$room/open" "$room/open"
for folder in / /dev "$@"; do
  test "$folder" = -- && break
  test "$folder" = / || test "$folder" = /dev || mount --bind "$folder" "$folder"
  mount -o remount,bind,ro "$folder"
done
while test "$1" != --; do shift; done
shift
exec unshare --user --map-user=USER "$@"
""".replace("USER", str(USER))
"""Mounts the sandbox in a folder, whose folder `open` stays open; then folders to close, `--` and a command follow."""


def sandboxed(room: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a command does that runs where only the folder `open` of `room` can be written to.

    The test is skipped where the system makes no sandboxes.
    """
    closed = {str(folder) for folder in (ROOT, Path(sys.prefix), Path(sys.base_prefix))}
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", FURNISH, "sh", str(room), *closed, "--"]
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ} | environment

    def run(*program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, *program], cwd="/", env=kept, capture_output=True, text=True, timeout=1200, check=False
        )

    try:
        probe = run("true")
    except FileNotFoundError:
        pytest.skip("there is no `unshare` here")
    if probe.returncode:
        pytest.skip(f"the system makes no sandbox: {' '.join(probe.stderr.split())}")
    return run(*command)

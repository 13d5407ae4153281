"""Files of the cache are used only where nobody else can have written them."""

import os
from pathlib import Path

import pytest

from redpebble.foundation.private_files import UntrustedFileError, private_folder, read_private

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    private_folder(folder)
    path = folder / "code"
    path.write_bytes(b"code")
    path.chmod(0o600)
    return path


def test_a_folder_is_made_for_the_user_alone_whatever_the_mask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        private_folder(tmp_path / "a" / "cache")
    finally:
        os.umask(mask)
    assert (tmp_path / "a" / "cache").stat().st_mode & 0o777 == 0o700
    private_folder(tmp_path / "a" / "cache")


def test_a_file_of_the_user_is_read(file: Path) -> None:
    assert read_private(file) == b"code"
    file.chmod(0o444)
    file.parent.chmod(0o755)
    assert read_private(file) == b"code"


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_may_write_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(
        UntrustedFileError, match=r"code: expected only its owner to write to it, got others \(try `chmod go-w`\)"
    ):
        read_private(file)
    file.chmod(0o600)
    file.parent.chmod(0o100 | mode)
    for attempt in (lambda: read_private(file), lambda: private_folder(file.parent)):
        with pytest.raises(
            UntrustedFileError, match=r"cache: expected only its owner to write to it, got others \(try `chmod go-w`\)"
        ):
            attempt()


@as_root
@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
def test_what_belongs_to_others_is_refused(file: Path, is_folder: bool) -> None:
    os.chown(file.parent if is_folder else file, NOBODY, NOBODY)
    with pytest.raises(UntrustedFileError, match=f"expected owner 0 or root, got user {NOBODY}"):
        read_private(file)


def test_links_and_pipes_are_refused(file: Path) -> None:
    link, pipe = file.with_name("link"), file.with_name("pipe")
    link.symlink_to(file)
    with pytest.raises(OSError, match="symbolic links"):
        read_private(link)
    os.mkfifo(pipe, 0o600)
    with pytest.raises(UntrustedFileError, match="pipe is no plain file"):
        read_private(pipe)

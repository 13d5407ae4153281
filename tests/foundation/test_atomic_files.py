import errno
import threading
from pathlib import Path

import pytest

from redpebble.foundation.atomic_files import replacing, replacing_files, replacing_folder


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("private", [False, True])
def test_a_file_is_replaced_at_the_end_and_only_if_nothing_went_wrong(tmp_path: Path, *, private: bool) -> None:
    path = tmp_path / "report.json"
    path.write_text("before")

    def write(text: str, *, fails: bool) -> None:
        with replacing(path, private=private) as file:
            file.write(text.encode())
            assert path.read_text() == "before"
            if fails:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write("half", fails=True)
    assert names(tmp_path) == ["report.json"]
    assert path.read_text() == "before"
    mode = path.stat().st_mode & 0o777
    write("after", fails=False)
    assert path.read_text() == "after"
    assert path.stat().st_mode & 0o777 == (0o600 if private else mode)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "x.json"
    with pytest.raises(FileNotFoundError, match=r"^cannot write .*x\.json: .*missing is no folder$"), replacing(path):
        pass


def test_threads_that_write_one_file_do_not_meet(tmp_path: Path) -> None:
    path, together = tmp_path / "x", threading.Barrier(4)

    def write(text: str) -> None:
        with replacing(path) as file:
            together.wait()
            file.write(text.encode())

    threads = [threading.Thread(target=write, args=(letter * 1000,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(tmp_path) == ["x"]
    assert path.read_text() in [letter * 1000 for letter in "abcd"]


def test_a_folder_is_replaced_at_the_end_with_all_in_it(tmp_path: Path) -> None:
    path = tmp_path / "parts"
    path.mkdir()
    (path / "old").touch()

    def fill(*, fails: bool) -> None:
        with replacing_folder(path) as folder:
            (folder / "new").touch()
            assert names(path) == ["old"]
            if fails:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(fails=True)
    assert (names(tmp_path), names(path)) == (["parts"], ["old"])
    fill(fails=False)
    assert (names(tmp_path), names(path)) == (["parts"], ["new"])


def test_files_that_belong_together_appear_together_and_leave_others_alone(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    path = tmp_path / "m.onnx"

    def fill(*, fails: bool) -> None:
        with replacing_files(path) as folder:
            (folder / "m.onnx").touch()
            (folder / "m.onnx.data").touch()
            if fails:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(fails=True)
    assert names(tmp_path) == ["other"]
    fill(fails=False)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data", "other"]


def test_a_full_disk_is_said_of_the_file(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match=r"cannot write .*out\.so: No space left on device"),
        replacing(tmp_path / "out.so"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_cannot_be_put_in_its_place_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "parts"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(FileNotFoundError), replacing_folder(path) as folder:
        folder.rmdir()
    assert (names(tmp_path), names(path)) == (["parts"], ["old"])

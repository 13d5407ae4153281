from pathlib import Path

import pytest

from redpebble.runtime.store.atomic_files import replacing


def test_a_file_is_replaced_at_the_end_and_only_if_nothing_went_wrong(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("before")

    def write(text: str, *, fails: bool) -> None:
        with replacing(path) as file:
            file.write(text.encode())
            assert path.read_text() == "before"
            if fails:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write("half", fails=True)
    assert [one.name for one in tmp_path.iterdir()] == ["report.json"]
    assert path.read_text() == "before"
    write("after", fails=False)
    assert path.read_text() == "after"


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "x.json"
    with pytest.raises(FileNotFoundError, match=r"^cannot write .*x\.json: .*missing is no folder$"), replacing(path):
        pass

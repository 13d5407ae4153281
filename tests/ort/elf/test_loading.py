import pytest

from redpebble.ort.custom_ops.library import in_process_library


def test_a_library_of_this_process_cannot_be_changed() -> None:
    path = in_process_library()
    assert str(path).startswith("/proc/self/fd/")
    with pytest.raises(PermissionError), path.open("r+b") as file:
        file.write(b"\0")
    with pytest.raises(PermissionError), path.open("wb"):
        pass

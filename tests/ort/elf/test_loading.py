from collections.abc import Callable
from pathlib import Path

import pytest

from redpebble.ort.custom_ops.library import in_process_library
from redpebble.ort.provider.register import provider_library


@pytest.mark.parametrize("library", [in_process_library, provider_library])
def test_a_library_of_this_process_cannot_be_changed(library: Callable[[], Path]) -> None:
    path = library()
    assert str(path).startswith("/proc/self/fd/")
    with pytest.raises(PermissionError), path.open("r+b") as file:
        file.write(b"\0")
    with pytest.raises(PermissionError), path.open("wb"):
        pass

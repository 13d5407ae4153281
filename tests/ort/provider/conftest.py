"""What holds for all tests of the execution provider."""

import pytest


@pytest.fixture(autouse=True)
def nothing_is_left(provider: None) -> None:
    """Sessions of other tests are gone."""

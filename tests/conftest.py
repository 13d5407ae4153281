"""What holds for all tests."""

import gc
import logging
import signal
from collections.abc import Iterable, Iterator
from typing import Final

import pytest
from hypothesis import Phase, settings

from redpebble.ort.provider.register import host, unregister
from redpebble.tuning import machines

# To explain a failure Hypothesis traces every line on Python 3.11, of numba's compiler as well: it takes minutes
settings.register_profile("redpebble", phases=[phase for phase in Phase if phase is not Phase.explain])
settings.load_profile("redpebble")

SEARCHES: Final = (
    "tests/dialect/ops/test_network.py",
    "tests/distributed/plans/test_plans.py",
    "tests/end_to_end/test_commands_explain.py::test_the_page_needs_nothing_but_itself",
    "tests/passes/network/test_schedule_connections.py",
    "tests/test_pages.py::test_the_code_of_a_page_runs[theory.md]",
    "tests/theory/partition/",
    "tests/theory/pebbling/",
    "tests/tools/explain/test_sweep.py",
    "tests/tools/test_json_reports.py::test_json_of_every_command",
)
"""Tests of compiled loops of searches, which take a minute to compile."""

SOURCES: Final = (
    "tests/test_architecture.py",
    "tests/test_docstrings.py",
    "tests/test_packaging.py::test_every_import_is_stated",
)
"""Tests that parse all sources."""

MEASURED: Final = ("tests/tuning/test_calibration.py",)
"""Tests of one machine that was measured for all of them."""


@pytest.fixture(autouse=True, scope="session")
def prices_of_one_machine() -> Iterator[None]:
    """Decide by the prices of one machine in every process of tests, whoever made this CPU.

    A test that compares what kernels compute wants the kernels; tests of decisions name the machine.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machines, "prices_of_cpu", lambda: "zen5")
        yield


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test begins with does not depend on the user's variables, nor on commands that ran with --verbose."""
    monkeypatch.delenv("REDPEBBLE_CACHE", raising=False)
    logger = logging.getLogger("redpebble")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture
def raised_interrupts() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt, as in a terminal; processes in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def provider() -> Iterator[None]:
    """The execution provider holds nothing of earlier tests, and nothing after the test: then it is taken out."""
    if host().ep_count:
        gc.collect()
    yield
    gc.collect()
    assert host().network_count == 0
    assert host().ep_count == 0
    unregister()


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Keep together what shares expensive preparation where `--dist loadgroup` spreads tests over processes."""
    for item in items:
        for name, members in (("searches", SEARCHES), ("sources", SOURCES), ("measured", MEASURED)):
            if item.nodeid.startswith(members):
                item.add_marker(pytest.mark.xdist_group(name))

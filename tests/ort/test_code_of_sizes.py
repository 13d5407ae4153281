"""The sizes that get code, and those that keep it: what is asked for is made in the background, in order of use."""

import subprocess
import sys
import time
from threading import Event

import onnxruntime
import pytest

from redpebble.ort.code_of_sizes import (
    EAGER_SIZES,
    FEWEST_SIZES,
    SWITCH_SECONDS,
    CodeOfSizes,
    Key,
    Opening,
    serving,
)
from redpebble.ort.session_arguments import Sizes, Wanted
from tests.end_to_end.test_image_sizes import any_size


def is_cached(_: Sizes) -> bool:
    return True


class Made:
    """The sizes that were asked for, and one session for all of them, or none."""

    def __init__(self, session: onnxruntime.InferenceSession | None) -> None:
        self.asked: list[int] = []
        self._session = session

    def __call__(self, sizes: Sizes) -> onnxruntime.InferenceSession | None:
        self.asked.append(sizes["n"])
        return self._session

    def code(self, source: bytes | None = b"") -> CodeOfSizes:
        return CodeOfSizes(source, Wanted(1, 0), Opening(is_cached, self))


def of(size: int) -> Key:
    return (("n", size),)


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(any_size(8).SerializeToString())


def test_a_size_that_comes_once_is_made_while_there_are_few(session: onnxruntime.InferenceSession) -> None:
    made = Made(session)
    code = made.code()
    for size in range(EAGER_SIZES + 3):
        assert code.of(of(size)) is None
        code.wait()
    assert made.asked == [*range(EAGER_SIZES)]
    code.of(of(EAGER_SIZES + 1))
    code.wait()
    assert made.asked == [*range(EAGER_SIZES), EAGER_SIZES + 1]
    assert code.of(of(0)) is session


def test_of_a_large_model_the_sizes_called_last_are_kept(session: onnxruntime.InferenceSession) -> None:
    made = Made(session)
    code = made.code(source=None)
    for size in (0, 1):
        code.prepare(of(size))
    assert code.of(of(0)) is session
    code.prepare(of(2))
    assert code.ready_sizes() == [{"n": 0}, {"n": 2}]
    assert len(code.ready_sizes()) == FEWEST_SIZES
    assert code.of(of(1)) is None
    code.wait()
    assert code.ready_sizes() == [{"n": 2}, {"n": 1}]


def test_nothing_more_is_tried_where_no_size_gains() -> None:
    made = Made(None)
    code = made.code()
    for _ in range(2):
        for size in range(2 * EAGER_SIZES):
            assert code.of(of(size)) is None
            code.wait()
    assert made.asked == [*range(EAGER_SIZES)]


def test_an_error_is_logged_once_and_the_size_stays(caplog: pytest.LogCaptureFixture) -> None:
    def make(_: Sizes) -> onnxruntime.InferenceSession:
        raise RuntimeError("there is no code")

    code = CodeOfSizes(b"", Wanted(1, 0), Opening(is_cached, make))
    for _ in range(3):
        assert code.of(of(3)) is None
        code.wait()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "inputs of n=3 stay with onnxruntime: there is no code"
    ]


def test_a_call_waits_neither_for_the_thread_that_makes_code_nor_for_what_it_makes() -> None:
    turns: list[float] = []
    release = Event()

    def make(_: Sizes) -> onnxruntime.InferenceSession | None:
        turns.append(sys.getswitchinterval())
        release.wait(20)
        return None

    usual = sys.getswitchinterval()
    code = CodeOfSizes(b"", Wanted(1, 0), Opening(is_cached, make))
    assert [code.of(of(size)) for size in (3, 4, 3)] == [None] * 3
    assert code in serving()
    release.set()
    code.wait()
    assert turns == pytest.approx([SWITCH_SECONDS] * 2)
    assert sys.getswitchinterval() == pytest.approx(usual)
    code.close_at_exit()
    assert code not in serving()


def test_requests_after_an_idle_time_are_served_by_a_new_thread(
    session: onnxruntime.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redpebble.ort.code_of_sizes.LINGER_SECONDS", 0.01)
    made = Made(session)
    code = made.code()
    for size in (1, 2):
        assert code.of(of(size)) is None
        code.wait()
        while code in serving():
            time.sleep(0.01)
    assert made.asked == [1, 2]
    assert code.of(of(1)) is session


PROGRAM = """
import sys, time
from redpebble.ort.code_of_sizes import CodeOfSizes, Opening
from redpebble.ort.session_arguments import Wanted
def make(sizes):
    print("made", flush=True)
    time.sleep(0.3)
    print("done", flush=True)
code = CodeOfSizes(b"", Wanted(1, 0), Opening(lambda sizes: True, make))
code.of((("n", 1),)), code.of((("n", 2),))
while not code._met: time.sleep(0.01)
"""


def test_the_interpreter_ends_behind_what_is_being_made_and_makes_no_more() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.split()
    assert lines.count("made") == lines.count("done") <= 2


def test_what_is_closed_makes_nothing(session: onnxruntime.InferenceSession) -> None:
    made = Made(session)
    code = made.code()
    code.close()
    assert code.of(of(1)) is None
    code.wait()
    assert made.asked == []

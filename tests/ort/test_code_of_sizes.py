"""The sizes that get code, and those that keep it: what is asked for is made in the background, in order of use."""

import onnxruntime
import pytest

from redpebble.ort.code_of_sizes import EAGER_SIZES, FEWEST_SIZES, CodeOfSizes, Key, Opening
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


def test_what_is_closed_makes_nothing(session: onnxruntime.InferenceSession) -> None:
    made = Made(session)
    code = made.code()
    code.close()
    assert code.of(of(1)) is None
    code.wait()
    assert made.asked == []

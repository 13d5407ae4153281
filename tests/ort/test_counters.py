"""`redpebble.counters` and `redpebble_report`: where the code of sessions came from, and what calls took."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import redpebble
from redpebble.ort import network_code
from redpebble.ort.native.ep_library import EP_NAME
from redpebble.ort.reported_session import CountedCalls
from redpebble.ort.sized_session import SizedSession
from tests.end_to_end.test_image_sizes import any_size
from tests.ort.provider_models import MLP
from tests.ort.provider_models import model as model_of
from tests.support.quantized_models import pruned_network


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was compiled before."""
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path))


def change(model: bytes) -> dict[str, float]:
    """Return what a session of a model adds to the counts, but seconds."""
    before = redpebble.counters()
    redpebble.session(model)
    after = redpebble.counters()
    assert (after["optimizing_seconds"] > before["optimizing_seconds"]) == (
        after["models_optimized"] > before["models_optimized"]
    )
    counts = {name: after[name] - before[name] for name in after if name != "optimizing_seconds"}
    return {name: number for name, number in counts.items() if number}


def test_the_first_session_compiles_and_the_next_comes_from_the_cache() -> None:
    model = pruned_network((256, 256, 256), 0.05).SerializeToString()
    assert change(model) == {"models_optimized": 1, "networks_compiled": 1}
    assert change(model) == {"models_from_cache": 1, "networks_from_cache": 1}


def test_a_dense_model_is_left() -> None:
    assert change(pruned_network((64, 64, 64), 1.0).SerializeToString()) == {"models_left": 1}


def test_a_network_without_native_code_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pruned_network((256, 256, 128), 0.05).SerializeToString()
    redpebble.session(model)

    def refused(*_: object) -> None:
        raise OSError("no room for code")

    monkeypatch.setattr(network_code, "load_network", refused)
    assert change(model)["networks_as_functions"] >= 1


def counted(model: bytes) -> tuple[CountedCalls, dict[str, float]]:
    session = redpebble.session(model, count_calls=True)
    assert isinstance(session, CountedCalls)
    return session, session.redpebble_report


def test_a_session_reports_what_it_is_made_of_and_what_its_calls_took() -> None:
    model = pruned_network((192, 256, 256), 0.05).SerializeToString()
    for names in ("models_optimized", "networks_compiled"), ("models_from_cache", "networks_from_cache"):
        before = redpebble.counters()
        session, report = counted(model)
        after = redpebble.counters()
        assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {
            name: amount for name, amount in report.items() if name in after
        }
        assert [report[name] for name in names] == [1, 1]
        assert (report["calls"], report["rows"], report["seconds"]) == (0, 0, 0)
        name = session.get_inputs()[0].name
        for batch in (0, 1, 7, 17):
            session.run(None, {name: np.ones((batch, 192), np.float32)})
        with pytest.raises(Exception, match="nvalid"):
            session.run(None, {name: np.ones((1, 7), np.float32)})
        session.run(None, {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.ones((3, 192), np.float32))})
        report = session.redpebble_report
        assert (report["calls"], report["rows"]) == (5, 28)
        assert 0 < report["seconds"] < 60


def test_a_session_that_counts_no_calls_runs_as_onnxruntime_does() -> None:
    session = redpebble.session(pruned_network((64, 64, 64), 1.0).SerializeToString())
    assert session.redpebble_report == {"models_left": 1}
    assert type(session).run is onnxruntime.InferenceSession.run


def test_threads_lose_no_call() -> None:
    session, _ = counted(pruned_network((64, 64, 64), 1.0).SerializeToString())
    x = {session.get_inputs()[0].name: np.ones((2, 64), np.float32)}

    def call(_: int) -> None:
        session.run(None, x)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(400)))
    report = session.redpebble_report
    assert (report["calls"], report["rows"]) == (400, 800)


def test_calls_of_sizes_without_code_are_reported() -> None:
    session = redpebble.session(any_size(8).SerializeToString(), count_calls=True)
    assert isinstance(session, SizedSession)
    image = {session.get_inputs()[0].name: np.ones((1, 3, 32, 32), np.float32)}
    session.run(None, image)
    session.code.wait()
    session.run(None, image)
    report = session.redpebble_report
    assert report["sizes_with_code"] == report["sizes_compiled"] == 1
    assert (report["calls"], report["calls_without_code"], report["rows"]) == (2, 1, 2)


def test_networks_of_the_provider_are_counted() -> None:
    redpebble.register()
    proto = model_of(MLP).SerializeToString()
    found: list[float] = []
    for name in ("networks_compiled", "networks_from_cache"):
        before = redpebble.counters()[name]
        onnxruntime.InferenceSession(proto, providers=[EP_NAME])
        found.append(redpebble.counters()[name] - before)
    assert found == [1, 1]

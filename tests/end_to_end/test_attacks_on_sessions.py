"""Attacks that `compile` withstands, on sessions with nodes of ours and with the provider."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import redpebble
from redpebble.frontend.errors import ModelError
from redpebble.runtime.store.cache import default_folder
from tests.end_to_end.malformed_models import INVALID
from tests.end_to_end.test_attacks import WAYS
from tests.frontend.import_oracle import model, normal
from tests.frontend.reading.test_limits import STAYING, TOO_LARGE
from tests.ort.provider_models import MLP, assert_equal_runs, feeds, plain_session
from tests.ort.provider_models import model as pruned

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["forks", "shapes"])
@pytest.mark.parametrize("way", ["session", "provider"])
def test_processes_fork_and_threads_call_at_once(way: str, scenario: str) -> None:
    words = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-m",
        "tests.end_to_end.session_program",
        way,
        scenario,
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.filterwarnings("ignore:Ignoring unknown external data")
@pytest.mark.parametrize("name", INVALID)
def test_what_is_no_model_is_one_line_of_a_session(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as refusal:
        redpebble.session(str(INVALID[name](tmp_path)))
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TOO_LARGE, *STAYING])
def test_what_would_take_all_memory_is_left_to_onnxruntime_or_refused(name: str) -> None:
    """onnxruntime says itself what it does not take; it is not run, since it would."""
    proto = STAYING[name] if name in STAYING else TOO_LARGE[name][0]
    with suppress(ModelError):
        assert len(redpebble.optimize(proto).model.graph) > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the cache is not used")
@pytest.mark.parametrize(
    "how", ["writable", *(pytest.param(how, marks=pytest.mark.slow) for how in ("link", "changed"))]
)
def test_a_cache_that_others_may_have_written_is_not_used_by_sessions(how: str, tmp_path: Path) -> None:
    redpebble.session(pruned(MLP))
    files = [path for path in default_folder().rglob("*") if path.is_file()]
    assert files
    for path in files:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        match how:
            case "writable":
                path.chmod(0o666)
            case "link":
                path.rename(tmp_path / path.name)
                path.symlink_to(tmp_path / path.name)
            case _:
                path.write_bytes(content)
    live = redpebble.session(pruned(MLP))
    assert_equal_runs(live, plain_session(pruned(MLP)), feeds(7))


def test_a_session_does_not_see_what_becomes_of_files_of_the_cache() -> None:
    redpebble.session(pruned(MLP))
    live = redpebble.session(pruned(MLP))
    for path in default_folder().rglob("*"):
        if path.is_file():
            os.truncate(path, 10)
    assert_equal_runs(live, plain_session(pruned(MLP)), feeds(7))


@pytest.mark.parametrize("way", [name for name in WAYS if name != "provider"])
def test_sparse_values_in_files_are_those_of_the_models_folder_wherever_a_program_runs(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = model("(float[n,4] x) => (float[n,4] y)", "y = Add(x, w)", opset=17)
    values, places = numpy_helper.from_array(normal(2), "w"), numpy_helper.from_array(np.array([0, 3]), "w_i")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [1, 1, 4]))
    stored = proto.graph.sparse_initializer[0].values
    stored.ClearField("raw_data")
    stored.data_location = onnx.TensorProto.EXTERNAL
    stored.external_data.add(key="location", value="values")
    for folder, number in (("own", 2.0), ("other", 777.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "values").write_bytes(np.full(2, number, np.float32).tobytes())
    (tmp_path / "own" / "m.onnx").write_bytes(proto.SerializeToString())
    monkeypatch.chdir(tmp_path / "other")
    made = WAYS[way](str(tmp_path / "own" / "m.onnx"))
    live = plain_session(made.proto) if isinstance(made, redpebble.Optimized) else made
    assert isinstance(live, redpebble.Network | onnxruntime.InferenceSession)
    found = np.asarray(live.run(None, {"x": np.zeros((1, 4), np.float32)})[0])
    assert sorted(set(found.reshape(-1).tolist())) == [0.0, 2.0]

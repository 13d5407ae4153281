"""`redpebble.counters`: where the code of sessions came from."""

import pytest

import redpebble
from redpebble.ort import network_code
from tests.support.quantized_models import pruned_network


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

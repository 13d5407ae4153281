"""Layers inside of If, Loop and Scan in the execution provider."""

import numpy as np
import pytest

from redpebble.ort.provider.register import host
from tests.driver.test_bodies import MODELS, feeds
from tests.ort.provider_models import plain_session, provider_session


@pytest.mark.parametrize("name", ["if", *(pytest.param(name, marks=pytest.mark.slow) for name in ("loop", "scan"))])
def test_bodies_read_what_is_around_them(name: str) -> None:
    made, networks = MODELS[name]
    proto = made()
    ours, plain = provider_session(proto), plain_session(proto)
    assert host().network_count == networks
    for batch in (4, 7):
        arrays = feeds(proto, batch)
        (found,), (expected,) = (np.asarray(each.run(None, arrays)) for each in (ours, plain))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)

import gc
import signal

import onnx_ir
import onnxruntime
import pytest

from redpebble.ort.provider.networks import Found, NetworkModel
from redpebble.ort.provider.register import host, minor_version, register
from redpebble.runtime.store.artefact import Artefact
from tests.ort.provider.test_provider import Forgetful
from tests.ort.provider_models import MLP, assert_equal_runs, feeds, model, plain_session, provider_session


class Interrupted(Forgetful):
    """A compiler at work when Ctrl-C comes: while nodes are chosen, or while a network is compiled."""

    def __init__(self, *, amid_planning: bool) -> None:
        self._amid_planning = amid_planning

    def networks(self, model: onnx_ir.Model) -> list[Found]:
        if self._amid_planning:
            signal.raise_signal(signal.SIGINT)
        return super().networks(model)

    def compile(self, digest: bytes, model: NetworkModel) -> tuple[str, Artefact]:
        signal.raise_signal(signal.SIGINT)
        return super().compile(digest, model)


@pytest.mark.usefixtures("raised_interrupts")
@pytest.mark.parametrize("amid_planning", [True, False])
def test_an_interrupt_is_raised_behind_the_session(*, amid_planning: bool) -> None:
    register()
    host().open(Interrupted(amid_planning=amid_planning), minor_version(onnxruntime.__version__))
    with pytest.raises(KeyboardInterrupt):
        provider_session(model(MLP))
    gc.collect()
    host().open(Forgetful(), minor_version(onnxruntime.__version__))
    assert_equal_runs(provider_session(model(MLP)), plain_session(model(MLP)), feeds(7))

"""redpebble as a backend of `onnx.backend.test`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

import redpebble
from redpebble.lowering.cpu_target import CpuTarget


class RedpebbleRep(BackendRep):
    """A compiled model."""

    def __init__(self, network: redpebble.Network) -> None:
        self._network = network

    def run(self, inputs: Sequence[NDArray[Any]], **_: object) -> tuple[NDArray[np.float32], ...]:
        """Run on inputs in the graph's order."""
        names = [argument.name for argument in self._network.get_inputs()]
        return tuple(self._network.run(None, dict(zip(names, inputs, strict=True))))


class RedpebbleBackend(Backend):
    """Native code for models that are covered completely; others are skipped, with our refusal as the cause."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", *, target: CpuTarget | None = None, **_: object
    ) -> RedpebbleRep:
        """Compile a model.

        Raises:
            BackendIsNotSupposedToImplementIt: something in it is not covered.
        """
        try:
            return RedpebbleRep(redpebble.compile(model, target=target, cache=False))
        except redpebble.UnsupportedModelError as refusal:
            raise BackendIsNotSupposedToImplementIt(str(refusal)) from refusal

    @classmethod
    def run_model(
        cls,
        model: onnx.ModelProto,
        inputs: Sequence[NDArray[Any]],
        device: str = "CPU",
        *,
        target: CpuTarget | None = None,
        **_: object,
    ) -> tuple[NDArray[np.float32], ...]:
        """Compile a model and run it once."""
        return cls.prepare(model, device, target=target).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is the CPU."""
        return device == "CPU"

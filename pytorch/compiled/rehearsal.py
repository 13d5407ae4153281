"""Times of a module in a session of onnxruntime, dense and with so many zeros in each layer: what prices do not know.

Attention, norms and the like take their time at any density, and a machine may be faster at some layers than its kind.
Which weights are zeros hardly matters for the time: a rehearsal takes the smallest ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...foundation.errors import RedpebbleError
from ...frontend.reading.model_source import read_runnable_model
from ...pruning.runs.timing import ModelClock
from ...runtime.memory import return_free_memory
from ..batches import Batch, Forward, Run, device_of, moved
from ..layers import PrunableWeight
from ..structures import Sparsity, Structure
from .onnx_bytes import evaluating, exportable, onnx_bytes

Densities = Mapping[str, float]


class _Called(nn.Module):
    """A module that is called with the tensors of a batch, and answers tensors."""

    def __init__(self, module: nn.Module, forward: Forward, batch: Batch) -> None:
        super().__init__()
        self.module = module
        leaves, form = pytree.tree_flatten(batch)

        def called(*tensors: Tensor) -> tuple[Tensor, ...]:
            found = iter(tensors)
            values = [next(found) if isinstance(one, Tensor) else one for one in leaves]
            answer = forward(module, pytree.tree_unflatten(values, form))
            return tuple(one for one in pytree.tree_leaves(answer) if isinstance(one, Tensor))

        self.forward = called


class Rehearsal:
    """Rehearsals of a module in calls of a batch."""

    def __init__(self, module: nn.Module, forward: Forward, batch: Batch, threads: int) -> None:
        self._forward, self._batch = forward, moved(batch, torch.device("cpu"))
        model = self._exported(module)
        names = [one.name for one in model.graph.inputs]
        feeds = {name: one.numpy() for name, one in zip(names, self._tensors, strict=True) if name is not None}
        self._clock = ModelClock(model, feeds, threads)
        self._clock.measure_original()

    @staticmethod
    def of(module: nn.Module, run: Run, rows: tuple[int, int], threads: int) -> "Rehearsal | None":
        """Return rehearsals of calls of so many rows, of which the first batch has as many as the second number.

        None where a sample has more rows than a call is to have, or onnxruntime has no such model.
        """
        wanted, of_batch = rows
        tensors = [one for one in pytree.tree_leaves(run.batches[0]) if isinstance(one, Tensor) and one.dim()]
        samples = len(tensors[0]) if tensors else 0
        if not samples or wanted * samples < of_batch:
            return None
        count = max(1, round(wanted * samples / of_batch))

        def resized(value: Any) -> Any:  # noqa: ANN401
            if not isinstance(value, Tensor) or not value.dim() or len(value) != samples:
                return value
            return value[torch.arange(count, device=value.device) % samples]

        try:
            return Rehearsal(module, run.forward, pytree.tree_map(resized, run.batches[0]), threads)
        except RedpebbleError:
            return None

    @property
    def original_us(self) -> float:
        """The microseconds of the dense module, by the fastest round until now."""
        return self._clock.original_us

    @property
    def inputs(self) -> str:
        """The names and shapes of the inputs of the call."""
        return self._clock.inputs

    def us(
        self, module: nn.Module, weights: Sequence[PrunableWeight], densities: Densities, structure: Structure
    ) -> float:
        """Return the microseconds with so many zeros."""
        before = {one: one.values.clone() for one in weights if densities.get(one.name, 1.0) < 1}
        try:
            with torch.no_grad():
                for one, dense in before.items():
                    mask = one.live.whole(
                        Sparsity(structure, densities[one.name]).mask(one.live.part(one.matrix.square()))
                    )
                    one.values.copy_(dense * one.as_stored(mask.to(dense.dtype)))
            model = self._exported(module)
        finally:
            with torch.no_grad():
                for one, dense in before.items():
                    one.values.copy_(dense)
        found = self._clock.times(model).pruned_us
        return_free_memory()
        return found

    @property
    def _tensors(self) -> list[Tensor]:
        return [one for one in pytree.tree_leaves(self._batch) if isinstance(one, Tensor)]

    def _exported(self, module: nn.Module) -> onnx_ir.Model:
        device = device_of(module)
        module.cpu()
        try:
            called = _Called(module, self._forward, self._batch)
            with evaluating(module), exportable(module):
                content = onnx_bytes(called, tuple(self._tensors), {}, None, type(module).__name__)
        finally:
            module.to(device)
        return read_runnable_model(content)

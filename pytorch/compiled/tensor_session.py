"""Sessions from tensors to tensors: numpy's arrays lie between, of the same memory, which is faster than DLPack here.

A call of 4 KiB takes 57 us with arrays and 290 us with `OrtValue.from_dlpack`, whose Python does more than it saves.
"""

import threading
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final

import torch
from torch import Tensor

from ...foundation.tensor_types import DTYPES
from ...frontend.reading.axis_names import size_or_name
from ...ort.any_model import session
from ...verification.oracle import Tolerance, compare, session_options

Session = Any
"""An `onnxruntime.InferenceSession`."""

TOLERANCE: Final = Tolerance(1e-3, 1e-4)
ROUGHLY: Final = Tolerance(2e-2, 2e-2)
"""Tolerances of floats and of half floats: sums are added in another order."""


TYPE_NAMES: Final = {name: str(dtype) for name, dtype in DTYPES.items()}
"""Types of onnxruntime -> those of torch."""


class TensorSession:
    """A session of an ONNX model in memory, opened by the first call; it is copied and pickled as the model."""

    def __init__(self, model: bytes, threads: int, rows: int = 0) -> None:
        self.model, self.threads, self.rows = model, threads, rows
        self._forget()

    def _forget(self) -> None:
        self._session: Any = None
        self._opening = threading.Lock()
        self._names: tuple[str, ...] = ()

    def __getstate__(self) -> tuple[bytes, int, int]:
        return self.model, self.threads, self.rows

    def __setstate__(self, state: tuple[bytes, int, int]) -> None:
        self.model, self.threads, self.rows = state
        self._forget()

    def __deepcopy__(self, memo: dict[int, Any]) -> "TensorSession":
        return TensorSession(*deepcopy(self.__getstate__(), memo))

    @property
    def session(self) -> Session:
        """The session of onnxruntime."""
        with self._opening:
            if self._session is None:
                made = session(self.model, session_options(self.threads), rows=self.rows)
                self._names = tuple(one.name for one in made.get_inputs())
                self._session = made
        return self._session

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Run tensors, in the order of the model's inputs.

        Raises:
            ValueError: there are too few or too many, or types, shapes or devices are not the model's.
        """
        running = self._session or self.session
        if len(tensors) != len(self._names):
            raise ValueError(f"inputs: expected {len(self._names)} tensors, got {len(tensors)}")
        try:
            arrays = [one.detach().contiguous().numpy() for one in tensors]
            found = running.run(None, dict(zip(self._names, arrays, strict=True)))
        except Exception:
            self._explain(tensors)
            raise
        return [torch.from_numpy(one) for one in found]

    def _explain(self, tensors: Sequence[Tensor]) -> None:
        """Raise what is wrong about the first tensor that is not as the model wants it, if one is not."""
        for i, (wanted, got) in enumerate(zip(self.session.get_inputs(), tensors, strict=True)):
            wanted_type = TYPE_NAMES.get(wanted.type, wanted.type)
            type_name = str(got.dtype).removeprefix("torch.")
            fits = len(wanted.shape) == got.dim() and all(
                isinstance(size, str) or size is None or size == actual
                for size, actual in zip(wanted.shape, got.shape, strict=True)
            )
            if got.device.type != "cpu" or wanted_type != type_name or not fits:
                sizes = ", ".join(str(size_or_name(size)) for size in wanted.shape)
                raise ValueError(
                    f"input {i}: expected {wanted_type} [{sizes}] on cpu, got {type_name} {list(got.shape)} "
                    f"on {got.device}"
                ) from None


def difference(expected: Sequence[Tensor], got: Sequence[Tensor]) -> str:
    """Return a line about the first output that differs by more than rounding; empty where none does."""
    if len(expected) != len(got):
        return f"expected {len(expected)} outputs, got {len(got)}"
    for i, (one, other) in enumerate(zip(expected, got, strict=True)):
        tolerance = ROUGHLY if one.dtype in (torch.float16, torch.bfloat16) else TOLERANCE
        found = compare(f"output {i}", one.detach().numpy(), other.numpy(), tolerance)
        if found.mismatches:
            what = f"{one.dtype} {list(one.shape)}"
            if (one.dtype, one.shape) != (other.dtype, other.shape):
                return f"output {i}: expected {what}, got {other.dtype} {list(other.shape)}"
            return f"output {i}: expected the module's {what}, got {found.mismatches} values that differ by up to "
            f"{found.max_error:.3g}"
    return ""

"""A model as a callable for engines that run it on many workers: Ray, Dask, Spark, Beam, multiprocessing."""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast, overload

import numpy as np
import onnxruntime
from numpy.typing import ArrayLike, NDArray

from ..foundation.tensor_types import DTYPES
from .session_arguments import Sizes

Array = NDArray[Any]


_INHERITED: list[object] = []
"""Sessions of the process that this one was forked from."""


class Predictor:
    """A session of a model file that opens where it is called, so that it can be sent to workers before.

    ```python
    predict = redpebble.Predictor("model.onnx")
    y = predict(x)                         # arrays in the order of the model's inputs; one output, or a tuple
    outputs = predict({"x": x, "id": ids})  # or a batch by names: the model's outputs by theirs
    ```
    Workers of one machine share the user's cache: the first that opens a model compiles it, the others wait for it.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        threads: int = 1,
        rows: int = 0,
        sizes: Sequence[Sizes] = (),
        outputs: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        library: str | os.PathLike[str] | None = None,
    ) -> None:
        """Name a model; nothing is read before the first call.

        `threads` are those of a call (0: as many as there are cores), `rows` and `sizes` those of `redpebble.session`.
        A batch by names gives the `outputs`, all of the model where none are named, and the columns of it that are to
        be kept as they are. `library` is what `redpebble optimize --library` wrote beside the model: it needs no cache.

        Raises:
            ValueError: threads are negative.
        """
        if threads < 0:
            raise ValueError(f"threads: expected 0 or more, got {threads}")
        self.model, self.threads, self.rows = os.fspath(model), threads, rows
        self.sizes, self.keep = tuple(dict(one) for one in sizes), tuple(keep)
        self.outputs = None if outputs is None else tuple(outputs)
        self.library = None if library is None else os.fspath(library)
        self._forget()

    def _forget(self) -> None:
        self._session: onnxruntime.InferenceSession | None = None
        self._process = os.getpid()
        self._opening = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    @property
    def session(self) -> onnxruntime.InferenceSession:
        """The session of this process, opened when it is asked for first.

        Raises:
            ModelError: the model is unreadable.
        """
        if self._process != os.getpid():
            # a child of `fork` has the session, but none of its threads, which its end would wait for
            _INHERITED.append(self._session)
            self._forget()
        with self._opening:
            if self._session is None:
                self._session = self._opened()
            return self._session

    def _opened(self) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 3  # a line for each of a hundred workers helps nobody
        if self.library is not None:
            options.register_custom_ops_library(self.library)
            return onnxruntime.InferenceSession(self.model, options, providers=["CPUExecutionProvider"])
        from .any_model import session

        return session(self.model, options, rows=self.rows, sizes=self.sizes)

    @overload
    def __call__(self, batch: Mapping[str, ArrayLike], /) -> dict[str, Array]: ...
    @overload
    def __call__(self, *inputs: ArrayLike) -> Array | tuple[Array, ...]: ...
    def __call__(self, *inputs: Mapping[str, ArrayLike] | ArrayLike) -> dict[str, Array] | Array | tuple[Array, ...]:
        """Run a batch: arrays, in the order of the model's inputs, or one mapping of names to arrays.

        Values are made arrays of the types that the model wants. Arrays give an array, or a tuple of arrays where
        there are several outputs; a mapping gives a dict.

        Raises:
            ValueError: an input is missing, or there are too many, or the shapes are not the model's.
        """
        session = self.session
        wanted = session.get_inputs()
        names = [one.name for one in wanted]
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            batch = inputs[0]
            missing = [name for name in [*names, *self.keep] if name not in batch]
            if missing:
                raise ValueError(f"batch: expected {', '.join([*names, *self.keep])}, got {', '.join(batch)}")
            results = self._run(session, [batch[name] for name in names])
            outputs = self.outputs or [one.name for one in session.get_outputs()]
            return {**{name: np.asarray(batch[name]) for name in self.keep}, **dict(zip(outputs, results, strict=True))}
        if len(inputs) != len(names):
            raise ValueError(f"inputs: expected {len(names)} ({', '.join(names)}), got {len(inputs)}")
        results = self._run(session, cast("Sequence[ArrayLike]", inputs))
        return results[0] if len(results) == 1 else tuple(results)

    def _run(self, session: onnxruntime.InferenceSession, values: Sequence[ArrayLike]) -> list[Array]:
        # engines that know floats of 64 bits alone give these to every model
        feeds = {
            one.name: np.asarray(value, DTYPES.get(one.type))
            for one, value in zip(session.get_inputs(), values, strict=True)
        }
        return session.run(self.outputs, feeds)

    def __repr__(self) -> str:
        return f"Predictor({self.model!r}, threads={self.threads})"

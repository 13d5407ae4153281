"""A compiled network of images of any size: native code for each size, made when it is first called with that."""

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Final

import numpy as np
import onnx_ir
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from ..dialect.reports.layer_report import Report
from ..frontend.errors import UnknownSizesError, UnsupportedModelError
from ..frontend.folding.known_sizes import KNOWN_SIZE
from ..frontend.import_model import Source
from ..frontend.reading.axis_names import Axes, sizes_of
from ..frontend.reading.model_source import read_model
from ..runtime.bound_call import BoundCall
from ..runtime.network import Floats, Network, NodeArg
from .axes_of_code import axes_of_all, axes_of_code
from .stated_sizes import with_sizes

MOST_SIZES: Final = 8
"""Sizes for which a compiled network has code at a time: each takes seconds to make, and memory for its weights."""

Making = Callable[[Source], Network]
"""Makes native code of a model whose images have one size."""


class NetworkOfSizes(Network):
    """A network that hands calls on to one for the sizes of their images."""

    def __init__(self, model: onnx_ir.Model, making: Making, threads: int, axes: Axes) -> None:
        """Make a network of a model whose code waits for the sizes of `axes`; `making` makes it for `threads`."""
        self._model, self._making, self.threads = model, making, threads
        self._free = axes
        self._inputs = [value for value in model.graph.inputs if not value.is_initializer()]
        self._networks: dict[tuple[int, ...], Network] = {}
        self._lock = Lock()

    @property
    @override
    def report(self) -> Report:
        """The report for the sizes that were last made code for; an empty one before."""
        networks = [*self._networks.values()]
        return networks[-1].report if networks else Report(())

    @override
    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs, as `InferenceSession.get_inputs` does."""
        return [_described(value) for value in self._inputs]

    @override
    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs, as `InferenceSession.get_outputs` does."""
        return [_described(value) for value in self._model.graph.outputs]

    @override
    def __call__(self, *inputs: NDArray[Any], threads: int | None = None) -> Floats | list[Floats]:
        """Run on inputs in their order, as `Network` does.

        Raises:
            ValueError: a dtype or shape does not fit.
            ModelError: something is not covered in images of these sizes.
        """
        if len(inputs) != len(self._inputs):
            raise ValueError(f"expected {len(self._inputs)} inputs, got {len(inputs)}")
        names = (value.name or "" for value in self._inputs)
        return self._of(dict(zip(names, inputs, strict=True)))(*inputs, threads=threads)

    @override
    def run(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, ArrayLike], *, threads: int | None = None
    ) -> list[Floats]:
        """Run on inputs by name, as `Network` does.

        Raises:
            ValueError: a name, dtype or shape does not fit.
            ModelError: something is not covered in images of these sizes.
        """
        return self._of(feeds).run(output_names, feeds, threads=threads)

    @override
    def bind(
        self,
        feeds: Mapping[str, NDArray[np.generic]],
        outputs: Mapping[str, NDArray[np.generic]] | None = None,
        *,
        threads: int | None = None,
    ) -> BoundCall:
        """Return the call on these arrays, as `Network` does.

        Raises:
            ValueError: a name, dtype or shape does not fit.
            ModelError: something is not covered in images of these sizes.
        """
        return self._of(feeds).bind(feeds, outputs, threads=threads)

    def _of(self, feeds: Mapping[str, Any]) -> Network:
        """Return the network for the sizes of these inputs.

        Raises:
            ValueError: inputs have no sizes of images, or sizes that contradict each other.
            ModelError: something is not covered in images of these sizes.
        """
        shapes = {name: tuple(getattr(feeds.get(name), "shape", ())) for name in self._free}
        sizes = sizes_of(self._free, shapes)
        if sizes is None:
            found = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
            wanted = ", ".join(f"{arg.name} {arg.shape}" for arg in self.get_inputs() if arg.name in self._free)
            raise ValueError(f"expected inputs {wanted}, got {found}")
        key = tuple(sizes.values())
        network = self._networks.get(key)
        if network is None:
            with self._lock:
                network = self._networks.get(key) or self._made(sizes)
                self._networks[key] = network
                for oldest in [*self._networks][:-MOST_SIZES]:
                    del self._networks[oldest]
        return network

    def _made(self, sizes: Mapping[str, int]) -> Network:
        return self._making(with_sizes(self._model, sizes))


def compiled_for_sizes(source: Source, making: Making, threads: int) -> Network:
    """Return a network; of sizes, where layers on images, a softmax, say, need to know what calls choose.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
    """
    try:
        return making(source)
    except UnsupportedModelError as error:
        waits_for_image = isinstance(error, UnknownSizesError)
        if not waits_for_image and KNOWN_SIZE not in str(error):
            raise
        model = read_model(source)
        axes = axes_of_code(model, waiting=1) if waits_for_image else None
        axes = axes or axes_of_all(model)
        if not axes:
            raise
    return NetworkOfSizes(model, making, threads, axes)


def _described(value: onnx_ir.Value) -> NodeArg:
    dtype = "float" if value.dtype in (None, onnx_ir.DataType.FLOAT) else str(value.dtype).lower()
    sizes = enumerate(value.shape or ())
    shape = [size if isinstance(size, int) else size.value or f"{value.name}.{axis}" for axis, size in sizes]
    return NodeArg(value.name or "", f"tensor({dtype})", shape)

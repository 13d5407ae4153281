"""One step of training as native code: outputs and gradients of a batch, by weights that are changed in place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.transforms.canonicalize import CanonicalizePass

from ..dialect.attributes.kernels import KernelAttr
from ..dialect.ops.constants import ConstantOp, SparseConstantOp
from ..dialect.ops.layers import LinearOp, LogSoftmaxOp, SoftmaxOp
from ..driver.compiler import machine_code
from ..frontend.errors import UnsupportedModelError
from ..frontend.import_model import import_model
from ..kernels.tile_widths import WIDTHS
from ..lowering.driver import function_of
from ..passes.kernels.choose_kernels import ChooseKernels
from ..passes.rewriting.erase_unused import erase_unused
from ..passes.runner import context, run_passes
from ..passes.simplify.associate import order_products
from ..passes.simplify.fold_batch_norm import FoldBatchNorm
from ..passes.simplify.fold_constants import FoldConstants
from ..passes.simplify.fuse_aggregations import FuseAggregations
from ..passes.simplify.fuse_layers import FuseLayers
from ..passes.simplify.recognize_layers import RecognizeLayers
from ..passes.simplify.sparsify import Sparsify
from ..passes.tiles.form_tiles import FormTiles
from ..passes.tiles.schedule_network import ScheduleNetwork
from ..passes.tiles.share_tiles import ShareTiles
from ..passes.training.cached_aggregates import CachedAggregate, cache_aggregates
from ..passes.training.differentiate import Constant, differentiate
from ..passes.training.losses import LossName
from ..runtime.jit import host_target
from ..runtime.network import Network
from ..runtime.store.cache import default_folder
from ..tuning.machines import machine_for
from .packed_values import PackedValues, packed_places
from .samples import Samples
from .steps import Batch

# The initializers of a model that are trained, and the places of their values in native code.
#
# A value is known by a number that stands in its place while the model goes through all passes and into packed
# weights: what has the number there is the value, whatever passes did with its place. What they computed from it
# instead, as where a scale is multiplied into a weight, is no such number, and is not trained. Numbers are met twice,
# in two orders, so that no constant of the model is taken for one.

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

MOST_VALUES: Final = 1 << 24
"""Values that are trained, at most: a float32 counts no further."""


class NumberedModel(NamedTuple):
    """A model whose values to be trained are numbers from 1 on, in one order or another."""

    model: onnx_ir.Model
    starts: Mapping[str, int]
    """The number before the first one of each initializer, in the first order."""
    total: int
    turn: int
    """Number that is added to each one; the first one follows the last."""


@dataclass(frozen=True)
class Parameter:
    """An initializer that is trained: the places of its values in its array, and theirs among all that are trained."""

    name: str
    places: Indices
    values: Indices


def candidates_of(model: onnx_ir.Model) -> list[str]:
    """Return the initializers that may be trained: matrices, vectors, and factors of heads, of float32."""
    return [
        name
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
        and value.const_value.dtype == onnx_ir.DataType.FLOAT
        and len(value.const_value.shape) in (1, 2, 3)
        and value.const_value.size > 1
    ]


def array_of(model: onnx_ir.Model, name: str) -> Floats:
    """Return the values of an initializer."""
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return tensor.numpy()


def places_of(array: Floats) -> Indices:
    """Return the places of the values to be trained: connections of a matrix, all of a vector."""
    return np.flatnonzero(array) if array.ndim == 2 else np.arange(array.size)


def numbered(model: onnx_ir.Model, names: Sequence[str], *, turned: bool) -> NumberedModel:
    """Return a model whose initializers hold numbers; `turned` gives each value the number behind its own.

    Raises:
        UnsupportedModelError: there are more values than numbers.
    """
    arrays = {name: array_of(model, name) for name in names}
    places = {name: places_of(array) for name, array in arrays.items()}
    count = sum(map(len, places.values()))
    if count > MOST_VALUES:
        raise UnsupportedModelError(f"expected up to {MOST_VALUES} values to train, got {count}")
    result, starts, start = model.clone(), dict[str, int](), 0
    for name, array in arrays.items():
        own = np.arange(start, start + len(places[name]))
        replaced = np.zeros(array.size, np.float32)
        replaced[places[name]] = (own + turned) % max(1, count) + 1
        result.graph.initializers[name].const_value = onnx_ir.tensor(replaced.reshape(array.shape), name=name)
        starts[name] = start
        start += len(own)
    return NumberedModel(result, starts, count, int(turned))


def parameters_of(constant: Constant, source: NumberedModel, arrays: Mapping[str, Floats]) -> list[Parameter]:
    """Return the initializers whose values are those of a constant, each once; none where it has any other value.

    Values are in the order of the constant's gradient, connections output by output, one initializer after the other:
    two where outputs are scores of edges at both ends, as in an attention over edges.
    """
    stored = constant.weight.values if isinstance(constant, SparseConstantOp) else constant.array.T.ravel()
    numbers = stored.astype(np.int64)
    if not len(numbers) or not np.array_equal(numbers, stored):
        return []
    if not 1 <= numbers.min() <= numbers.max() <= source.total:
        return []
    values = (numbers - 1 - source.turn) % source.total
    found, left = list[Parameter](), values
    while len(left):
        name = next(name for name in reversed(list(source.starts)) if source.starts[name] <= left[0])
        places, start = places_of(arrays[name]), source.starts[name]
        own, left = left[: len(places)], left[len(places) :]
        if not np.array_equal(np.sort(own), np.arange(start, start + len(places))):
            return []
        found.append(Parameter(name, places[own - start], own))
    return found


class _Built(NamedTuple):
    module: ModuleOp
    parameters: list[list[Parameter]]
    """Parameters of each constant."""
    ends_in_softmax: bool
    cached: list[CachedAggregate]


@dataclass(frozen=True)
class StepOptions:
    """Choices of the code: the loss, the rows of a batch, threads."""

    loss: LossName
    rows: int
    threads: int = 1


class NativeStep:
    """Code for outputs and gradients; `values` and `gradient` [values] are in the same order.

    Values are those of `parameters`, one after the other.
    """

    def __init__(self, model: onnx_ir.Model, options: StepOptions) -> None:
        """Make the code.

        Raises:
            ModelError: something in the model is not covered, or has no derivative, or there is nothing to train.
        """
        self.model = model
        names = candidates_of(model)
        while True:
            first = numbered(model, names, turned=False)
            built = _built(first, model, options)
            found = [parameter.name for some in built.parameters for parameter in some]
            if not found:
                raise UnsupportedModelError("expected initializers that layers read as they are, got nothing to train")
            if sorted(found) == sorted(names):
                break
            # the others get their values back: constants computed from them are not trained and keep their values
            names = found
        second = numbered(model, names, turned=True)
        other = _built(second, model, options)
        target = host_target()
        one, two = (machine_code(each.module, target) for each in (built, other))
        # what is packed is written to, and may be a view of the model
        program = replace(one.program, constants=tuple(array.copy() for array in one.program.constants))
        self.network = Network(program, one.image, options.threads)
        self.ends_in_softmax = built.ends_in_softmax
        self.cached = built.cached
        *self.tensors, self.target = self.network.program.inputs
        self._order(built.parameters, first.total)
        places = list(packed_places(one.program.constants, two.program.constants, first.total))
        packed = np.unique(np.concatenate([np.arange(0), *(each.numbers for each in places)]))
        assert len(packed) == first.total, "a trained value is not found in the packed weights"
        self._packed = PackedValues(self.network.program.constants, places, self._ranks)
        self.put()

    def _order(self, of_constants: Sequence[Sequence[Parameter]], count: int) -> None:
        """Order values as gradients come: one constant after the other."""
        parameters = [parameter for some in of_constants for parameter in some]
        self._ranks = np.empty(count, np.int64)
        order = np.concatenate([parameter.values for parameter in parameters])
        self._ranks[order] = np.arange(count)
        self.parameters = [replace(parameter, values=self._ranks[parameter.values]) for parameter in parameters]
        ends = np.cumsum([len(parameter.values) for parameter in parameters]).tolist()
        self._slices = [slice(start, end) for start, end in pairwise([0, *ends])]
        ends = np.cumsum([sum(len(one.values) for one in some) for some in of_constants]).tolist()
        self._of_constants = [slice(start, end) for start, end in pairwise([0, *ends])]
        self.values = np.empty(count, np.float32)
        for parameter in self.parameters:
            self.values[parameter.values] = array_of(self.model, parameter.name).ravel()[parameter.places]
        self.gradient = np.zeros(count, np.float32)

    def bind(self, feeds: Mapping[str, Floats], target: Floats) -> "Batch":
        """Return the step for arrays of a batch, which are read at each run."""
        inputs = [tensor.name for tensor in self.network.program.inputs]
        outputs = [tensor.name for tensor in self.network.program.outputs]
        slices = [self.gradient[own] for own in self._of_constants]
        call = self.network.bind({**feeds, inputs[-1]: target}, dict(zip(outputs[1:], slices, strict=True)))
        return Batch(call.run, call.outputs[0])

    def prepared(self, samples: Samples) -> Samples:
        """Return samples with the sums over edges that no step changes: all nodes, in order.

        Raises:
            ValueError: they are not as many as the graph has nodes.
        """
        if not self.cached:
            return samples
        inputs = dict(samples.inputs)
        for one in self.cached:
            x, (nodes, _) = np.asarray(inputs[one.source], np.float32), one.graph.shape
            if len(x) != nodes:
                raise ValueError(f"expected a sample for each of {nodes} nodes, got {len(x)}")
            inputs[one.name] = one.sums(x)
        labels = samples.labels if samples.teacher is None else samples.teacher(samples.inputs)
        return Samples(inputs, labels)

    def put(self) -> None:
        """Write the values into the packed weights."""
        self._packed.put(self.values)

    @property
    def initializers(self) -> dict[str, slice]:
        """The places among the values of each initializer that is trained, by its name."""
        return {parameter.name: own for parameter, own in zip(self.parameters, self._slices, strict=True)}

    def trained(self, values: Floats) -> onnx_ir.Model:
        """Return the model with these values."""
        result = self.model.clone()
        for parameter in self.parameters:
            array = array_of(self.model, parameter.name).copy()
            array.ravel()[parameter.places] = values[parameter.values]
            result.graph.initializers[parameter.name].const_value = onnx_ir.tensor(array, name=parameter.name)
        return result


def check_trainable(model: onnx_ir.Model, loss: LossName) -> None:
    """Check that a network has gradients, without making code for them.

    Raises:
        ModelError: something in the model is not covered, or has no derivative.
    """
    _differentiated(import_model(model, foreign="refuse").module, loss, lambda _: True)


def _differentiated(module: ModuleOp, loss: LossName, chosen: Callable[[Constant], bool]) -> list[Constant]:
    """Let `@main` return gradients, of chosen constants behind its output; return these constants, in order.

    Raises:
        UnsupportedModelError: something has no derivative.
    """
    try:
        return differentiate(function_of(module), loss, chosen)
    except ValueError as error:
        raise UnsupportedModelError(str(error)) from None


def _built(source: NumberedModel, model: onnx_ir.Model, options: StepOptions) -> _Built:
    """Return the module of a step with numbers for values, ready to be lowered.

    Raises:
        ModelError: something in the model is not covered, or has no derivative.
    """
    module = import_model(source.model, foreign="refuse").module
    run_passes(context(), module, BEFORE)
    func = function_of(module)
    cached = cache_aggregates(func)
    # the gradient of a product is one as wide: what is better forwards is better backwards
    order_products(module, machine_for(host_target(), default_folder()))
    arrays = {name: array_of(model, name) for name in source.starts}
    found: dict[Operation, list[Parameter]] = {}
    for op in func.body.block.ops:
        if isinstance(op, ConstantOp | SparseConstantOp):
            parameters = parameters_of(op, source, arrays)
            if parameters:
                found[op] = parameters
    end = func.body.block.last_op
    last = end.arguments[0].owner if isinstance(end, ReturnOp) and len(end.arguments) == 1 else None
    trained = _differentiated(module, options.loss, lambda constant: constant in found)
    erase_unused(module.body)
    make_native(module, options)
    return _Built(module, [found[constant] for constant in trained], isinstance(last, SoftmaxOp | LogSoftmaxOp), cached)


def make_native(module: ModuleOp, options: StepOptions) -> None:
    """Run the passes from the choice of kernels on, for the rows of a batch alone: weights are packed once."""
    machine = machine_for(host_target(), default_folder())
    run_passes(context(), module, [ChooseKernels.on(machine)])
    width = min((width for width in WIDTHS[1:] if width >= options.rows), default=WIDTHS[-1])
    for op in module.walk():
        if isinstance(op, LinearOp) and op.kernel is not None:
            family = op.kernel.family_at(width)
            blocks = {name: count for name, count in op.kernel.blocks.items() if name == family}
            op.kernel = KernelAttr({1: family}, op.kernel.reason, blocks=blocks)
    tiles = FormTiles((width,)), CanonicalizePass(), ShareTiles(options.threads)
    run_passes(context(), module, [*tiles, ScheduleNetwork(machine.l1_bytes, machine.l2_bytes)])


BEFORE: Final[tuple[ModulePass, ...]] = (
    CanonicalizePass(),
    RecognizeLayers(),
    FoldConstants(),
    FuseAggregations(),
    FuseLayers(),
    FoldBatchNorm(into_layers=False),
    CanonicalizePass(),
    # one zero is enough: a weight that is stored dense has no place that is to stay zero
    Sparsify(threshold=1.0),
)
"""Passes that leave values of initializers what they are, before gradients are derived."""

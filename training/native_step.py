"""One step of training as native code: outputs and gradients of a batch, by weights that are changed in place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
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
from ..passes.simplify.fold_batch_norm import FoldBatchNorm
from ..passes.simplify.fold_constants import FoldConstants
from ..passes.simplify.fuse_layers import FuseLayers
from ..passes.simplify.recognize_layers import RecognizeLayers
from ..passes.simplify.sparsify import Sparsify
from ..passes.tiles.form_tiles import FormTiles
from ..passes.tiles.schedule_network import ScheduleNetwork
from ..passes.tiles.share_tiles import ShareTiles
from ..passes.training.differentiate import Constant, differentiate
from ..passes.training.losses import LossName
from ..runtime.jit import host_target
from ..runtime.network import Network
from ..runtime.store.cache import default_folder
from ..tuning.machines import machine_for
from .packed_values import PackedValues, packed_places
from .steps import Batch
from .trainable_model import (
    Floats,
    NumberedModel,
    Parameter,
    array_of,
    candidates_of,
    numbered,
    parameter_of,
)


class _Built(NamedTuple):
    module: ModuleOp
    parameters: list[Parameter]
    ends_in_softmax: bool


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
            found = [parameter.name for parameter in built.parameters]
            if not found:
                raise UnsupportedModelError("nothing to train, accepted are initializers that layers read as they are")
            if sorted(found) == sorted(names):
                break
            # others get their values back: what is computed from them is not trained, but is what it was
            names = found
        second = numbered(model, names, turned=True)
        other = _built(second, model, options)
        target = host_target()
        one, two = (machine_code(each.module, target) for each in (built, other))
        # what is packed is written to, and may be a view of the model
        program = replace(one.program, constants=tuple(array.copy() for array in one.program.constants))
        self.network = Network(program, one.image, options.threads)
        self.ends_in_softmax = built.ends_in_softmax
        *self.tensors, self.target = self.network.program.inputs
        self._order(built.parameters, first.total)
        places = list(packed_places(one.program.constants, two.program.constants, first.total))
        packed = np.unique(np.concatenate([np.arange(0), *(each.numbers for each in places)]))
        assert len(packed) == first.total, "a value is packed in a way that hides it"
        self._packed = PackedValues(self.network.program.constants, places, self._ranks)
        self.put()

    def _order(self, parameters: Sequence[Parameter], count: int) -> None:
        """Order values as gradients come: one constant after the other."""
        self._ranks = np.empty(count, np.int64)
        order = np.concatenate([parameter.values for parameter in parameters])
        self._ranks[order] = np.arange(count)
        self.parameters = [replace(parameter, values=self._ranks[parameter.values]) for parameter in parameters]
        ends = np.cumsum([len(parameter.values) for parameter in parameters]).tolist()
        self._slices = [slice(start, end) for start, end in pairwise([0, *ends])]
        self.values = np.empty(count, np.float32)
        for parameter in self.parameters:
            self.values[parameter.values] = array_of(self.model, parameter.name).ravel()[parameter.places]
        self.gradient = np.zeros(count, np.float32)

    def bind(self, feeds: Mapping[str, Floats], target: Floats) -> "Batch":
        """Return the step for arrays of a batch, which are read at each run."""
        inputs = [tensor.name for tensor in self.network.program.inputs]
        outputs = [tensor.name for tensor in self.network.program.outputs]
        slices = [self.gradient[own] for own in self._slices]
        call = self.network.bind({**feeds, inputs[-1]: target}, dict(zip(outputs[1:], slices, strict=True)))
        return Batch(call.run, call.outputs[0])

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
    arrays = {name: array_of(model, name) for name in source.starts}
    found: dict[Operation, Parameter] = {}
    for op in func.body.block.ops:
        if isinstance(op, ConstantOp | SparseConstantOp):
            parameter = parameter_of(op, source, arrays)
            if parameter is not None:
                found[op] = parameter
    end = func.body.block.last_op
    last = end.arguments[0].owner if isinstance(end, ReturnOp) and len(end.arguments) == 1 else None
    trained = _differentiated(module, options.loss, lambda constant: constant in found)
    erase_unused(module.body)
    make_native(module, options)
    return _Built(module, [found[constant] for constant in trained], isinstance(last, SoftmaxOp | LogSoftmaxOp))


def make_native(module: ModuleOp, options: StepOptions) -> None:
    """Run the passes from the choice of kernels on, for the rows of a batch alone: weights are packed once."""
    machine = machine_for(host_target(), default_folder())
    run_passes(context(), module, [ChooseKernels.on(machine)])
    width = min((width for width in WIDTHS[1:] if width >= options.rows), default=WIDTHS[-1])
    for op in module.walk():
        if isinstance(op, LinearOp) and op.kernel is not None:
            family = op.kernel.family_at(width)
            blocks = {name: count for name, count in op.kernel.blocks.by_family.items() if name == family}
            op.kernel = KernelAttr.of(family, op.kernel.reason.data).with_blocks(blocks)
    tiles = FormTiles((width,)), CanonicalizePass(), ShareTiles(options.threads)
    run_passes(context(), module, [*tiles, ScheduleNetwork(machine.l1_bytes, machine.l2_bytes)])


BEFORE: Final[tuple[ModulePass, ...]] = (
    CanonicalizePass(),
    RecognizeLayers(),
    FoldConstants(),
    FuseLayers(),
    FoldBatchNorm(into_layers=False),
    CanonicalizePass(),
    # one zero is enough: a weight that is stored dense has no place that is to stay zero
    Sparsify(threshold=1.0),
)
"""Passes that leave values of initializers what they are, before gradients are derived."""

"""A part with the values that its functions hold, and the gradient of a loss at outputs that are there."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, Literal

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from ...dialect.ops.layers import LogSoftmaxOp, SoftmaxOp
from ...dialect.ops.movement import SplitOp
from ...dialect.symbolic_sizes import Size
from ...dialect.tensors import DYNAMIC, f32_tensor
from ...frontend.errors import ModelError
from ...lowering.driver import lower
from ...lowering.program import Tensor
from ...passes.rewriting.erase_unused import erase_unused
from ...passes.training.losses import LOSSES
from ...passes.training.tape import Tape
from ...runtime.jit import emit_object, host_target
from ...runtime.network import Network
from ...training.native_step import StepOptions, make_native
from ..parts.part_file import Part
from ..run.agreement import agree
from ..run.load_part import LoadedPart
from .messages import Wire
from .trained_function import Place, TrainedConstant, TrainedFunction, name_values

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Floats = NDArray[np.float32]

# The gradient of a loss at outputs that are there, as native code.

Ending = Literal["", "softmax", "log_softmax"]
"""The last op of a network, as far as a cross-entropy has to know it."""

LEAST_SHARE = 1e-30
"""Share of a class below which its logarithm has no slope."""


def loss_gradient(options: StepOptions, features: int, ending: Ending) -> Network:
    """Return the function of outputs and target, [rows, features] each, that computes what a row loses by an output.

    Raises:
        ValueError: outputs of so many features have no such loss.
    """
    loss = LOSSES[options.loss]
    widths = (features, loss.target_features(features))
    block = Block(arg_types=[f32_tensor((DYNAMIC, width)) for width in widths])
    y, target = block.args
    end = ReturnOp(y)
    block.add_op(end)
    tape = Tape(block, end)
    if ending and options.loss == "cross-entropy":
        gradient = tape.times(target, -1.0)
        if ending == "softmax":
            gradient = tape.div(gradient, tape.activate("clip", y, LEAST_SHARE, 1.0))
    else:
        gradient = loss.gradient(tape, y, target).gradient
    tape.write(ReturnOp(gradient))
    block.erase_op(end)
    func = FuncOp("main", ([y.type, target.type], [gradient.type]), Region(block))
    name_values(func)
    module = ModuleOp([func])
    erase_unused(module.body)
    make_native(module, options)
    program = lower(module, host_target())
    return Network(program, emit_object(program.llvm_ir, host_target()), options.threads)


class TrainedPart(ABC, Generic[Place]):
    """Base of all steps on parts; `values` are those of constants, function by function."""

    def __init__(self, comm: "Intracomm", loaded: LoadedPart, options: StepOptions) -> None:
        """Begin with a part without functions."""
        self.part, self.plan, self.comm, self.options = loaded.part, loaded.plan, comm, options
        self.wire = Wire(comm)
        self.functions: dict[str, TrainedFunction[Place]] = {}
        self.ending: Ending = ""

    def make_together(self) -> None:
        """Make all code; all ranks of `comm` make theirs together.

        Raises:
            PartError: on all ranks, when `make` fails on one, or the network is none that is trained.
        """
        error = None
        try:
            self._take_ports()
            self.make()
        except (ValueError, ModelError) as problem:
            error = " ".join(str(problem).split())
        agree(self.comm, error)
        endings = [ending for ending in self.comm.allgather(self.ending) if ending]
        self.ends_in_softmax = bool(endings)
        self.loss = loss_gradient(self.options, self.features, endings[0] if endings else "")

    @abstractmethod
    def make(self) -> None:
        """Make the functions and take their values.

        Raises:
            ValueError: something has no derivative, or the network is none that is trained.
        """

    def _take_ports(self) -> None:
        """Take inputs, output and target.

        Raises:
            ValueError: the network is none that is trained, or its outputs have no such loss.
        """
        plan = self.plan
        if len(plan.outputs) != 1 or len(plan.outputs[0].shape) != 2:
            raise ValueError("expected networks with one output [rows, features]")
        if any(len(port.shape) != 2 for port in plan.inputs):
            raise ValueError("expected networks whose inputs are [rows, features]")
        rows, features = plan.outputs[0].shape
        self.features = features.constant or 0
        self.tensors = tuple(Tensor(port.name, port.shape) for port in plan.inputs)
        self.target = Tensor("target", (rows, Size.known(LOSSES[self.options.loss].target_features(self.features))))

    def take_values(self) -> None:
        """Take the values of all constants."""
        self.constants: list[TrainedConstant] = [
            constant for function in self.functions.values() for constant in function.constants
        ]
        ends = np.cumsum([0, *(len(constant.values) for constant in self.constants)])
        self.slices = [slice(start, end) for start, end in pairwise(ends.tolist())]
        self.values: Floats = np.concatenate(
            [np.zeros(0, np.float32), *(constant.values for constant in self.constants)]
        )
        self.gradient = np.zeros(len(self.values), np.float32)
        self.put()

    @property
    def initializers(self) -> dict[str, slice]:
        """No names: a part does not keep those of the weights in the model."""
        return {}

    def put(self) -> None:
        """Write the values into the packed weights."""
        start = 0
        for function in self.functions.values():
            count = sum(len(constant.values) for constant in function.constants)
            function.put(self.values[start : start + count])
            start += count

    def gradients_of(self, function: TrainedFunction[Place]) -> list[Floats]:
        """Return the gradients of a function's constants, which are written there."""
        pairs = zip(self.constants, self.slices, strict=True)
        return [self.gradient[own] for one, own in pairs if any(one is each for each in function.constants)]

    def trained(self, values: Floats) -> Part:
        """Return the part with these values."""
        constants = list(self.part.constants)
        for constant, own in zip(self.constants, self.slices, strict=True):
            constants[constant.array] = constant.stored(constants[constant.array], values[own])
        return replace(self.part, constants=tuple(constants))


def ending_of(results: Sequence[SSAValue]) -> Ending:
    """Return the origin of the outputs of a part's last function."""
    for value in results:
        owner = value.owner.x.owner if isinstance(value.owner, SplitOp) else value.owner
        if isinstance(owner, SoftmaxOp | LogSoftmaxOp):
            return "softmax" if isinstance(owner, SoftmaxOp) else "log_softmax"
    return ""

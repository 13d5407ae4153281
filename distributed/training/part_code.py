"""The code of one rank for a step of training: its functions, their gradients, and the values that it holds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

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
from ...passes.runner import context
from ...passes.training.losses import LOSSES
from ...passes.training.tape import Tape
from ...runtime.jit import emit_object, host_target
from ...runtime.network import Network
from ...training.native_step import StepOptions, make_native
from ..parts.compile_part import check_calls
from ..parts.module_text import OWN, module_of, put_constants
from ..parts.part_file import Part
from ..parts.steps import Call, Receive
from ..run.agreement import agree
from ..run.load_part import LoadedPart
from .messages import Wire
from .pieces import Piece, Pieces
from .trained_function import TrainedFunction, name_values

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

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


Floats = NDArray[np.float32]
Do = Callable[[], object]


class PartCode:
    """The code of one rank; all ranks of `comm` make theirs together.

    `values` are those that this rank holds: of the columns of weights that are its own, and of constants that several
    ranks have, which stay alike.
    """

    def __init__(self, comm: "Intracomm", loaded: LoadedPart, options: StepOptions) -> None:
        """Make the code of all functions.

        Raises:
            PartError: on all ranks, when the part of one has something without a derivative, or nothing to train.
        """
        self.part, self.comm, self._options = loaded.part, comm, options
        self.wire = Wire(comm)
        self.input_count = len(loaded.plan.inputs)
        error = None
        try:
            self._make(loaded)
        except (ValueError, ModelError) as problem:
            error = " ".join(str(problem).split())
        agree(comm, error)
        endings = [ending for ending in comm.allgather(self._ending) if ending]
        self.ends_in_softmax = bool(endings)
        self.loss = loss_gradient(options, self.features, endings[0] if endings else "")

    def _make(self, loaded: LoadedPart) -> None:
        """Make the code.

        Raises:
            ValueError: something has no derivative, or the network is none that is trained.
        """
        if len(loaded.plan.outputs) != 1 or len(loaded.plan.outputs[0].shape) != 2:
            raise ValueError("expected networks with one output [rows, features]")
        if any(len(port.shape) != 2 for port in loaded.plan.inputs):
            raise ValueError("expected networks whose inputs are [rows, features]")
        (output,) = loaded.plan.outputs
        self.features = output.shape[-1].constant or 0
        self.tensors = tuple(Tensor(port.name, port.shape) for port in loaded.plan.inputs)
        rows, _ = output.shape
        self.target = Tensor("target", (rows, Size.known(LOSSES[self._options.loss].target_features(self.features))))
        module = module_of(self.part.text, context())
        put_constants(module, self.part.constants)
        check_calls(self.part, module)
        self.pieces = Pieces(self.part, module)
        self.active = set[Piece]()
        """Pieces whose gradients are of use: weights, or others' weights, were multiplied into them."""
        self._ending: Ending = ""
        self.functions: dict[str, TrainedFunction] = {}
        for step in self.part.steps:
            if isinstance(step, Call):
                call = self.pieces.of_call(step)
                function = TrainedFunction(call, self.active.__contains__, self._options)
                self.functions[step.function] = function
                if function.backward is not None:
                    self.active |= {*function.writes}
                if any(self.part.buffers[piece.buffer].kind == "output" for piece in function.writes):
                    self._ending = _ending(call.tile.yielded)
            elif isinstance(step, Receive) and step.tag >= self.input_count:
                self.active |= {
                    one.piece for route in step.routes for one in self.pieces.columns(step.buffer, route.rows)
                }
        self.constants = [constant for function in self.functions.values() for constant in function.constants]
        ends = np.cumsum([0, *(len(constant.values) for constant in self.constants)])
        self.slices = [slice(start, end) for start, end in pairwise(ends.tolist())]
        self.values = np.concatenate([np.zeros(0, np.float32), *(constant.values for constant in self.constants)])
        self.gradient = np.zeros(len(self.values), np.float32)
        self.put()

    @property
    def initializers(self) -> dict[str, slice]:
        """Nothing: parts do not know the names of what is trained."""
        return {}

    def put(self) -> None:
        """Write the values into the packed weights."""
        start = 0
        for function in self.functions.values():
            count = sum(len(constant.values) for constant in function.constants)
            function.put(self.values[start : start + count])
            start += count

    def trained(self, values: Floats) -> Part:
        """Return the part with these values."""
        constants = list(self.part.constants)
        for constant, own in zip(self.constants, self.slices, strict=True):
            constants[constant.array] = constant.stored(constants[constant.array], values[own])
        return replace(self.part, constants=tuple(constants))

    def shared(self) -> list[tuple[int, slice]]:
        """Return the constants that other ranks hold, too, by their numbers, and their places among the values."""
        pairs = zip(self.constants, self.slices, strict=True)
        return [(constant.replica, own) for constant, own in pairs if constant.replica != OWN]


def _ending(yielded: Sequence[SSAValue]) -> Ending:
    """Return the origin of the outputs of a part's last function."""
    for value in yielded:
        owner = value.owner.x.owner if isinstance(value.owner, SplitOp) else value.owner
        if isinstance(owner, SoftmaxOp | LogSoftmaxOp):
            return "softmax" if isinstance(owner, SoftmaxOp) else "log_softmax"
    return ""

"""The gradient of a loss at outputs that are there, as native code."""

from typing import Literal

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from ...dialect.tensors import DYNAMIC, f32_tensor
from ...lowering.driver import lower
from ...passes.rewriting.erase_unused import erase_unused
from ...passes.training.losses import LOSSES
from ...passes.training.tape import Tape
from ...runtime.jit import emit_object, host_target
from ...runtime.network import Network
from ...training.native_step import StepOptions, make_native
from .trained_function import name_values

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

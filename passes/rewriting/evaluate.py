"""What an op of the dialect computes for given operands, by the dialect's reference semantics."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.interpreter import Interpreter
from xdsl.ir import Operation

from redpebble.dialect.semantics.interpreter import PebbleFunctions


def evaluate(op: Operation, operands: tuple[NDArray[Any], ...], dtype: DTypeLike) -> tuple[NDArray[Any], ...]:
    """Return the results of `op` for arrays of `dtype` as operands."""
    interpreter = Interpreter(ModuleOp([]))
    interpreter.register_implementations(PebbleFunctions(dtype))
    with np.errstate(all="ignore"):
        return tuple(np.asarray(result) for result in interpreter.run_op(op, operands))

"""Model-local functions, written out where they are called."""

import onnx_ir
from onnx_ir.passes.common import InlinePass

from redpebble.frontend.errors import InvalidModelError, UnsupportedModelError, first_line


def inline_functions(model: onnx_ir.Model) -> None:
    """Replace every call of a model-local function by its body, in place.

    Raises:
        InvalidModelError: functions call each other in a circle.
        UnsupportedModelError: a function needs another operator set than the model.
    """
    if not model.functions:
        return
    try:
        InlinePass()(model)
    except onnx_ir.passes.PreconditionError as error:
        raise InvalidModelError(f"model-local functions call each other in a circle: {first_line(error)}") from error
    except (ValueError, onnx_ir.passes.PassError) as error:
        raise UnsupportedModelError(f"a model-local function cannot be written out: {first_line(error)}") from error

"""Derive the gradients of all constants of a network: what one step of training computes.

```mlir
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x2xf32> {
  %y = pebble.linear %x, %w bias %b activation <relu> : ...
  func.return %y
// ->
func.func @main(%x: tensor<?x4xf32>, %target: tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<3xf32>, tensor<2xf32>) {
  %y = pebble.linear %x, %w bias %b activation <relu> : ...
  %difference = pebble.sub %y, %target : ...
  ...
  %of_w = pebble.sampled_product %x, %gradient, %w : ... -> tensor<3xf32>
  %of_b = pebble.sum_rows %gradient : ... -> tensor<2xf32>
  func.return %y, %of_w, %of_b
```

Gradients are sums over rows of what a row loses. A weight is trained on its connections alone: zeros stay zeros.
A layer whose activation has no derivative from its result gives it up to an op of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import PassFailedException

from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.elementwise import ActivateOp
from ...dialect.ops.graphs import AggregateOp, AttendEdgesOp
from ...dialect.ops.layers import LinearOp
from ...dialect.provenance import texts_of, value_name
from ...dialect.symbolic_sizes import DIMS, NAME
from ...dialect.tensors import f32_tensor, shape_of, shape_text
from ..rewriting.erase_unused import erase_unused
from .activation_slopes import SLOPES_AT_RESULT
from .derivatives import derivative_of
from .losses import LOSSES
from .tape import Tape

Constant = ConstantOp | SparseConstantOp

TARGET: Final = "target"
"""Name of the argument that a loss compares with; with underscores behind it where the network has one."""


@dataclass(frozen=True)
class Differentiate(ModulePass):
    """Let a network return the gradients of its constants, too."""

    name = "pebble-differentiate"

    loss: str = "mse"
    """Loss of outputs against targets: mse, cross-entropy or crps."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        try:
            for func in [each for each in op.body.block.ops if isinstance(each, FuncOp)]:
                differentiate(func, self.loss)
        except ValueError as error:
            raise PassFailedException(f"{self.name}: {error}") from error
        erase_unused(op.body)


def differentiate(func: FuncOp, loss_name: str, chosen: Callable[[Constant], bool] = lambda _: True) -> list[Constant]:
    """Let a function return the gradients of its chosen constants behind its output; return these constants, in order.

    Raises:
        ValueError: the loss is none, or something has no derivative.
    """
    known = {str(name): loss for name, loss in LOSSES.items()}
    if loss_name not in known:
        raise ValueError(f"expected a loss of {', '.join(known)}, got {loss_name!r}")
    end = func.body.block.last_op
    if not isinstance(end, ReturnOp) or len(end.arguments) != 1 or len(shape_of(end.arguments[0])) != 2:
        raise ValueError("expected a network with one output [rows, features], got another")
    for layer in [op for op in func.body.block.ops if isinstance(op, LinearOp | AggregateOp | AttendEdgesOp)]:
        _part_activation(layer)
    forward, (output,) = [*func.body.block.ops], end.arguments
    rows, features = shape_of(output)
    target = func.body.block.insert_arg(
        f32_tensor((rows, known[loss_name].target_features(features))), len(func.body.block.args)
    )
    target.name_hint = TARGET
    tape = Tape(func.body.block, end)
    start = known[loss_name].gradient(tape, output, target)
    gradients = {start.value: start.gradient}
    for op in reversed(forward):
        _pass_back(op, tape, gradients)
    constants = [op for op in forward if isinstance(op, ConstantOp | SparseConstantOp)]
    trained = [op for op in constants if op.results[0] in gradients and chosen(op)]
    results = [output, *(gradients[op.results[0]] for op in trained)]
    tape.write(ReturnOp(*results))
    Rewriter.erase_op(end)
    _describe(func, [f"gradient of {value_name(op.results[0]) or index}" for index, op in enumerate(trained)])
    return trained


def pull_back(func: FuncOp, arguments: Sequence[int], chosen: Callable[[Constant], bool]) -> list[Constant]:
    """Let a function return, from gradients of its results, those of some arguments and of its chosen constants.

    It gets its arguments, what its results were (so that nothing is computed twice), and the gradients of these; it
    returns the gradients of `arguments`, by their number, then those of constants. Return these constants, in order.

    Raises:
        ValueError: something has no derivative.
    """
    block, end = func.body.block, func.body.block.last_op
    assert isinstance(end, ReturnOp)
    for layer in [op for op in block.ops if isinstance(op, LinearOp | AggregateOp | AttendEdgesOp)]:
        _part_activation(layer)
    given, forward, results = list(block.args), [op for op in block.ops if op is not end], list(end.arguments)
    known = [block.insert_arg(value.type, len(block.args)) for value in results]
    tape, gradients = Tape(block, end), dict[SSAValue, SSAValue]()
    for value in results:
        gradient = block.insert_arg(value.type, len(block.args))
        gradients[value] = tape.add(gradients[value], gradient) if value in gradients else gradient
    for op in reversed(forward):
        _pass_back(op, tape, gradients)
    constants = [op for op in forward if isinstance(op, ConstantOp | SparseConstantOp)]
    found = [op for op in constants if op.results[0] in gradients and chosen(op)]
    wanted = [given[number] for number in arguments]
    none = {value: tape.times(value, 0.0) for value in wanted if value not in gradients}
    tape.write(ReturnOp(*((gradients | none)[value] for value in wanted), *(gradients[op.results[0]] for op in found)))
    Rewriter.erase_op(end)
    for value, saved in zip(results, known, strict=True):
        if isinstance(value.owner, Operation):
            value.replace_all_uses_with(saved)
    func.update_function_type()
    return found


def _pass_back(op: Operation, tape: Tape, gradients: dict[SSAValue, SSAValue]) -> None:
    """Add the gradients of an op's operands to what is known, where its results have some."""
    if isinstance(op, ConstantOp | SparseConstantOp) or not any(result in gradients for result in op.results):
        return
    for value in (*op.operands, *op.results):
        if not isinstance(value.owner, ConstantOp | SparseConstantOp) and len(shape_of(value)) != 2:
            raise ValueError(f"expected [rows, features] of {op.name}, got {shape_text(shape_of(value))}")
    own = [gradients[result] if result in gradients else tape.times(result, 0.0) for result in op.results]
    for operand, found in zip(op.operands, derivative_of(op, tape, own), strict=True):
        if found is not None:
            gradients[operand] = tape.add(gradients[operand], found) if operand in gradients else found


def _part_activation(layer: LinearOp | AggregateOp | AttendEdgesOp) -> None:
    """Give an activation an op of its own where its derivative needs what it is applied to."""
    activation = layer.activation
    if activation is None or activation.kind in SLOPES_AT_RESULT:
        return
    layer.activation = None
    apart = ActivateOp(layer.result, activation)
    layer.result.replace_uses_with_if(apart.result, lambda use: use.operation is not apart)
    Rewriter.insert_op(apart, InsertPoint.after(layer))


def _describe(func: FuncOp, names: list[str]) -> None:
    """Let the function's type and names hold the target and the gradients."""
    func.update_function_type()
    arguments = list(func.arg_attrs.data) if func.arg_attrs is not None else []
    arguments += [DictionaryAttr({})] * (len(func.args) - 1 - len(arguments))
    taken = {str(entry.data.get(NAME)) for entry in arguments}
    name = TARGET
    while str(StringAttr(name)) in taken:
        name += "_"
    # the rows are those of what goes in
    dims = next((entry.data[DIMS] for entry in arguments if DIMS in entry.data), None)
    entries: dict[str, Attribute] = {NAME: StringAttr(name)}
    if rows := texts_of(dims)[:1]:
        entries[DIMS] = ArrayAttr([StringAttr(*rows), StringAttr("")])
    func.arg_attrs = ArrayAttr([*arguments, DictionaryAttr(entries)])
    results = list(func.res_attrs.data) if func.res_attrs is not None else [DictionaryAttr({})]
    func.res_attrs = ArrayAttr([*results, *(DictionaryAttr({NAME: StringAttr(name)}) for name in names)])

"""MatMul and Gemm with a constant weight, in every form that ONNX allows."""

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ...dialect.ops.elementwise import AddOp, MulOp
from ...dialect.ops.layers import BatchMatmulTransposeBOp, LinearOp
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.symbolic_sizes import ONE, Size
from ...dialect.tensors import shape_of
from ..folding.known_sizes import is_known, shape_words
from ..limits import MOST_ENTRIES
from ..reading.lazy_sparse_tensor import SparseTensor
from .attention.products import attention_of
from .conversion import Conversion, NotCovered
from .elementwise import broadcast
from .message_passing.sums import left_product

STACK_LIMIT = 256
"""A stack of more matrices than this would make more layers than a graph should have."""

MOST_INNER = 4096
"""Values that a product of two computed operands sums: so many rows of 32 stay in a second-level cache."""


def convert_matmul(conversion: Conversion) -> Sequence[SSAValue]:
    """Return x weight, weight x, or an attention.

    1-D operands are promoted, leading axes broadcast, as in numpy's matmul.

    Raises:
        NotCovered: neither operand is a constant, and this is no part of an attention, and no product that is covered;
            or both are, and their product is too large.
    """
    weight = conversion.weight(1)
    if weight is not None:
        _check_product_of_constants(conversion, weight)
        return [_times_weight(conversion, conversion.tensor(0), Stack(weight, _name(conversion, 1), mirrored=False))]
    weight = conversion.weight(0)
    if weight is None and (attention := attention_of(conversion)) is not None:
        return attention
    if weight is None:
        return [_computed_product(conversion)]
    product = left_product(conversion, weight)
    if product is None:
        product = _times_weight(conversion, conversion.tensor(1), Stack(weight, _name(conversion, 0), mirrored=True))
    return [product]


def _check_product_of_constants(conversion: Conversion, weight: NDArray[np.float32] | SparseTensor) -> None:
    """Check the size of a product of constants, which was not folded: a small file may ask for all memory.

    Raises:
        NotCovered: it is too large.
    """
    left = conversion.any_constant(0)
    if left is None:
        return
    shape = weight.shape.numpy() if isinstance(weight, SparseTensor) else weight.shape
    entries = prod(left.shape[:-1]) * shape[-1]
    if entries > MOST_ENTRIES:
        raise NotCovered(f"expected at most {MOST_ENTRIES} entries of a product of constants, got {entries}")


def _computed_product(conversion: Conversion) -> SSAValue:
    """Return the product of two computed operands [..., M, K] and [..., K, N], as of DLRM's features."""
    without_weight = NotCovered(_without_weight(conversion, "two computed operands"))
    if not conversion.scope.all_native:
        raise without_weight
    x, y = conversion.tensor(0), conversion.tensor(1)
    left, right = conversion.sizes(x), conversion.sizes(y)
    if not len(left) == len(right) > 2 or left[:-2] != right[:-2] or left[-1] != right[-2]:
        raise without_weight
    if not is_known(left[-1]) or left[-1].coefficient > MOST_INNER:
        shapes = f"{shape_words(left)} by {shape_words(right)}"
        raise NotCovered(f"expected a constant operand, or at most {MOST_INNER} values in a sum, got {shapes}")
    swapped = conversion.transpose(y, _last_two_swapped(len(right)))
    return conversion.emit(BatchMatmulTransposeBOp(x, swapped)).result


class Stack:
    """A constant operand of MatMul as matrices [..., K, N] for rows on the left; `mirrored` if it stood on the left."""

    def __init__(self, weight: NDArray[np.float32] | SparseTensor, name: str, *, mirrored: bool) -> None:
        self.name = name
        self.mirrored = mirrored
        self._weight = weight
        shape = tuple(weight.shape.numpy()) if isinstance(weight, SparseTensor) else weight.shape
        self.vector = len(shape) == 1
        """Whether the axis of outputs was not there and is to be dropped."""
        if not shape:
            raise NotCovered(f"expected weight {name} of rank 1 or more, got a scalar")
        self.lead = shape[:-2]
        self.variant = "" if not self.vector and not mirrored else "column" if self.vector else "transposed"

    def emit(self, conversion: Conversion, index: tuple[int, ...]) -> SSAValue:
        """Return the matrix at `index` of the stack as a constant."""
        weight = self._weight
        if isinstance(weight, SparseTensor):
            return conversion.emit_sparse(lambda: weight.weight(transposed=self.mirrored), self.name, self.variant)
        if self.vector:
            weight = weight[:, np.newaxis]
        elif self.mirrored:
            weight = weight.swapaxes(-1, -2)
        variant = ",".join([self.variant, *map(str, index)])
        return conversion.emit_constant(weight[index], self.name, variant if index else self.variant)


def _without_weight(conversion: Conversion, what: str) -> str:
    """Return why a product has no weight: the type of its operands where that is it, or else `what`."""
    types = {value.dtype for value in map(conversion.input, (0, 1)) if value is not None and value.dtype is not None}
    others = sorted(str(one.name).lower() for one in types - {onnx_ir.DataType.FLOAT})
    if others:
        return f"expected float or float16 operands, got {' and '.join(others)}"
    return f"expected a constant weight, got {what}"


def _times_weight(conversion: Conversion, x: SSAValue, stack: Stack) -> SSAValue:
    """Return the product of `x` with the weight on its side, in MatMul's shape."""
    sizes = conversion.sizes(x)
    if not sizes:
        raise NotCovered("expected an activation of rank 1 or more, got a scalar")
    x_is_vector = len(sizes) == 1
    if x_is_vector:
        rows = conversion.reshape(x, (ONE, *sizes))
    elif stack.mirrored:
        rows = conversion.transpose(x, _last_two_swapped(len(sizes)))
    else:
        rows = x
    result = _stacked(conversion, rows, stack)
    return _without_promoted(conversion, result, x_is_vector=x_is_vector, stack=stack)


def _without_promoted(conversion: Conversion, result: SSAValue, *, x_is_vector: bool, stack: Stack) -> SSAValue:
    """Undo in the result [..., rows, outputs] what was done to operands: drop promoted axes, swap mirrored ones."""
    sizes = conversion.sizes(result)
    kept = sizes[:-2]
    if not x_is_vector and not stack.vector:
        return conversion.transpose(result, _last_two_swapped(len(sizes))) if stack.mirrored else result
    if not x_is_vector:
        kept = (*kept, sizes[-2])
    elif not stack.vector:
        kept = (*kept, sizes[-1])
    return conversion.reshape(result, kept)


def _stacked(conversion: Conversion, rows: SSAValue, stack: Stack) -> SSAValue:
    """Return rows times the matrices of a stack; leading axes of the weight pair up with those of the rows."""
    if prod(stack.lead) > STACK_LIMIT:
        raise NotCovered(f"expected at most {STACK_LIMIT} matrices in weight {stack.name}, got {prod(stack.lead)}")
    sizes = conversion.sizes(rows)
    missing = len(stack.lead) + 2 - len(sizes)
    if missing > 0:
        rows = conversion.reshape(rows, (ONE,) * missing + sizes)
    return _slices(conversion, rows, stack, ())


def _slices(conversion: Conversion, rows: SSAValue, stack: Stack, index: tuple[int, ...]) -> SSAValue:
    """Return rows times the part of the stack at `index`, whose leading axes are cut one after the other."""
    lead = stack.lead
    if len(index) == len(lead):
        return conversion.emit(LinearOp(rows, stack.emit(conversion, index))).result
    count = lead[len(index)]
    if count == 1:
        return _slices(conversion, rows, stack, (*index, 0))
    sizes = conversion.sizes(rows)
    axis = len(sizes) - 2 - len(lead) + len(index)
    parts = _cut(conversion, rows, axis, count)
    return conversion.emit(
        ConcatOp(
            [_slices(conversion, part, stack, (*index, part_index)) for part_index, part in enumerate(parts)], axis
        )
    ).result


def _cut(conversion: Conversion, rows: SSAValue, axis: int, count: int) -> Sequence[SSAValue]:
    """Return for each matrix along a stacked axis the rows it is multiplied with."""
    size = conversion.sizes(rows)[axis]
    if size == ONE:
        return [rows] * count
    if size != Size.known(count):
        raise NotCovered(f"expected 1 or the weight's {count} as axis {axis} of the activation, got {size}")
    return conversion.emit(SplitOp(rows, axis, [1] * count)).parts


def convert_gemm(conversion: Conversion) -> Sequence[SSAValue]:
    """Return alpha A B + beta C with A and B transposed or not; one of A and B is a constant.

    Raises:
        NotCovered: neither is a constant of rank 2, or the other one is of another rank.
    """
    alpha, beta = np.float32(conversion.number("alpha", 1.0)), np.float32(conversion.number("beta", 1.0))
    weight = conversion.weight(1)
    right = weight is not None
    weight = weight if right else conversion.weight(0)
    if weight is None or len(weight.shape) != 2:
        raise NotCovered(_without_weight(conversion, "computed A and B, or a rank other than 2"))
    name = _name(conversion, 1 if right else 0)
    x = conversion.tensor(0 if right else 1)
    if len(conversion.sizes(x)) != 2:
        raise NotCovered(f"expected an activation of rank 2, got {len(conversion.sizes(x))}")
    flipped = (conversion.integer("transB", 0) != 0) if right else (conversion.integer("transA", 0) == 0)
    transposed = (conversion.integer("transA", 0) != 0) if right else (conversion.integer("transB", 0) == 0)
    if transposed:
        x = conversion.transpose(x, (1, 0))
    variant = ("transposed" if flipped else "") + ("" if alpha == 1.0 else f"*{float(alpha)!r}")
    if isinstance(weight, SparseTensor):
        scaled = weight.scaled(alpha)
        emitted = conversion.emit_sparse(lambda: scaled.weight(transposed=flipped), name, variant)
    else:
        matrix = weight.T if flipped else weight
        emitted = conversion.emit_constant(matrix if alpha == 1.0 else matrix * alpha, name, variant)
    if right:
        return [_in_rows(conversion, LinearInput(x, emitted), beta)]
    product = conversion.emit(LinearOp(x, emitted)).result
    return [_plus(conversion, conversion.transpose(product, (1, 0)), beta)]


class LinearInput:
    """The operands of a linear layer that is not yet emitted, as its bias is not yet known."""

    def __init__(self, x: SSAValue, weight: SSAValue) -> None:
        self.x = x
        self.weight = weight


def _in_rows(conversion: Conversion, layer: LinearInput, beta: np.float32) -> SSAValue:
    """Emit the layer on rows as they were before a reshape put them one after the other, which then comes behind it.

    Exporters flatten rows for Gemm and undo that behind it: both reshapes go.
    """
    source = conversion.before_merge(layer.x)
    if source is None or not _is_row(conversion.constant(2), conversion.has_input(2)):
        return _with_addend(conversion, layer, beta)
    result = _with_addend(conversion, LinearInput(source, layer.weight), beta)
    return conversion.reshape(result, (*conversion.sizes(layer.x)[:1], *conversion.sizes(result)[-1:]))


def _is_row(addend: NDArray[np.float32] | None, given: bool) -> bool:
    return not given or (addend is not None and addend.ndim == 1)


def _with_addend(conversion: Conversion, layer: LinearInput, beta: np.float32) -> SSAValue:
    """Emit the layer, with beta C as its bias where C is one constant row."""
    addend = conversion.constant(2)
    outputs = shape_of(layer.weight)[1]
    if addend is None or beta == 0.0 or addend.ndim > 2 or (addend.ndim == 2 and addend.shape[0] != 1):
        return _plus(conversion, conversion.emit(LinearOp(layer.x, layer.weight)).result, beta)
    row = addend.reshape(-1)
    if row.size not in (1, outputs):
        raise NotCovered(f"expected C of 1 or {outputs} values, got {row.size}")
    bias = np.broadcast_to(row if beta == 1.0 else row * beta, (outputs,))
    plain = beta == 1.0 and addend.shape == (outputs,)
    emitted = conversion.emit_constant(bias, _name(conversion, 2), "" if plain else f"row{outputs}*{float(beta)!r}")
    return conversion.emit(LinearOp(layer.x, layer.weight, emitted)).result


def _plus(conversion: Conversion, product: SSAValue, beta: np.float32) -> SSAValue:
    """Return product + beta C; onnxruntime does not read C when beta is 0."""
    if not conversion.has_input(2) or beta == 0.0:
        return product
    constant = conversion.constant(2)
    if constant is not None and beta != 1.0:
        addend = conversion.emit_constant(constant * beta, _name(conversion, 2), f"*{float(beta)!r}")
    else:
        addend = conversion.tensor(2)
        if beta != 1.0:
            addend = conversion.emit(MulOp(addend, conversion.emit_constant(np.array(beta), ""))).result
    broadcast(conversion, product, addend, into_left=True)
    return conversion.emit(AddOp(product, addend)).result


def _last_two_swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _name(conversion: Conversion, index: int) -> str:
    value = conversion.input(index)
    return "" if value is None else value.name or ""

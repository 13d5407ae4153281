"""Integers that a graph computes from shapes: what `Shape -> Gather -> Concat` will hold, in names and numbers.

A reshape whose target is known this way needs no such nodes any more.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ...dialect.symbolic_sizes import Size, SymbolicShape, product
from .known_sizes import exact_quotient, is_known

LONGEST = 64
"""Constants of more integers than this hold no shape."""


WIDEST = 1 << 63


class ShapeValue(NamedTuple):
    """Content of an integer tensor: a scalar when `scalar`, else a list."""

    sizes: SymbolicShape
    scalar: bool = False


class ShapeQuery(NamedTuple):
    """A node, the version of its operator set, and what is known of its inputs."""

    node: onnx_ir.Node
    opset: int
    known: Callable[[onnx_ir.Value], ShapeValue | None]
    sizes: Callable[[onnx_ir.Value], SymbolicShape | None]

    def input(self, index: int) -> ShapeValue | None:
        """Return what is known of the integers in an input."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        return None if value is None else self.known(value)

    def numbers(self, index: int) -> list[int] | None:
        """Return an input of which every integer is a number."""
        known = self.input(index)
        return (
            None if known is None or not all(map(is_known, known.sizes)) else [int(s.coefficient) for s in known.sizes]
        )

    def integer(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_int()


def shape_value_of_constant(array: NDArray[np.generic]) -> ShapeValue | None:
    """Return the integers of a constant, a scalar or a list, or None when it holds something else."""
    if not np.issubdtype(array.dtype, np.integer) or array.ndim > 1 or array.size > LONGEST:
        return None
    return ShapeValue(tuple(Size.known(int(number)) for number in array.reshape(-1).tolist()), scalar=array.ndim == 0)


def shape_value_of_node(query: ShapeQuery) -> ShapeValue | None:
    """Return what the node's first output holds, or None when that is not known."""
    rule = RULES.get(query.node.op_type) if query.node.domain == "" else None
    found = None if rule is None else rule(query)
    return found if found is not None and _is_shape(found) else None


def _is_shape(value: ShapeValue) -> bool:
    """Return whether no shape is longer or wider: what grows at each of many nodes is none."""
    return len(value.sizes) <= LONGEST and all(
        max(abs(size.coefficient.numerator), size.coefficient.denominator) < WIDEST
        and len(size.powers) <= LONGEST
        and all(abs(power) <= LONGEST for _, power in size.powers)
        for size in value.sizes
    )


def _shape(query: ShapeQuery) -> ShapeValue | None:
    value = query.node.inputs[0]
    sizes = None if value is None else query.sizes(value)
    if sizes is None:
        return None
    stop = query.node.attributes.get("end")
    return ShapeValue(sizes[query.integer("start", 0) : None if stop is None else stop.as_int()])


def _size(query: ShapeQuery) -> ShapeValue | None:
    value = query.node.inputs[0]
    sizes = None if value is None else query.sizes(value)
    return None if sizes is None else ShapeValue((product(sizes),), scalar=True)


def _gather(query: ShapeQuery) -> ShapeValue | None:
    source, indices = query.input(0), query.input(1)
    numbers = query.numbers(1)
    if source is None or indices is None or numbers is None or query.integer("axis", 0) != 0:
        return None
    count = len(source.sizes)
    if not all(-count <= number < count for number in numbers):
        return None
    return ShapeValue(tuple(source.sizes[number] for number in numbers), indices.scalar)


def _slice(query: ShapeQuery) -> ShapeValue | None:
    source = query.input(0)
    if source is None:
        return None
    if query.opset < 10:
        starts, ends = (query.node.attributes[name].as_ints() for name in ("starts", "ends"))
        return ShapeValue(source.sizes[starts[0] : ends[0]])
    starts, ends = query.numbers(1), query.numbers(2)
    steps = query.numbers(4) if len(query.node.inputs) > 4 else [1]
    if not starts or not ends or not steps:
        return None
    start, end, step = starts[0], ends[0], steps[0]
    # counted from the back and beyond the front means "to the very front", which Python writes as None
    stop = None if step < 0 and end < -len(source.sizes) else end
    return ShapeValue(source.sizes[start : stop : step or 1])


def _concat(query: ShapeQuery) -> ShapeValue | None:
    parts = [query.input(index) for index in range(len(query.node.inputs))]
    known = [part.sizes for part in parts if part is not None and not part.scalar]
    return ShapeValue(tuple(size for sizes in known for size in sizes)) if len(known) == len(parts) else None


def _unsqueeze(query: ShapeQuery) -> ShapeValue | None:
    source = query.input(0)
    return ShapeValue(source.sizes) if source is not None and source.scalar else None


def _squeeze(query: ShapeQuery) -> ShapeValue | None:
    source = query.input(0)
    return ShapeValue(source.sizes, scalar=True) if source is not None and len(source.sizes) == 1 else None


def _reshape(query: ShapeQuery) -> ShapeValue | None:
    source, target = query.input(0), query.numbers(1)
    if source is None or target is None or len(target) > 1:
        return None
    return ShapeValue(source.sizes, scalar=not target)


def _same(query: ShapeQuery) -> ShapeValue | None:
    return query.input(0)


def _cast(query: ShapeQuery) -> ShapeValue | None:
    integer = query.integer("to", 0) in (onnx_ir.DataType.INT64, onnx_ir.DataType.INT32)
    return query.input(0) if integer else None


def _pairwise(query: ShapeQuery, combine: Callable[[Size, Size], Size | None]) -> ShapeValue | None:
    left, right = query.input(0), query.input(1)
    if left is None or right is None:
        return None
    count = max(len(left.sizes), len(right.sizes))
    if count == 0 or any(len(side.sizes) not in (1, count) for side in (left, right)):
        return None
    pairs = zip(*(side.sizes * (count // len(side.sizes)) for side in (left, right)), strict=True)
    results = [combine(first, second) for first, second in pairs]
    sizes = tuple(size for size in results if size is not None)
    return ShapeValue(sizes, left.scalar and right.scalar) if len(sizes) == count else None


def _sum(first: Size, second: Size) -> Size | None:
    if 0 in (first.coefficient, second.coefficient):
        return second if first.coefficient == 0 else first
    if first.powers != second.powers:
        return None
    total = first.coefficient + second.coefficient
    return Size(total, first.powers if total else ())


def _difference(first: Size, second: Size) -> Size | None:
    return _sum(first, Size(-second.coefficient, second.powers))


def _quotient(first: Size, second: Size) -> Size | None:
    if is_known(first) and is_known(second) and second.coefficient > 0 <= first.coefficient:
        return Size.known(first.coefficient // second.coefficient)
    return exact_quotient(first, second)


def _product(first: Size, second: Size) -> Size:
    return first * second


def _equality(first: Size, second: Size) -> Size | None:
    """Return 1 or 0 for sizes that are equal or not in every call; a size is never negative."""
    if first == second:
        return Size.known(1)
    if is_known(first) and is_known(second):
        return Size.known(0)
    return Size.known(0) if first.coefficient * second.coefficient < 0 else None


def _where(query: ShapeQuery) -> ShapeValue | None:
    chosen, options = query.numbers(0), [query.input(1), query.input(2)]
    if chosen is None or None in options:
        return None
    known = [option for option in options if option is not None]
    count = max(len(chosen), *(len(option.sizes) for option in known))
    if count == 0 or any(len(sizes) not in (1, count) for sizes in (chosen, *(option.sizes for option in known))):
        return None
    yes, no = (option.sizes * (count // len(option.sizes)) for option in known)
    flags = chosen * (count // len(chosen))
    return ShapeValue(tuple(left if flag else right for flag, left, right in zip(flags, yes, no, strict=True)))


def _constant_of_shape(query: ShapeQuery) -> ShapeValue | None:
    target, value = query.numbers(0), query.node.attributes.get("value")
    number = None if value is None else value.as_tensor().numpy().reshape(-1)
    if target is None or len(target) != 1 or number is None or not np.issubdtype(number.dtype, np.integer):
        return None
    return ShapeValue((Size.known(int(number[0])),) * target[0]) if 0 < target[0] <= LONGEST else None


def _reduced(query: ShapeQuery) -> ShapeValue | None:
    source = query.input(0)
    if source is None or source.scalar or query.integer("keepdims", 1) not in (0, 1):
        return None
    return ShapeValue((product(source.sizes),), scalar=not query.integer("keepdims", 1))


RULES: Final[Mapping[str, Callable[[ShapeQuery], ShapeValue | None]]] = MappingProxyType(
    {
        "Add": lambda query: _pairwise(query, _sum),
        "Cast": _cast,
        "Concat": _concat,
        "ConstantOfShape": _constant_of_shape,
        "Div": lambda query: _pairwise(query, _quotient),
        "Equal": lambda query: _pairwise(query, _equality),
        "Gather": _gather,
        "Identity": _same,
        "Mul": lambda query: _pairwise(query, _product),
        "ReduceProd": _reduced,
        "Reshape": _reshape,
        "Shape": _shape,
        "Size": _size,
        "Slice": _slice,
        "Squeeze": _squeeze,
        "Sub": lambda query: _pairwise(query, _difference),
        "Unsqueeze": _unsqueeze,
        "Where": _where,
    }
)

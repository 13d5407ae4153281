"""Patterns of nodes, written as the formulas that exporters write, and matched from the last node backwards.

```
logits = Hole("logits", op.LeakyRelu.optional(op.Add(Hole("from"), Hole("to")), alpha=Hole("slope")))
shares = op.Div(op.Exp(op.Sub(logits, ANY)), ANY)
match  = Match(conversion)
match.root(shares)                           the node that is converted is the Div
slope  = match.get("slope", float)
```

A hole binds what stands at its place; a second hole of the same name only meets the same again. Inputs are met from the
last one on: constants, and holes that tell others apart, stand last. Commutative operators are tried in both orders.
What does not fit is a `Mismatch`, "expected ..., got ...": of several attempts, the one that got furthest.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, TypeVar, cast

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ...dialect.symbolic_sizes import Size, SymbolicShape
from .attributes import Plain, attribute_or_default
from .conversion import Conversion, NotCovered

T = TypeVar("T")


class Mismatch(NotCovered):
    """The nodes are not what was looked for."""

    def __init__(self, expected: str, got: str, depth: int = 0) -> None:
        """Name both; `depth` is how many nodes fitted before."""
        super().__init__(f"expected {expected}, got {got}")
        self.expected, self.got, self.depth = expected, got, depth


class Fill(NamedTuple):
    """A tensor of one number everywhere."""

    number: float
    sizes: SymbolicShape | None
    """None where they are not known."""


class Match:
    """The nodes that fitted so far, and the values at holes."""

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion
        self.nodes: list[onnx_ir.Node] = []
        """Nodes that fitted, without the one that is converted."""
        self.holes: dict[str, object] = {}

    def root(self, pattern: "NodePattern") -> None:
        """Match the node that is converted.

        Raises:
            Mismatch: it does not fit.
        """
        pattern.meet_node(self.conversion.node, self)
        self.nodes.remove(self.conversion.node)

    def get(self, name: str, kind: type[T]) -> T:
        """Return what stands at a hole."""
        found = self.holes[name]
        assert isinstance(found, kind)
        return found

    def value(self, name: str) -> onnx_ir.Value:
        """Return the value at a hole."""
        return self.get(name, onnx_ir.Value)

    def items(self, name: str, kind: type[T]) -> tuple[T, ...]:
        """Return the items of a tuple at a hole, none where the hole was left out."""
        found = self.holes.get(name, ())
        assert isinstance(found, tuple)
        items = cast("tuple[object, ...]", found)
        return tuple(item for item in items if isinstance(item, kind))

    def number(self, name: str, default: float) -> float:
        """Return the number at a hole, or another one where the hole was left out."""
        return self.get(name, float) if name in self.holes else default

    def bind(self, name: str, found: object) -> None:
        """Note what stands at a hole.

        Raises:
            Mismatch: something else does already.
        """
        known = self.holes.setdefault(name, found)
        if not _same(known, found):
            words = f"{self._words(known)} and {self._words(found)}"
            raise Mismatch(f"the same {name} everywhere", words, len(self.nodes))

    def mismatch(self, expected: str, value: onnx_ir.Value | None) -> Mismatch:
        """Return an error that says what a value is instead."""
        return Mismatch(expected, self._words(value), len(self.nodes))

    def behind(self, value: onnx_ir.Value | None) -> onnx_ir.Value:
        """Return a value before Identity.

        Raises:
            Mismatch: it is left out.
        """
        if value is None:
            raise self.mismatch("an input", None)
        node = value.producer()
        if node is None or (node.domain, node.op_type) != ("", "Identity"):
            return value
        self.nodes.append(node)
        return self.behind(node.inputs[0])

    def constant(self, value: onnx_ir.Value | None) -> NDArray[np.generic] | None:
        """Return the array of a constant, else None."""
        return None if value is None else self.conversion.scope.constant_of(value)

    def attribute(self, node: onnx_ir.Node, name: str) -> Plain | None:
        """Return an attribute, or its default; axes may be an input instead."""
        found = attribute_or_default(self.conversion, node, name)
        axes = self.constant(node.inputs[1]) if found is None and name == "axes" and len(node.inputs) > 1 else None
        return found if axes is None else tuple(int(axis) for axis in axes.reshape(-1))

    def fill(self, value: onnx_ir.Value | None) -> Fill | None:
        """Return what a constant, ConstantOfShape or Expand holds everywhere; None where that is not known."""
        value = self.behind(value)
        scope, node, array = self.conversion.scope, value.producer(), self.constant(value)
        sparse = scope.sparse_matrix_of(value)
        if sparse is not None:
            return None if len(sparse.entries().values) else Fill(0.0, _known(sparse.shape.numpy()))
        if array is not None:
            number = array.flat[0] if array.size else np.float32(0)
            return Fill(float(number), _known(array.shape)) if bool((array == number).all()) else None
        if node is None or node.domain != "" or node.op_type not in ("ConstantOfShape", "Expand"):
            return None
        shape = node.inputs[-1]
        sizes = None if shape is None else scope.shape_value_of(shape)
        stated = node.attributes.get("value")
        number = None if stated is None else stated.as_tensor().numpy()
        if node.op_type == "Expand":
            number = self.constant(node.inputs[0])
            if number is None or number.size != 1:
                return None
        self.nodes.append(node)
        return Fill(0.0 if number is None else float(number.flat[0]), None if sizes is None else sizes.sizes)

    def fault_of(self, attempt: Callable[[], None]) -> Mismatch | None:
        """Return why an attempt fails, which then left nothing behind."""
        nodes, holes = len(self.nodes), dict(self.holes)
        try:
            attempt()
        except Mismatch as fault:
            del self.nodes[nodes:]
            self.holes = holes
            return fault
        return None

    def first(self, attempts: Sequence[Callable[[], None]]) -> int:
        """Return which attempt succeeds first.

        Raises:
            Mismatch: none does; this is the fault of the one that got furthest.
        """
        faults: list[Mismatch] = []
        for attempt in attempts:
            fault = self.fault_of(attempt)
            if fault is None:
                return len(faults)
            faults.append(fault)
        furthest = max(faults, key=lambda one: one.depth)
        words = [one.expected for one in faults if (one.depth, one.got) == (furthest.depth, furthest.got)]
        raise Mismatch(" or ".join(dict.fromkeys(words)), furthest.got, furthest.depth)

    def _words(self, found: object) -> str:
        if not isinstance(found, onnx_ir.Value):
            return "an array" if isinstance(found, np.ndarray) else "none" if found is None else str(found)
        node, array = found.producer(), self.constant(found)
        if array is not None:
            return f"{array.dtype}{list(array.shape)} {found.name}"
        return f"input {found.name}" if node is None else f"{node.op_type} {node.name or found.name}"


class Pattern(ABC):
    """A form that a value may have."""

    @abstractmethod
    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        """Note what fits.

        Raises:
            Mismatch: the value does not fit.
        """

    def __or__(self, other: "Pattern") -> "Pattern":
        """Return a pattern that one of two fits."""
        return Choice({0: self, 1: other})


@dataclass(frozen=True)
class Choice(Pattern):
    """Patterns of which the first one that fits counts; its key stands at the hole, if it has a name."""

    options: Mapping[object, Pattern]
    name: str = ""

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        found = match.first([partial(option.meet, value, match) for option in self.options.values()])
        if self.name:
            match.bind(self.name, list(self.options)[found])


@dataclass(frozen=True)
class Hole(Pattern):
    """A value with a name; the pattern inside is matched once."""

    name: str
    inside: Pattern | None = None

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        value = match.behind(value)
        if self.inside is not None and self.name not in match.holes:
            self.inside.meet(value, match)
        match.bind(self.name, value)


@dataclass(frozen=True)
class Once(Pattern):
    """A value that so many nodes read, and that is no output."""

    inside: Pattern
    readers: int = 1

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        if value is None or not is_read(value, self.readers):
            raise match.mismatch(f"a value of {self.readers} reader{'s' * (self.readers != 1)}", value)
        self.inside.meet(value, match)


@dataclass(frozen=True)
class That(Pattern):
    """A value that a question is true of."""

    text: str
    holds: Callable[[Conversion, onnx_ir.Value], bool]

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        if not self.holds(match.conversion, match.behind(value)):
            raise match.mismatch(self.text, value)


class _Any(Pattern):
    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        """Accept whatever it is, and none."""


ANY: Final = _Any()


@dataclass(frozen=True)
class Number(Pattern):
    """A constant of one entry, that a question may be true of; the default is one that is left out."""

    name: str
    text: str = "a number"
    accepts: Callable[[float], bool] = np.isfinite
    default: float | None = None

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        array = match.constant(value)
        number = self.default if value is None else None if array is None or array.size != 1 else float(array.flat[0])
        if number is None or not self.accepts(number):
            raise match.mismatch(self.text, value)
        if self.name:
            match.bind(self.name, number)


@dataclass(frozen=True)
class Filled(Pattern):
    """A tensor of one number everywhere, as a `Fill`."""

    name: str
    text: str
    accepts: Callable[[float], bool]

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        fill = match.fill(value)
        if fill is None or not self.accepts(fill.number):
            raise match.mismatch(self.text, value)
        if self.name:
            match.bind(self.name, fill)


@dataclass(frozen=True)
class NodePattern(Pattern):
    """A node: its inputs from the first one on, and for attributes what they may be, or a hole."""

    operator: "Operator"
    inputs: tuple[Pattern, ...]
    attributes: Mapping[str, Plain | Sequence[Plain] | Hole]
    is_optional: bool = False

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        value = match.behind(value)
        node = value.producer()
        if node is not None and (node.domain, node.op_type) == ("", self.operator.name):
            self.meet_node(node, match)
        elif self.is_optional:
            self.inputs[0].meet(value, match)
        else:
            raise match.mismatch(self.operator.name, value)

    def meet_node(self, node: onnx_ir.Node, match: Match) -> None:
        """Note what fits of a node that has the operator.

        Raises:
            Mismatch: something does not.
        """
        match.nodes.append(node)
        for name, accepted in self.attributes.items():
            found = match.attribute(node, name)
            if isinstance(accepted, Hole):
                match.bind(accepted.name, found)
            elif found != accepted and not (isinstance(accepted, list) and found in accepted):
                raise Mismatch(f"{self.operator.name} with {name}={accepted}", f"{found}", len(match.nodes))
        count = len(self.inputs)
        given, rest = [*node.inputs, *[None] * count][:count], node.inputs[count + ("axes" in self.attributes) :]
        if any(rest):
            raise Mismatch(f"{self.operator.name} of {count} inputs", f"{len(node.inputs)}", len(match.nodes))
        orders = (given, given[::-1]) if self.operator.name in COMMUTATIVE else (given,)
        match.first([partial(self._meet_inputs, order, match) for order in orders])

    def _meet_inputs(self, given: Sequence[onnx_ir.Value | None], match: Match) -> None:
        for pattern, value in reversed(list(zip(self.inputs, given, strict=True))):
            pattern.meet(value, match)


COMMUTATIVE: Final = frozenset({"Add", "Mul"})


@dataclass(frozen=True)
class Operator:
    """An operator of ONNX: called, it is the pattern of its nodes."""

    name: str

    def __call__(self, *inputs: Pattern, **attributes: Plain | Sequence[Plain] | Hole) -> NodePattern:
        """Return the pattern of a node; an attribute has to have the value, or one of a list."""
        return NodePattern(self, inputs, attributes)

    def optional(self, *inputs: Pattern, **attributes: Plain | Sequence[Plain] | Hole) -> NodePattern:
        """Return the pattern of a node that may be left out: then the value is its first input."""
        return replace(self(*inputs, **attributes), is_optional=True)


class _Operators:
    """Operators of ONNX by name, as in `op.Add(x, y)`."""

    def __getattr__(self, name: str) -> Operator:
        if not name[0].isupper():
            raise AttributeError(name)
        return Operator(name)


op: Final = _Operators()

CONSTANT: Final = That("a constant", lambda conversion, value: conversion.scope.constant_of(value) is not None)


def matched(conversion: Conversion, pattern: Pattern, value: onnx_ir.Value) -> Match | None:
    """Return what fits of a value before the node that is converted, None where it does not."""
    match = Match(conversion)
    return match if match.fault_of(partial(pattern.meet, value, match)) is None else None


def is_read(value: onnx_ir.Value, readers: int = 1) -> bool:
    """Return whether so many nodes read a value, and it is no output."""
    return len(value.uses()) == readers and not value.is_graph_output()


def _same(left: object, right: object) -> bool:
    """Return whether two holes of one name hold the same: arrays by their entries, values by identity."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.array_equal(cast("NDArray[np.generic]", left), cast("NDArray[np.generic]", right))
    return left is right or (not isinstance(right, np.ndarray) and left == right)


def _known(shape: Sequence[int]) -> SymbolicShape:
    return tuple(Size.known(int(extent)) for extent in shape)

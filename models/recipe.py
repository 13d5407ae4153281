"""Recipes of the zoo, and the text form of one: `ffnn(depth=4, width=500, density=0.1)`.

A recipe is a frozen dataclass: its fields are the parameters with their defaults, the first line of its docstring is
the summary, and values are checked when it is made.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, cast, get_type_hints

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir


class ModelRecipe(Protocol):
    """A recipe with its parameters chosen."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model; all its randomness comes from `rng`."""
        ...


@dataclass(frozen=True)
class Recipe:
    """Description of a recipe by `redpebble zoo --list`: parameters are name -> default."""

    name: str
    summary: str
    parameters: Mapping[str, object]

    def __str__(self) -> str:
        """The recipe as a spec with every default spelled out."""
        return f"{self.name}({_spelled(self.parameters)})" if self.parameters else self.name


class Spec(NamedTuple):
    """A parsed spec: the name of a recipe and the parameters that were given."""

    name: str
    parameters: dict[str, object]


class _Kind(NamedTuple):
    accepted: str
    types: tuple[type, ...]


_KINDS: Final = MappingProxyType(
    {
        bool: _Kind("True or False", (bool,)),
        int: _Kind("a whole number", (int,)),
        float: _Kind("a number", (int, float)),
        float | None: _Kind("a number or None", (int, float, type(None))),
        str: _Kind("a string", (str,)),
        tuple[int, ...]: _Kind("a tuple of whole numbers", (tuple,)),
    }
)
"""Type of a recipe's field -> what a spec may give for it."""


def parse_spec(text: str) -> Spec:
    """Read `name` or `name(parameter=value, ...)`; values are Python literals.

    Raises:
        ValueError: the text is something else.
    """
    refusal = f"expected a model as name or name(parameter=value, ...) with literal values, got {text!r}"
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise ValueError(refusal) from None
    match expression:
        case ast.Name(id=name):
            return Spec(name, {})
        case ast.Call(func=ast.Name(id=name), args=[], keywords=keywords):
            words = {word.arg or "": _literal(word.value, refusal) for word in keywords}
            if "" in words or len(words) < len(keywords):
                raise ValueError(refusal)
            return Spec(name, words)
        case _:
            raise ValueError(refusal)


def describe(name: str, recipe: type[ModelRecipe]) -> Recipe:
    """The listing of a recipe."""
    summary = (recipe.__doc__ or "").strip().partition("\n")[0]
    defaults = {field.name: field.default for field in fields(recipe) if field.default is not MISSING}
    return Recipe(name, summary, MappingProxyType(defaults))


def choose(name: str, recipe: type[ModelRecipe], parameters: Mapping[str, object]) -> ModelRecipe:
    """The recipe with the given parameters.

    Raises:
        ValueError: a parameter the recipe does not have, or a value it does not accept.
    """
    types = get_type_hints(recipe)
    known = describe(name, recipe).parameters
    for parameter, value in parameters.items():
        if parameter not in known:
            raise ValueError(f"{name}: expected {_spelled(known) or 'no parameter'}, got parameter {parameter!r}")
        _check_kind(f"{name}: {parameter}", value, _KINDS[types[parameter]])
    try:
        return recipe(**parameters)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def require(holds: bool, parameter: str, value: object, accepted: str) -> None:
    """Refuse the value of a parameter unless the condition holds.

    Raises:
        ValueError: it does not.
    """
    if not holds:
        raise ValueError(f"{parameter}: expected {accepted}, got {value!r}")


def require_at_least(least: int, **parameters: int) -> None:
    """Refuse parameters below `least`.

    Raises:
        ValueError: one is below.
    """
    for parameter, value in parameters.items():
        require(value >= least, parameter, value, f"{least} or more")


def require_density(density: float) -> None:
    """Refuse a density outside (0, 1].

    Raises:
        ValueError: it is outside.
    """
    require(0 < density <= 1, "density", density, "above 0, at most 1")


def _check_kind(subject: str, value: object, kind: _Kind) -> None:
    wrong = not isinstance(value, kind.types) or (isinstance(value, bool) and bool not in kind.types)
    entries = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
    if wrong or any(type(entry) is not int for entry in entries):
        raise ValueError(f"{subject}: expected {kind.accepted}, got {value!r}")


def _literal(node: ast.expr, refusal: str) -> object:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        raise ValueError(refusal) from None
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


def _spelled(parameters: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items())

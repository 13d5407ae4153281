"""Kernels that a person wants for layers, by the name of the layer's node: an attribute of a module.

```mlir
builtin.module attributes {pebble.wanted = {"fc1" = "gathered_panels from 1, sparse_rows from 8"}} { ... }
```

A sparse network takes them along, in the IR and as metadata of the model that its node holds, where nodes have names of
their own: the choice goes with an optimized file.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import Operation

WANTED: Final = "pebble.wanted"
"""The attribute of a module."""

METADATA: Final = "redpebble.kernels"
"""The metadata of an ONNX model that hold the same as JSON."""


def want_kernels(module: ModuleOp, kernels: Mapping[str, str]) -> None:
    """Add to a module's wanted kernels, by the name of the layer."""
    if kernels:
        wanted = {**wanted_kernels(module), **kernels}
        module.attributes[WANTED] = DictionaryAttr({name: StringAttr(kernel) for name, kernel in wanted.items()})


def wanted_kernels(op: Operation) -> dict[str, str]:
    """Return the kernels that are wanted in the module of an op, by the name of the layer."""
    module = op
    while (parent := module.parent_op()) is not None:
        module = parent
    found = module.attributes.get(WANTED)
    if not isinstance(found, DictionaryAttr):
        return {}
    return {name: kernel.data for name, kernel in found.data.items() if isinstance(kernel, StringAttr)}


def kernels_in(text: str) -> dict[str, str]:
    """Return the kernels that metadata of a model hold; none where these are something else."""
    try:
        content = json.loads(text or "{}")
        return {str(name): str(kernel) for name, kernel in content.items()}
    except (ValueError, AttributeError, RecursionError):
        return {}


@dataclass(frozen=True)
class WantedKernel:
    """The kernel that a person wants for a layer: families by the width from which each is used, ascending from 1."""

    layer: str
    families: Mapping[int, str]
    must_be: bool
    """Whether it was asked for here, and not in another place, for whatever CPU that had."""

    @staticmethod
    def parse(layer: str, kernel: str, *, must_be: bool) -> "WantedKernel":
        """Return what a text such as `strips from 1, sparse_rows from 8` says.

        Raises:
            ValueError: the text says something else.
        """
        families: dict[int, str] = {}
        for words in (part.split() for part in kernel.split(",")):
            match words:
                case [family]:
                    families[1] = family
                case [family, "from", start] if start.isdecimal():
                    families[int(start)] = family
                case _:
                    families.clear()
                    break
        if 1 not in families or list(families) != sorted(families):
            accepted = "a kernel such as 'strips' or 'gathered_panels from 1, strips from 8'"
            raise ValueError(f"layer {layer}: expected {accepted}, got {kernel!r}")
        return WantedKernel(layer, families, must_be)

    def family_at(self, width: int, accepted: Collection[str]) -> str | None:
        """Return the family for tiles of `width` columns; None where it is not `accepted` and need not be.

        Raises:
            ValueError: it is not accepted, and must be.
        """
        family = self.families[max(start for start in self.families if start <= width)]
        if family in accepted:
            return family
        if self.must_be:
            raise ValueError(
                f"layer {self.layer}: expected one of {', '.join(accepted)} for tiles of {width}, got {family}"
            )
        return None


def read_wishes(module: ModuleOp, words: Iterable[str]) -> dict[str, WantedKernel]:
    """Return the kernels that are wanted in a module, which takes along those of words such as `fc1=strips`.

    Raises:
        ValueError: a text is none of a kernel.
    """
    asked = {name: kernel for name, _, kernel in (word.rpartition("=") for word in words)}
    want_kernels(module, asked)
    return {
        name: WantedKernel.parse(name, kernel, must_be=name in asked) for name, kernel in wanted_kernels(module).items()
    }


def in_words(kernels: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return kernels by the name of the layer as words."""
    return tuple(f"{name}={kernel}" for name, kernel in kernels)

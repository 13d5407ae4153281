"""sympy is imported when somebody computes with a symbolic size.

onnx_ir asks for it at once, which takes 0.5 s of CPU.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Final

DEFERRED: Final = ("sympy", "onnx_ir._symbolic_shapes")
"""The second one looks into the first one while it is imported."""


class DeferSympy:
    """Finder of the two modules for onnx_ir, which gives them a loader that waits until something in them is used."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where a module is, None where that is the business of other finders."""
        # whoever else imports sympy first has use for it
        if name not in DEFERRED or "onnx_ir._core" not in sys.modules:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec

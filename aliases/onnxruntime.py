"""`python -m redpebble.onnxruntime SCRIPT.py ARGUMENTS`: a program whose sessions all run our code.

For libraries that make sessions of onnxruntime and do not let their users choose a provider. In a notebook, or in a
program of one's own, `import redpebble.onnxruntime` and `redpebble.onnxruntime.prefer()` do the same.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ort.provider.preferred import prefer as prefer
    from ..ort.provider.preferred import run as run

_HOME = "redpebble.ort.provider.preferred"
__all__ = ["prefer", "run"]


def __getattr__(name: str) -> object:
    """Find functions where they are defined: a package called onnxruntime can have no relative imports."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME), name)


if __name__ == "__main__":
    import sys

    import_module(_HOME).run(sys.argv[1:])

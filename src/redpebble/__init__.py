"""redpebble makes pruned ONNX models fast on CPUs by moving less data.

```python
net = redpebble.compile("model.onnx", threads=2)
outputs = net.run(None, {"x": x})

result = redpebble.optimize("model.onnx")
```
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redpebble.calibrating import calibrate as calibrate
    from redpebble.compiler import Optimized as Optimized
    from redpebble.compiler import compile as compile  # noqa: A004
    from redpebble.compiler import optimize as optimize
    from redpebble.deployment import get_library_path as get_library_path
    from redpebble.deployment import session as session
    from redpebble.frontend.errors import InvalidModelError as InvalidModelError
    from redpebble.frontend.errors import ModelError as ModelError
    from redpebble.frontend.errors import UnsupportedModelError as UnsupportedModelError
    from redpebble.provider import register as register
    from redpebble.provider import unregister as unregister
    from redpebble.runtime.network import Network as Network

__all__ = [
    "InvalidModelError",
    "ModelError",
    "Network",
    "Optimized",
    "UnsupportedModelError",
    "calibrate",
    "compile",
    "get_library_path",
    "optimize",
    "register",
    "session",
    "unregister",
]

_HOMES = {
    "InvalidModelError": "redpebble.frontend.errors",
    "ModelError": "redpebble.frontend.errors",
    "Network": "redpebble.runtime.network",
    "Optimized": "redpebble.compiler",
    "UnsupportedModelError": "redpebble.frontend.errors",
    "calibrate": "redpebble.calibrating",
    "compile": "redpebble.compiler",
    "get_library_path": "redpebble.deployment",
    "optimize": "redpebble.compiler",
    "register": "redpebble.provider",
    "session": "redpebble.deployment",
    "unregister": "redpebble.provider",
}


def __getattr__(name: str) -> object:
    """Load what is asked for: importing the package alone must stay cheap, since every `xdsl-opt` start does it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)

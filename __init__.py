"""redpebble makes pruned ONNX models fast on CPUs by moving less data.

```python
net = redpebble.compile("model.onnx", threads=2)
outputs = net.run(None, {"x": x})

result = redpebble.optimize("model.onnx")
```
"""

import sys
from typing import TYPE_CHECKING

from .foundation.deferred_sympy import DeferSympy

if TYPE_CHECKING:
    from . import pytorch as torch  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from .driver.compiler import Optimized as Optimized
    from .driver.compiler import compile as compile  # noqa: A004
    from .driver.compiler import optimize as optimize
    from .foundation.errors import RedpebbleError as RedpebbleError
    from .frontend.errors import InvalidModelError as InvalidModelError
    from .frontend.errors import ModelError as ModelError
    from .frontend.errors import UnsupportedModelError as UnsupportedModelError
    from .ort.any_model import session as session
    from .ort.counters import counters as counters
    from .ort.predictor import Predictor as Predictor
    from .ort.provider.register import register as register
    from .ort.provider.register import unregister as unregister
    from .ort.session import get_library_path as get_library_path
    from .pruning.prune import prune as prune
    from .runtime.network import Network as Network
    from .tools.benching.model_bench import bench as bench
    from .tools.comparing.checking import check as check
    from .tools.explain_commands import explain as explain
    from .training.finetune import finetune as finetune
    from .tuning.machines import calibrate as calibrate

    __version__: str

if DeferSympy not in sys.meta_path:
    sys.meta_path.insert(0, DeferSympy)

__path__.append(f"{__path__[0]}/aliases")

__all__ = [
    "InvalidModelError",
    "ModelError",
    "Network",
    "Optimized",
    "Predictor",
    "RedpebbleError",
    "UnsupportedModelError",
    "__version__",
    "bench",
    "calibrate",
    "check",
    "compile",
    "counters",
    "explain",
    "finetune",
    "get_library_path",
    "optimize",
    "prune",
    "register",
    "session",
    "unregister",
]

_HOMES = {
    "InvalidModelError": "redpebble.frontend.errors",
    "ModelError": "redpebble.frontend.errors",
    "Network": "redpebble.runtime.network",
    "Optimized": "redpebble.driver.compiler",
    "Predictor": "redpebble.ort.predictor",
    "RedpebbleError": "redpebble.foundation.errors",
    "UnsupportedModelError": "redpebble.frontend.errors",
    "bench": "redpebble.tools.benching.model_bench",
    "calibrate": "redpebble.tuning.machines",
    "check": "redpebble.tools.comparing.checking",
    "compile": "redpebble.driver.compiler",
    "counters": "redpebble.ort.counters",
    "explain": "redpebble.tools.explain_commands",
    "finetune": "redpebble.training.finetune",
    "get_library_path": "redpebble.ort.session",
    "optimize": "redpebble.driver.compiler",
    "prune": "redpebble.pruning.prune",
    "register": "redpebble.ort.provider.register",
    "session": "redpebble.ort.any_model",
    "unregister": "redpebble.ort.provider.register",
}


def __getattr__(name: str) -> object:
    """Load what is asked for: importing the package alone must stay cheap, since every `xdsl-opt` start does it."""
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name in ("torch", "onnxruntime"):
        from importlib import import_module

        return import_module(f"redpebble.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from .foundation.garbage_collection import rare_collections

    with rare_collections():
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

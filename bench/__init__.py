"""Measuring: engines side by side in one process, medians of interleaved runs.

Wheels do not have this folder, and `redpebble.bench` is the function there. Here it is both: the function as well, once
a module of the folder was imported.
"""

import sys
from types import ModuleType
from typing import Any

from ..tools.benching.benchmark import Benchmark


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **named: Any) -> Benchmark:  # noqa: ANN401 - `bench` has the types
        from ..tools.benching.model_bench import bench

        return bench(*arguments, **named)


sys.modules[__name__].__class__ = _Callable

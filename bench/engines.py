"""The engines that are measured side by side: a name, and how a model becomes a call."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

import redpebble
from redpebble.bench.measuring import Call
from redpebble.runtime.oracle import Oracle

Feeds = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Workload:
    """What an engine is measured on: a model file, its inputs, and the threads it may use."""

    model: str | os.PathLike[str]
    feeds: Feeds
    threads: int


def _redpebble(workload: Workload) -> Call:
    network = redpebble.compile(workload.model, threads=workload.threads)
    return lambda: network.run(None, workload.feeds)


def _onnxruntime(workload: Workload) -> Call:
    oracle = Oracle(workload.model, workload.threads)
    feeds = dict(workload.feeds)
    return lambda: oracle.session.run(None, feeds)


ENGINES: Final[Mapping[str, Callable[[Workload], Call]]] = MappingProxyType(
    {"redpebble": _redpebble, "onnxruntime": _onnxruntime}
)

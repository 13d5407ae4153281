"""`redpebble bench --trace`: compiling pass by pass, and calls node by node, as Chrome trace events for Perfetto.

Three tracks lie below each other: the compiler, a session of ours, and onnxruntime's on the same inputs. Sessions are
timed by onnxruntime's own profiler, to which a sparse network is a node like any other.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import onnxruntime
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ...driver.compiler import network_code, optimized
from ...foundation.atomic_files import write_text
from ...options import Options
from ...ort.any_model import session
from ...ort.sized_session import SizedSession, prepare_for
from ...runtime.jit import host_target
from ...verification.feeds import Feeds
from ...verification.oracle import session_options

CALLS: Final = 20
"""Calls of each session that are traced; the first ones are slower."""

TIMED: Final = "_kernel_time"
"""The end of the names that onnxruntime gives to the times of nodes."""

Event = dict[str, Any]
Making = Callable[[onnxruntime.SessionOptions], onnxruntime.InferenceSession]


def write_trace(model: Path, feeds: Feeds, threads: int, target: Path) -> None:
    """Write how a model is compiled, and what its nodes take in a session and in onnxruntime, on these inputs.

    Raises:
        ModelError: the model is unreadable.
        OSError: the file cannot be written.
    """
    path = os.fspath(model)
    tracks: dict[str, Sequence[Event]] = {
        "redpebble compiles": compiling_events(model, threads),
        "redpebble.session": session_events(lambda options: session(path, options), feeds, threads),
        "onnxruntime": session_events(lambda options: _plain(path, options), feeds, threads),
    }
    events: list[Event] = []
    for number, (name, found) in enumerate(tracks.items(), 1):
        events.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}})
        events += [one | {"pid": number} for one in found]
    write_text(target, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}) + "\n")


def _plain(path: str, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@dataclass
class _Clock:
    """Events of the compiler, each from the end of the one before."""

    begun: float = field(default_factory=time.perf_counter)
    events: list[Event] = field(default_factory=list[Event])
    _last: float = 0.0

    def mark(self, name: str, category: str, arguments: Mapping[str, Any]) -> None:
        """End an event now."""
        now = 1e6 * (time.perf_counter() - self.begun)
        event = {"ph": "X", "name": name, "cat": category, "ts": self._last, "dur": now - self._last, "tid": 1}
        self.events.append(event | {"args": dict(arguments)})
        self._last = now

    def on_pass(self, done: ModulePass, module: ModuleOp) -> None:
        """End a pass; the first one begins with what was done since the last event, as reading."""
        self.mark(done.name, "pass", {"ops": sum(1 for _ in module.walk())})


def compiling_events(model: Path, threads: int) -> list[Event]:
    """Return an event for each pass on the way to a session, and one for the emission of each network's code.

    Raises:
        ModelError: the model is unreadable.
    """
    clock = _Clock()

    def on_network(identity: str, network: ModuleOp) -> None:
        clock.mark("finding and writing networks", "stage", {})
        artefact = network_code(network, threads, host_target(), on_pass=clock.on_pass)
        clock.mark("machine code", "emission", {"network": identity, "bytes": len(artefact.image)})

    optimized(model, replace(Options("optimize"), on_pass=clock.on_pass), on_network)
    clock.mark("writing the model", "stage", {})
    return clock.events


def session_events(making: Making, feeds: Feeds, threads: int) -> list[Event]:
    """Return the events of onnxruntime's profiler over some calls of a session, from the first call on."""
    with tempfile.TemporaryDirectory() as folder:
        options = session_options(threads)
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(folder, "profile")
        made = _called_session(making(options), feeds)
        for _ in range(CALLS):
            made.run(None, dict(feeds))
        found = json.loads(Path(made.end_profiling()).read_text(encoding="utf-8"))
    calls = [one for one in found if one.get("ph") == "X" and one["name"] == "model_run"]
    start = min((one["ts"] for one in calls), default=0)
    return [_shown(one, start) for one in found if one.get("ph") == "X" and one["ts"] >= start]


def _called_session(made: onnxruntime.InferenceSession, feeds: Feeds) -> onnxruntime.InferenceSession:
    """Return the session that runs such inputs: one of its own where code waits for their sizes."""
    prepare_for(made, feeds)
    chosen = made.code.of(made.key_of(feeds)) if isinstance(made, SizedSession) and made.key_of(feeds) else None
    return made if chosen is None else chosen


def _shown(event: Event, start: float) -> Event:
    """Return an event from `start` on, without what only the profiler's authors need."""
    given = event.get("args", {})
    arguments = {name: given[name] for name in ("op_name", "provider", "input_type_shape") if name in given}
    kept = {name: event[name] for name in ("ph", "cat", "dur", "tid")}
    return kept | {"name": event["name"].removesuffix(TIMED), "ts": event["ts"] - start, "args": arguments}

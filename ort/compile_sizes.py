"""The process of `CompilingProcess`: reads a model and sizes of its axes, and keeps code for them in the cache."""

import json
import os
import signal
import sys
from typing import Final

from ..foundation.choices import Choices
from ..foundation.log import LOG
from ..lowering.cpu_target import CpuTarget
from ..runtime.jit import assumed_cpu
from .custom_ops.node import one_line
from .session import fill_cache
from .session_arguments import Wanted

NICENESS: Final = 10
"""The process that serves calls goes first."""


def main() -> None:
    """Serve requests until there are no more."""
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    requests = sys.stdin.buffer
    with os.fdopen(os.dup(1), "wb", buffering=0) as replies:
        os.dup2(2, 1)  # what libraries print is no reply
        asked = json.loads(requests.readline())
        LOG.setLevel(asked["level"])  # the cache keeps what is only counted to be logged
        source = asked["path"] or requests.read(asked["bytes"])
        wanted = Wanted(asked["threads"], asked["rows"], choices=Choices.parse(asked["choices"], "choices"))
        with assumed_cpu(CpuTarget(*asked["cpu"])):
            for line in requests:
                try:
                    fill_cache(source, wanted.with_sizes(json.loads(line)))
                    error = ""
                except Exception as fault:  # the one who asks logs it
                    error = one_line(fault)
                replies.write(json.dumps({"error": error}).encode() + b"\n")

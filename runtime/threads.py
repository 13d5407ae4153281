"""How many threads there are to run code on."""

import os


def usable_threads() -> int:
    """Return how many threads of this process can run at once: code that is cut for them runs on fewer as well."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1

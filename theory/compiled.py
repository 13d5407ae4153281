"""Compiled loops: compiled once, kept on disk beside the source, without the interpreter's lock or allocation.

numba counts the references of arrays with atomic instructions wherever they pass between functions; in loops of some
nanoseconds a step that costs more than the work. Code that cannot allocate has nothing to count. So all arrays are
made by the callers.
"""

from __future__ import annotations

from ..foundation.compiled_loops import compiled_loop

compiled = compiled_loop()

"""The types of an engine: a model becomes a call for each set of inputs."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from ....verification.measuring import Call

Feeds = Mapping[str, NDArray[Any]]
ModelPath = str | os.PathLike[str]

Loaded = Callable[[Feeds, int], Call]
"""A function from inputs and a number of threads to a call that returns the outputs."""

from typing import Any

from . import parametrize as parametrize
from . import prune as prune

def __getattr__(name: str) -> Any: ...

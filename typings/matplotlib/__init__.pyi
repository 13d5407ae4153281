from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

def rc_context(rc: Mapping[str, Any]) -> AbstractContextManager[None]: ...

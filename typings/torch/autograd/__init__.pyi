from typing import Any

class Function:
    apply: Any

def __getattr__(name: str) -> Any: ...

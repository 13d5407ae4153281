from typing import Any

class BasePruningMethod:
    _tensor_name: str

def __getattr__(name: str) -> Any: ...

from typing import Any

class Optimizer:
    param_groups: list[dict[str, Any]]
    def __getattr__(self, name: str) -> Any: ...

def __getattr__(name: str) -> Any: ...

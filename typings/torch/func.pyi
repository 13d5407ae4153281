from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import Module

def functional_call(
    module: Module, parameter_and_buffer_dicts: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any: ...

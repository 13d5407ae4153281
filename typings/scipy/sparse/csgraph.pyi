from typing import Any

from numpy.typing import NDArray

from scipy.sparse import csr_array

def reverse_cuthill_mckee(graph: csr_array, symmetric_mode: bool = ...) -> NDArray[Any]: ...

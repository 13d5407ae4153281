from typing import Any

import numpy as np
from numpy.typing import NDArray

class csc_array:
    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    data: NDArray[Any]
    nnz: int
    def __init__(self, dense: NDArray[Any]) -> None: ...

class csr_array:
    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    data: NDArray[Any]
    shape: tuple[int, int]
    nnz: int
    def __init__(
        self,
        entries: (
            tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
            | tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any]]]
            | NDArray[Any]
        ),
        shape: tuple[int, int] = ...,
    ) -> None: ...
    def sort_indices(self) -> None: ...
    def __matmul__(self, dense: NDArray[Any]) -> NDArray[Any]: ...
    def toarray(self) -> NDArray[Any]: ...

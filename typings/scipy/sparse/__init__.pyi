from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

class csc_array:
    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    data: NDArray[Any]
    nnz: int
    def __init__(self, dense: NDArray[Any]) -> None: ...

class coo_array:
    def __init__(
        self, entries: tuple[NDArray[Any], tuple[NDArray[Any], ...]], shape: tuple[int, int] = ...
    ) -> None: ...

class csr_array:
    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    data: NDArray[Any]
    shape: tuple[int, int]
    nnz: int
    T: csr_array
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
    @overload
    def __matmul__(self, other: csr_array) -> csr_array: ...
    @overload
    def __matmul__(self, other: NDArray[Any]) -> NDArray[Any]: ...
    def toarray(self) -> NDArray[Any]: ...

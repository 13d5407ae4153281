from typing import Any

import numpy as np
from numpy.typing import NDArray

class csc_array:
    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    data: NDArray[Any]
    nnz: int
    def __init__(self, dense: NDArray[Any]) -> None: ...

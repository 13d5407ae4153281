import numpy as np
from numpy.typing import NDArray

def nnls(A: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]: ...
def linear_sum_assignment(
    cost_matrix: NDArray[np.float32], maximize: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...

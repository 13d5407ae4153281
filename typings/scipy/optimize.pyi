import numpy as np
from numpy.typing import NDArray

def nnls(A: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]: ...

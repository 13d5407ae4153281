import numpy as np
from numpy.typing import NDArray

def spotri(c: NDArray[np.float32], lower: bool = ..., overwrite_c: bool = ...) -> tuple[NDArray[np.float32], int]: ...

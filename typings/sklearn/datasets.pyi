from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

def load_digits(*, return_X_y: Literal[True]) -> tuple[NDArray[np.float64], NDArray[np.signedinteger[Any]]]: ...

"""Nanoseconds of the units of work of kernel families, by measured machine, lanes and family; last the exposure.

Written by `bench/fit_prices.py`: not to be edited.
"""

from collections.abc import Mapping
from typing import Final

PRICES: Final[Mapping[str, Mapping[int, Mapping[str, tuple[float, ...]]]]] = {
    "cascade_lake": {
        16: {
            "permute_lookup": (0.13, 1.06, 5.11, 2.39, 1.09),
            "dense_outputs": (0.124, 0.239, 0.868),
            "count_blocks": (5.2, 0.212, 0.166, 0.183, 0.53, 1.27, 0.0024, 0.00243, 1.8),
            "narrow_blocks": (0, 0.252, 0.0596, 1.72, 3.99, 0.00363, 0.00175, 1.25),
            "row_panels": (0, 0.258, 0.167, 0.03, 0.481, 0.00152, 1.74),
            "strips": (23.1, 0.119, 0.188, 0.0768, 6.37, 1.51, 0.000263, 1.52),
            "sparse_rows": (0, 0.527, 0.112, 0.389, 0.00205, 1.86),
        },
        8: {
            "dense_outputs": (0.11, 0.155, 0.855),
            "count_blocks": (4.8, 0.172, 0.252, 0.358, 0.692, 0.709, 0.00226, 0.000902, 1.63),
            "narrow_blocks": (0, 0.246, 0.111, 1.83, 3.56, 0.00448, 0.00265, 1.3),
            "row_panels": (0, 0.474, 0.102, 0.164, 0.957, 0.00141, 1.23),
            "strips": (22.7, 0.286, 0.214, 0.000748, 7.04, 0.708, 0, 0.817),
            "sparse_rows": (0, 0.524, 0.143, 0.471, 0.00149, 1.88),
        },
        4: {
            "dense_outputs": (0.209, 0, 0.863),
            "count_blocks": (3.31, 0.158, 0.578, 0.133, 1.3, 1.22, 0.0035, 0, 1.93),
            "narrow_blocks": (0, 0.213, 0.542, 2.08, 4.53, 0.00851, 0.00855, 1.3),
            "row_panels": (559, 0.552, 0.46, 0.00125, 0, 0.00273, 0.674),
            "strips": (466, 0.0741, 0.398, 0.00449, 8.16, 0.582, 0.0121, 0.573),
            "sparse_rows": (4.0, 0.507, 0.277, 0.453, 0.00219, 1.17),
        },
    },
}

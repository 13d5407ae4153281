"""Nanoseconds of the units of work of kernel families, by machine, lanes and family; last the exposure.

Written by `bench/fit_prices.py`: not to be edited.
"""

from collections.abc import Mapping
from typing import Final

PRICES: Final[Mapping[str, Mapping[int, Mapping[str, tuple[float, ...]]]]] = {
    "cascade_lake": {
        16: {
            "permute_lookup": (1.18, 2.11, 26.3, 26.9, 1.25),
            "dense_outputs": (0.299, 0.684, 1.0),
            "count_blocks": (0.0, 0.669, 0.326, 1.8, 1.73, 11.0, 0.00633, 0.00121, 1.25),
            "narrow_blocks": (0.0, 0.852, 0.0577, 9.82, 19.8, 0.00707, 0.0, 0.25),
            "row_panels": (512.0, 0.661, 0.754, 0.0, 3.58, 0.0, 0.25),
            "strips": (41.8, 0.294, 0.602, 0.195, 26.8, 2.96, 0.0, 0.25),
            "sparse_rows": (0.0, 1.05, 0.491, 2.63, 0.000911, 1.0),
        },
        8: {
            "dense_outputs": (0.263, 0.397, 1.0),
            "count_blocks": (0.0, 0.402, 0.673, 2.47, 1.92, 14.3, 0.00736, 0.000615, 1.75),
            "narrow_blocks": (0.0, 0.713, 0.274, 9.57, 21.6, 0.012, 0.00225, 1.0),
            "row_panels": (242.0, 1.08, 0.639, 0.0, 8.54, 0.0, 0.25),
            "strips": (92.9, 0.129, 0.465, 0.574, 23.6, 6.25, 0.0, 0.25),
            "sparse_rows": (19.2, 1.13, 0.509, 2.61, 0.000855, 0.25),
        },
        4: {
            "dense_outputs": (0.38, 0.0, 1.0),
            "count_blocks": (0.0, 0.104, 1.52, 1.39, 1.45, 12.5, 0.00824, 0.000287, 2.0),
            "narrow_blocks": (0.0, 0.428, 1.28, 6.18, 17.1, 0.0181, 0.00646, 1.5),
            "row_panels": (0.0, 0.558, 0.977, 0.0, 10.5, 0.00183, 0.25),
            "strips": (51.8, 0.207, 0.865, 0.0, 18.3, 0.0, 0.0, 1.25),
            "sparse_rows": (27.6, 1.06, 0.607, 1.9, 0.00355, 1.25),
        },
    },
    "zen5": {
        16: {
            "permute_lookup": (0.831, 0.777, 7.9, 7.79, 1.25),
            "dense_outputs": (0.113, 0.202, 1.0),
            "count_blocks": (0.0, 0.245, 0.145, 0.289, 0.647, 3.31, 0.00213, 5.14e-05, 1.25),
            "narrow_blocks": (0.0, 0.312, 0.0149, 1.91, 4.19, 0.00233, 0.000277, 0.25),
            "row_panels": (163.0, 0.21, 0.24, 0.0, 1.14, 0.0, 0.25),
            "strips": (0.0, 0.169, 0.188, 0.0306, 6.99, 0.612, 0.0, 0.25),
            "sparse_rows": (0.0, 0.417, 0.12, 0.138, 0.00119, 1.0),
        },
    },
}

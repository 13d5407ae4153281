"""Densities below which a weight counts as sparse, before times are predicted: shares of entries that are not zero.

Whether a layer gains is decided by the times of its kernels, as `redpebble.kernels` predicts them. These numbers say
in which form a weight waits for that, and spare the question where the answer is known.
"""

from typing import Final

STORED_SPARSE: Final = 0.62
"""Density below which a weight is stored without its zeros; above it no sparse kernel is faster than a dense one."""

MOSTLY_ZEROS: Final = 0.5
"""Density below which weights of convolutions, and weights that a runtime dequantizes, are taken out of the model."""

STORED_CODES: Final = 0.8
"""Density below which a weight of four bits is read as codes, where inputs are rounded.

Denser ones are read as dense codes, on CPUs that place bytes by a mask alone. Of codes that nobody pruned about a tenth
are zeros.
"""

CODES_ALONE: Final = 0.4
"""Density from which on a weight of four bits has kernels of codes alone, as far as prices go.

Those of floats read eight times the bytes: at half of the weights they took 4.8 and 1.3 times as long as MatMulNBits at
1 and 128 rows (Zen 5), which kernels of codes beat.
"""

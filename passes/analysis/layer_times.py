"""Times of the layers of a tile, whose kernels were chosen: some of them are for tiles of rows, see `are_rows`."""

from collections.abc import Iterable

from ...dialect.attributes.kernels import KernelAttr
from ...kernels.families import are_rows


def rows_at(kernels: Iterable[KernelAttr], width: int) -> bool:
    """Return whether tiles of a width are rows, given the kernels of their layers."""
    return are_rows(kernel.family_at(width) for kernel in kernels)


def kernel_us(kernel: KernelAttr, width: int, *, of_rows: bool) -> float | None:
    """Return the microseconds of a layer in a tile, None where they are not known.

    In a tile of rows a layer without a kernel for them is done row by row.
    """
    known = {**kernel.predicted, **kernel.measured}
    if of_rows and not rows_at([kernel], width):
        return width * known[1] if 1 in known else None
    return known.get(width)

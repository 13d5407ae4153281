"""Intel MKL's sparse matrices through ctypes, called as MKL is fastest: feature-major, aligned, with hints.

The calls that are timed stand in a native loop, so that what ctypes takes for eleven arguments does not count.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ....runtime.jit import MachineCode, emit_object, host_target, load_object
from ....runtime.memory import address_of, aligned_copy
from ..errors import PeerError

Floats = NDArray[np.float32]

EXPECTED_CALLS: Final = 1000
"""The number of uses that MKL is told to expect of a matrix: enough for any preparation to pay."""

GENERAL, LOWER, NON_UNIT = 20, 40, 50
NON_TRANSPOSE, ROW_MAJOR = 10, 101

# By the calling convention of x86-64 a structure of three ints comes in two registers: (type, mode), then diagonal.
_LOOPS: Final = f"""
define void @multiply_one(ptr %function, ptr %matrix, ptr %x, ptr %y, i64 %columns, i64 %repeats) {{
entry:
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %loop ]
  %status = call i32 %function(i32 {NON_TRANSPOSE}, float 1.0, ptr %matrix, i64 {GENERAL + (LOWER << 32)},
    i32 {NON_UNIT}, ptr %x, float 0.0, ptr %y)
  %next = add i64 %index, 1
  %more = icmp ult i64 %next, %repeats
  br i1 %more, label %loop, label %done
done:
  ret void
}}

define void @multiply_many(ptr %function, ptr %matrix, ptr %x, ptr %y, i64 %columns, i64 %repeats) {{
entry:
  %narrow = trunc i64 %columns to i32
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %loop ]
  %status = call i32 %function(i32 {NON_TRANSPOSE}, float 1.0, ptr %matrix, i64 {GENERAL + (LOWER << 32)},
    i32 {NON_UNIT}, i32 {ROW_MAJOR}, ptr %x, i32 %narrow, i32 %narrow, float 0.0, ptr %y, i32 %narrow)
  %next = add i64 %index, 1
  %more = icmp ult i64 %next, %repeats
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


class _Description(ctypes.Structure):
    """`struct matrix_descr`."""

    _fields_ = [("type", ctypes.c_int), ("mode", ctypes.c_int), ("diagonal", ctypes.c_int)]


@dataclass(frozen=True)
class Mkl:
    """The library, and native loops around its products."""

    library: ctypes.CDLL
    loops: MachineCode

    def address(self, name: str) -> int:
        """Return the address of a function."""
        return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0

    def check(self, name: str, *arguments: object) -> None:
        """Call a function that returns a status.

        Raises:
            PeerError: the status is not 0.
        """
        status = getattr(self.library, name)(*arguments)
        if status:
            raise PeerError(f"{name} returned {status}")

    def use_threads(self, threads: int) -> None:
        """Let calls of this thread run on `threads` threads."""
        self.library.MKL_Set_Num_Threads_Local(threads)


@cache
def load_mkl(package: str = "mkl") -> Mkl:
    """Return MKL, loaded once.

    Raises:
        PeerError: it is not installed, or cannot be loaded.
    """
    folder = _folder(package)
    if folder is None:
        raise PeerError(f"the package {package} is not installed, the extra bench has it")
    try:
        load_openmp()
        library = ctypes.CDLL(str(next(folder.glob("libmkl_rt.so*"))))
    except (OSError, StopIteration) as error:
        raise PeerError(f"MKL in {folder} cannot be loaded: {error}") from error
    loops = load_object(emit_object(_LOOPS, host_target()), {"multiply_one": (4, 2), "multiply_many": (4, 2)})
    return Mkl(library, loops)


@cache
def load_openmp() -> None:
    """Load Intel's OpenMP for everybody in this process, where MKL is installed.

    torch brings another one; two in a process take each other's functions and wait for each other for milliseconds.
    """
    folder = _folder("mkl")
    path = next(folder.glob("libiomp5.so*"), None) if folder is not None else None
    if path is not None:
        openmp = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        # idle threads would spin for 200 ms, on the cores of whoever is measured next
        openmp.kmp_set_blocktime(1)


def _folder(package: str) -> Path | None:
    """Return the folder of MKL's libraries."""
    try:
        files = distribution(package).files or ()
    except PackageNotFoundError:
        return None
    return next((Path(str(file.locate())).parent for file in files if file.name.startswith("libmkl_rt.so")), None)


class MklMatrix:
    """A sparse weight [outputs, inputs], prepared for products with feature-major batches of one width."""

    def __init__(self, weight: csr_array, columns: int, threads: int) -> None:
        """Hand `weight` to MKL with the hints for batches of `columns` samples on `threads` threads.

        Raises:
            PeerError: MKL is missing, or refuses the matrix.
        """
        self._handle = ctypes.c_void_p()
        self.mkl = load_mkl()
        self.shape: tuple[int, int] = (int(weight.shape[0]), int(weight.shape[1]))
        self.columns, self.threads = columns, threads
        self._owned = _aligned(weight.indptr.astype(np.int32), weight.indices.astype(np.int32), weight.data)
        starts, indices, values = (address_of(array) for array in self._owned)
        pointers = [ctypes.c_void_p(address) for address in (starts, starts + 4, indices, values)]
        rows, inputs = self.shape
        self.mkl.use_threads(threads)
        self.mkl.check("mkl_sparse_s_create_csr", ctypes.byref(self._handle), 0, rows, inputs, *pointers)
        description = _Description(GENERAL, LOWER, NON_UNIT)
        if columns == 1:
            hint = (self._handle, NON_TRANSPOSE, description, EXPECTED_CALLS)
            self.mkl.check("mkl_sparse_set_mv_hint", *hint)
        else:
            hint = (self._handle, NON_TRANSPOSE, description, ROW_MAJOR, columns, EXPECTED_CALLS)
            self.mkl.check("mkl_sparse_set_mm_hint", *hint)
        self.mkl.check("mkl_sparse_optimize", self._handle)

    def __del__(self) -> None:
        if self._handle:
            self.mkl.library.mkl_sparse_destroy(self._handle)

    def multiply(self, x: Floats, y: Floats, repeats: int = 1) -> None:
        """Write weight x into y, `repeats` times: x is [inputs, columns], y [outputs, columns], both contiguous."""
        self.mkl.use_threads(self.threads)
        one = self.columns == 1
        function = self.mkl.address("mkl_sparse_s_mv" if one else "mkl_sparse_s_mm")
        loop = self.mkl.loops.functions["multiply_one" if one else "multiply_many"]
        loop(function, self._handle.value, address_of(x), address_of(y), self.columns, repeats)


def _aligned(*arrays: NDArray[np.generic]) -> Sequence[NDArray[np.generic]]:
    return [aligned_copy(array) for array in arrays]

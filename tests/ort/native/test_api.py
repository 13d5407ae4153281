"""The places of functions in onnxruntime's table, held by calling them; those of a kernel's the other tests call."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import pytest

from redpebble.ort.custom_ops.node import OrtFunctions
from redpebble.ort.native.api import API_VERSION, SHAPE_VERSION, TENSOR_FLOAT, Slot

CREATE_TENSOR, RELEASE_VALUE = 48, 96
"""CreateTensorAsOrtValue and ReleaseValue, which the library does not need."""


def functions(version: int = API_VERSION) -> OrtFunctions:
    runtime = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"), None)
    if runtime is None:
        pytest.skip("there is no shared library of onnxruntime")
    code = ctypes.CDLL(str(runtime))
    code.OrtGetApiBase.restype = ctypes.c_void_p
    get_api = ctypes.c_uint64.from_address(code.OrtGetApiBase()).value
    return OrtFunctions(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get_api)(version) or 0)


@pytest.fixture
def tensor() -> Iterator[int]:
    api = functions()
    allocator = api.word(Slot.GetAllocatorWithDefaultOptions)
    shape = (ctypes.c_int64 * 2)(3, 5)
    value = ctypes.c_uint64(0)
    create = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 5)
    address = ctypes.c_uint64.from_address(api.address + 8 * CREATE_TENSOR).value
    assert not create(address)(allocator, ctypes.addressof(shape), 2, TENSOR_FLOAT, ctypes.addressof(value))
    yield value.value
    release = ctypes.c_uint64.from_address(api.address + 8 * RELEASE_VALUE).value
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(release)(value.value)


def test_a_status_says_what_it_was_made_with() -> None:
    api = functions()
    create = ctypes.c_uint64.from_address(api.address + 8 * Slot.CreateStatus).value
    status = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(create)(2, b"words")
    code = ctypes.c_uint64.from_address(api.address + 8 * Slot.GetErrorCode).value
    text = ctypes.c_uint64.from_address(api.address + 8 * Slot.GetErrorMessage).value
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(code)(status) == 2
    assert ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(text)(status) == b"words"
    api.release(Slot.ReleaseStatus, status or 0)


def test_the_shape_of_a_tensor_is_read(tensor: int) -> None:
    api = functions()
    info = api.word(Slot.GetTensorTypeAndShape, tensor)
    assert api.word(Slot.GetTensorElementType, info) == TENSOR_FLOAT
    assert api.word(Slot.GetDimensionsCount, info) == 2
    dims = (ctypes.c_int64 * 2)()
    api.call(Slot.GetDimensions, info, ctypes.addressof(dims), 2)
    assert list(dims) == [3, 5]
    api.release(Slot.ReleaseTensorTypeAndShapeInfo, info)


def test_the_shape_of_a_tensor_is_read_without_a_copy(tensor: int) -> None:
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, SHAPE_VERSION):
        pytest.skip(f"onnxruntime is older than 1.{SHAPE_VERSION}")
    api, found = functions(SHAPE_VERSION), (ctypes.c_uint64 * 3)()
    first = ctypes.addressof(found)
    api.call(Slot.GetTensorElementTypeAndShapeDataReference, tensor, first, first + 8, first + 16)
    assert found[0] == TENSOR_FLOAT
    assert found[2] == 2
    assert list((ctypes.c_int64 * 2).from_address(found[1])) == [3, 5]


def test_shapes_are_described_with_names() -> None:
    api = functions()
    info = api.word(Slot.CreateTensorTypeAndShapeInfo)
    dims, names = (ctypes.c_int64 * 2)(-1, 7), (ctypes.c_char_p * 2)(b"batch", b"")
    api.call(Slot.SetTensorElementType, info, TENSOR_FLOAT)
    api.call(Slot.SetDimensions, info, ctypes.addressof(dims), 2)
    api.call(Slot.SetSymbolicDimensions, info, ctypes.addressof(names), 2)
    back, words = (ctypes.c_int64 * 2)(), (ctypes.c_char_p * 2)()
    api.call(Slot.GetDimensions, info, ctypes.addressof(back), 2)
    api.call(Slot.GetSymbolicDimensions, info, ctypes.addressof(words), 2)
    assert list(back) == [-1, 7]
    assert list(words) == [b"batch", b""]
    api.release(Slot.ReleaseTensorTypeAndShapeInfo, info)


def test_memory_is_lent_and_given_back() -> None:
    api = functions()
    allocator = api.word(Slot.GetAllocatorWithDefaultOptions)
    memory = api.word(Slot.AllocatorAlloc, allocator, 1000)
    ctypes.memset(memory, 1, 1000)
    api.call(Slot.AllocatorFree, allocator, memory)
    api.release(Slot.ReleaseMemoryInfo, api.word(Slot.CreateCpuMemoryInfo, 1, 0))


def test_data_of_a_tensor_can_be_written(tensor: int) -> None:
    api = functions()
    ctypes.memset(api.word(Slot.GetTensorMutableData, tensor), 0, 60)

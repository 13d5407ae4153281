"""onnxruntime's C interface as native code sees it: places in its table of functions, and in the struct of an operator.

The numbers are positions in the public header `onnxruntime_c_api.h`, which only ever appends; a test calls each of
them through the installed onnxruntime.
"""

from enum import IntEnum
from typing import Final

API_VERSION: Final = 17
"""The first with `KernelContext_ParallelFor`, and so the oldest onnxruntime that can run the library: 1.17."""


SHAPE_VERSION: Final = 24
"""The first with `GetTensorElementTypeAndShapeDataReference`: an input's shape without allocating a copy of it."""


class Slot(IntEnum):
    """Index of a function in `OrtApi`."""

    CreateStatus = 0
    GetErrorCode = 1
    GetErrorMessage = 2
    CreateCustomOpDomain = 26
    CustomOpDomain_Add = 27
    AddCustomOpDomain = 28
    GetTensorMutableData = 51
    CreateTensorTypeAndShapeInfo = 57
    SetTensorElementType = 58
    SetDimensions = 59
    GetTensorElementType = 60
    GetDimensionsCount = 61
    GetDimensions = 62
    GetSymbolicDimensions = 63
    GetTensorTypeAndShape = 65
    CreateCpuMemoryInfo = 69
    AllocatorAlloc = 75
    AllocatorFree = 76
    GetAllocatorWithDefaultOptions = 78
    KernelInfoGetAttribute_int64 = 86
    KernelInfoGetAttribute_string = 87
    KernelContext_GetInput = 90
    KernelContext_GetOutput = 91
    ReleaseStatus = 93
    ReleaseMemoryInfo = 94
    ReleaseTensorTypeAndShapeInfo = 99
    ReleaseAllocator = 132
    KernelInfo_GetInputCount = 230
    KernelInfo_GetOutputCount = 231
    KernelInfoGetConstantInput_tensor = 249
    KernelContext_GetAllocator = 253
    ShapeInferContext_GetInputTypeShape = 268
    ShapeInferContext_GetAttribute = 269
    ShapeInferContext_SetOutputTypeShape = 270
    SetSymbolicDimensions = 271
    ReadOpAttr = 272
    KernelContext_ParallelFor = 274
    GetTensorElementTypeAndShapeDataReference = 414


class CustomOp(IntEnum):
    """Index of a word in `OrtCustomOp`; the first holds the version."""

    Version = 0
    GetName = 2
    GetExecutionProviderType = 3
    GetInputType = 4
    GetInputTypeCount = 5
    GetOutputType = 6
    GetOutputTypeCount = 7
    KernelDestroy = 9
    GetInputCharacteristic = 10
    GetOutputCharacteristic = 11
    GetInputMemoryType = 12
    GetVariadicInputMinArity = 13
    GetVariadicInputHomogeneity = 14
    GetVariadicOutputMinArity = 15
    GetVariadicOutputHomogeneity = 16
    CreateKernelV2 = 17
    KernelComputeV2 = 18
    InferOutputShapeFn = 19
    GetStartVersion = 20
    GetEndVersion = 21
    Name = 26
    """The first of the words that are ours."""
    Number = 27
    Api = 28
    ShapeOf = 29
    """`GetTensorElementTypeAndShapeDataReference`, or null where onnxruntime has none."""


CUSTOM_OP_WORDS: Final = 30

TENSOR_FLOAT: Final = 1
TENSOR_UNDEFINED: Final = 0
VARIADIC: Final = 2
ATTRIBUTE_STRING: Final = 5
INVALID_ARGUMENT: Final = 2
EVERY_VERSION: Final = 0x7FFFFFFF
ARENA_ALLOCATOR: Final = 1
DEFAULT_MEMORY: Final = 0

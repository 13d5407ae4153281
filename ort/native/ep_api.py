"""onnxruntime's interface for execution providers: places of functions in its tables, and of words in its structs.

The numbers are positions in the public headers `onnxruntime_c_api.h` and `onnxruntime_ep_c_api.h` of 1.23, which only
ever append; a test reads a graph through each of them.
"""

from enum import IntEnum
from typing import Final

EP_VERSION: Final = 23
"""The first onnxruntime, 1.23, in which a provider can compile nodes; what we say we were made for."""


WARNING: Final = 2
"""`ORT_LOGGING_LEVEL_WARNING`."""


class GraphSlot(IntEnum):
    """Index of a function in `OrtApi`: those that describe a graph to a provider."""

    CastTypeInfoToTensorInfo = 55
    GetOnnxTypeFromTypeInfo = 56
    Logger_LogMessage = 247
    GetValueInfoName = 289
    GetValueInfoTypeInfo = 290
    HardwareDevice_Type = 307
    GetEpApi = 317
    ValueInfo_GetInitializerValue = 326
    ValueInfo_IsConstantInitializer = 331
    Graph_GetOnnxIRVersion = 335
    Graph_GetNumOperatorSets = 336
    Graph_GetOperatorSets = 337
    Graph_GetNumInputs = 338
    Graph_GetInputs = 339
    Graph_GetNumOutputs = 340
    Graph_GetOutputs = 341
    Graph_GetNumNodes = 344
    Graph_GetNodes = 345
    Graph_GetParentNode = 346
    Node_GetId = 348
    Node_GetName = 349
    Node_GetOperatorType = 350
    Node_GetDomain = 351
    Node_GetNumInputs = 353
    Node_GetInputs = 354
    Node_GetNumOutputs = 355
    Node_GetOutputs = 356
    Node_GetNumImplicitInputs = 357
    Node_GetImplicitInputs = 358
    Node_GetNumAttributes = 359
    Node_GetAttributes = 360
    OpAttr_GetTensorAttributeAsOrtValue = 362
    OpAttr_GetType = 363
    OpAttr_GetName = 364
    Node_GetNumSubgraphs = 365
    Node_GetSubgraphs = 366


class ContextSlot(IntEnum):
    """Index of a function in `OrtApi`: those that write EPContext nodes and say what a session was asked for."""

    CreateOpAttr = 211
    HasSessionConfigEntry = 237
    GetSessionConfigEntry = 238
    GetModelEditorApi = 291
    Graph_GetModelPath = 334


class EditorSlot(IntEnum):
    """Index of a function in `OrtModelEditorApi`."""

    CreateNode = 6


class Compatibility(IntEnum):
    """`OrtCompiledModelCompatibility`."""

    NotOurs = 0
    Best = 1
    BetterCompiledAnew = 2
    Unsupported = 3


class EpSlot(IntEnum):
    """Index of a function in `OrtEpApi`."""

    CreateEpDevice = 0
    EpGraphSupportInfo_AddNodesToFuse = 2


class Factory(IntEnum):
    """Index of a word in `OrtEpFactory`; the first holds the version."""

    Version = 0
    GetName = 1
    GetVendor = 2
    GetSupportedDevices = 3
    CreateEp = 4
    ReleaseEp = 5
    GetVendorId = 6
    GetVersion = 7
    ValidateCompiledModelCompatibilityInfo = 8
    CreateAllocator = 9
    ReleaseAllocator = 10
    CreateDataTransfer = 11
    IsStreamAware = 12
    CreateSyncStreamForDevice = 13


FACTORY_WORDS: Final = 16


class Ep(IntEnum):
    """Index of a word in `OrtEp`; the first holds the version, those left out may be null."""

    Version = 0
    GetName = 1
    GetCapability = 2
    Compile = 3
    ReleaseNodeComputeInfos = 4
    GetCompiledModelCompatibilityInfo = 12


EP_WORDS: Final = 16


class ComputeInfo(IntEnum):
    """Index of a word in `OrtNodeComputeInfo`; the first holds the version."""

    Version = 0
    CreateState = 1
    Compute = 2
    ReleaseState = 3
    Kernel = 4
    """The first of the words that are ours: the state of the node's kernel."""


COMPUTE_INFO_WORDS: Final = 5


class AttributeKind(IntEnum):
    """`OrtOpAttrType`."""

    Integer = 1
    Integers = 2
    Float = 3
    Floats = 4
    Text = 5
    Texts = 6
    Tensor = 8

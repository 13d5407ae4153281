"""The dialect object: every op and attribute of `pebble`, in the order in which a reader should meet them."""

from xdsl.ir import Dialect

from .attributes.activations import ActivationAttr
from .attributes.codes import CodesAttr
from .attributes.depth_first_order import DepthFirstOrderAttr
from .attributes.io_bounds import IoBoundsAttr
from .attributes.kernels import KernelAttr
from .attributes.partition import PartitionAttr
from .attributes.product_order import ProductOrderAttr
from .attributes.resampling import ResamplingAttr
from .attributes.row_panels import PanelsAttr
from .attributes.schedule import ScheduleAttr
from .attributes.structure_facts import FactAttr
from .attributes.target_walk import TargetWalkAttr
from .attributes.transfers import InstanceBoundAttr, TransferCountAttr
from .attributes.window import WindowAttr
from .ops.attention import AttentionOp, PastAttentionOp
from .ops.constants import ConstantOp, SparseConstantOp
from .ops.elementwise import ActivateOp, AddOp, ConvertOp, DivOp, MulOp, PreluOp, SubOp
from .ops.foreign import ForeignOp, ForeignType
from .ops.graphs import AggregateOp, AttendEdgesOp, EdgeListOp, EdgesType, SortEdgesOp
from .ops.grouped_layers import GroupedLayersOp
from .ops.image_network import ImageNetworkOp
from .ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, QuantizedConv2dOp, Resample2dOp
from .ops.layers import (
    BatchMatmulTransposeBOp,
    BatchNormOp,
    LayerNormOp,
    LinearOp,
    LogSoftmaxOp,
    ReduceMeanOp,
    RmsNormOp,
    SoftmaxOp,
)
from .ops.movement import ConcatOp, ReshapeOp, SplitOp, TakeOp, TargetShapeAttr, TransposeOp
from .ops.network import NetworkOp
from .ops.regions import YieldOp
from .ops.sparse_network import SparseNetworkOp
from .ops.tile import TileOp
from .ops.tile_dead_rows import DeadRowsAttr
from .ops.tile_depth_first import DepthFirstAttr, LayerGroupAttr
from .ops.training.gradients import SampledProductOp, SumRowsOp
from .tensors import SparsityAttr

Pebble = Dialect(
    "pebble",
    [
        ConstantOp,
        SparseConstantOp,
        LinearOp,
        ActivateOp,
        ConvertOp,
        AddOp,
        SubOp,
        MulOp,
        DivOp,
        PreluOp,
        SoftmaxOp,
        LogSoftmaxOp,
        LayerNormOp,
        RmsNormOp,
        BatchNormOp,
        ReduceMeanOp,
        AttentionOp,
        PastAttentionOp,
        Conv2dOp,
        Depthwise2dOp,
        Pool2dOp,
        Resample2dOp,
        AggregateOp,
        AttendEdgesOp,
        EdgeListOp,
        SortEdgesOp,
        SampledProductOp,
        SumRowsOp,
        ReshapeOp,
        TransposeOp,
        ConcatOp,
        SplitOp,
        TakeOp,
        BatchMatmulTransposeBOp,
        NetworkOp,
        TileOp,
        ImageNetworkOp,
        YieldOp,
        SparseNetworkOp,
        GroupedLayersOp,
        QuantizedConv2dOp,
        ForeignOp,
    ],
    [
        ActivationAttr,
        CodesAttr,
        SparsityAttr,
        KernelAttr,
        IoBoundsAttr,
        ScheduleAttr,
        DeadRowsAttr,
        LayerGroupAttr,
        DepthFirstAttr,
        TransferCountAttr,
        InstanceBoundAttr,
        PartitionAttr,
        TargetShapeAttr,
        WindowAttr,
        ResamplingAttr,
        PanelsAttr,
        ProductOrderAttr,
        TargetWalkAttr,
        FactAttr,
        DepthFirstOrderAttr,
        ForeignType,
        EdgesType,
    ],
)

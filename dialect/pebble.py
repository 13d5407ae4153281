"""The dialect object: every op and attribute of `pebble`, in the order in which a reader should meet them."""

from xdsl.ir import Dialect

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.attributes.depth_first_order import DepthFirstOrderAttr
from redpebble.dialect.attributes.input_blocks import InputBlocksAttr
from redpebble.dialect.attributes.io_bounds import IoBoundsAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.latencies import TimesAttr
from redpebble.dialect.attributes.partition import PartitionAttr
from redpebble.dialect.attributes.product_order import ProductOrderAttr
from redpebble.dialect.attributes.resampling import ResamplingAttr
from redpebble.dialect.attributes.row_panels import PanelsAttr
from redpebble.dialect.attributes.schedule import ScheduleAttr
from redpebble.dialect.attributes.structure_facts import FactAttr
from redpebble.dialect.attributes.target_walk import TargetWalkAttr
from redpebble.dialect.attributes.transfers import InstanceBoundAttr, TransferCountAttr
from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.attention import AttentionOp, PastAttentionOp
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, PreluOp, SubOp
from redpebble.dialect.ops.foreign import ForeignOp, ForeignType
from redpebble.dialect.ops.graphs.aggregate import AggregateOp
from redpebble.dialect.ops.graphs.attend_edges import AttendEdgesOp
from redpebble.dialect.ops.graphs.attend_sorted import AttendSortedOp
from redpebble.dialect.ops.graphs.edges_of_call import AggregateSortedOp, EdgeListOp, SortEdgesOp
from redpebble.dialect.ops.grouped_layers import GroupedLayersOp
from redpebble.dialect.ops.image_network import ImageNetworkOp
from redpebble.dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, QuantizedConv2dOp, Resample2dOp
from redpebble.dialect.ops.layers import (
    BatchMatmulTransposeBOp,
    BatchNormOp,
    LayerNormOp,
    LinearOp,
    LogSoftmaxOp,
    ReduceMeanOp,
    RmsNormOp,
    SoftmaxOp,
)
from redpebble.dialect.ops.movement import ConcatOp, ReshapeOp, SplitOp, TakeOp, TargetShapeAttr, TransposeOp
from redpebble.dialect.ops.network import NetworkOp
from redpebble.dialect.ops.quantized_layers import QuantizedLayersOp
from redpebble.dialect.ops.regions import YieldOp
from redpebble.dialect.ops.sparse_network import SparseNetworkOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.ops.tile_dead_rows import DeadRowsAttr
from redpebble.dialect.ops.tile_depth_first import DepthFirstAttr, LayerGroupAttr
from redpebble.dialect.ops.training.gradients import SampledProductOp, SumRowsOp
from redpebble.dialect.tensors import SparsityAttr

Pebble = Dialect(
    "pebble",
    [
        ConstantOp,
        SparseConstantOp,
        LinearOp,
        ActivateOp,
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
        AggregateSortedOp,
        AttendSortedOp,
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
        QuantizedLayersOp,
        ForeignOp,
    ],
    [
        ActivationAttr,
        CodesAttr,
        SparsityAttr,
        KernelAttr,
        InputBlocksAttr,
        TimesAttr,
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
    ],
)

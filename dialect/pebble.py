"""The dialect object: every op and attribute of `pebble`, in the order in which a reader should meet them."""

from xdsl.ir import Dialect

from redpebble.dialect.attributes import ActivationAttr, KernelAttr, LayoutAttr, SparsityAttr
from redpebble.dialect.bodies import YieldOp
from redpebble.dialect.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.dead_rows import DeadRowsAttr
from redpebble.dialect.decisions import IoBoundsAttr, ScheduleAttr
from redpebble.dialect.depth_first import DepthFirstAttr, LayerGroupAttr
from redpebble.dialect.elementwise import ActivateOp, AddOp, DivOp, MulOp, PreluOp, SubOp
from redpebble.dialect.foreign import ForeignOp, ForeignType
from redpebble.dialect.grouped_layers import GroupedLayersOp
from redpebble.dialect.input_blocks import InputBlocksAttr
from redpebble.dialect.layers import (
    BatchNormOp,
    LayerNormOp,
    LinearOp,
    LogSoftmaxOp,
    ReduceMeanOp,
    RmsNormOp,
    SoftmaxOp,
)
from redpebble.dialect.movement import ConcatOp, ReshapeOp, SplitOp, TargetShapeAttr, TransposeOp
from redpebble.dialect.network import NetworkOp
from redpebble.dialect.panels import PanelsAttr
from redpebble.dialect.partition import PartitionAttr
from redpebble.dialect.sparse_network import SparseNetworkOp
from redpebble.dialect.structure import FactAttr
from redpebble.dialect.tile import TileOp
from redpebble.dialect.times import TimesAttr
from redpebble.dialect.transfers import InstanceBoundAttr, TransferCountAttr
from redpebble.dialect.wavefront import WavefrontAttr

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
        ReshapeOp,
        TransposeOp,
        ConcatOp,
        SplitOp,
        NetworkOp,
        TileOp,
        YieldOp,
        SparseNetworkOp,
        GroupedLayersOp,
        ForeignOp,
    ],
    [
        ActivationAttr,
        SparsityAttr,
        KernelAttr,
        InputBlocksAttr,
        TimesAttr,
        LayoutAttr,
        IoBoundsAttr,
        ScheduleAttr,
        DeadRowsAttr,
        LayerGroupAttr,
        DepthFirstAttr,
        TransferCountAttr,
        InstanceBoundAttr,
        PartitionAttr,
        TargetShapeAttr,
        PanelsAttr,
        FactAttr,
        WavefrontAttr,
        ForeignType,
    ],
)

"""Report of quantized layers: a line for each, read from the IR."""

from xdsl.ir import SSAValue

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.quantized_layers import QuantizedLayersOp
from redpebble.dialect.reports.layer_report import LayerReport


def quantized_reports(op: QuantizedLayersOp) -> list[LayerReport]:
    """Return a line for each layer; times of all together are parted by connections."""
    counts = [_connections(layer.weight) for layer in op.layers]
    return [_report(op, index, count, count / max(1, sum(counts))) for index, count in enumerate(counts)]


def _connections(weight: SSAValue) -> int:
    """Return the weights that are not zero."""
    owner = weight.owner
    if isinstance(owner, SparseConstantOp):
        return len(owner.weight.values)
    return int((owner.array != 0).sum()) if isinstance(owner, ConstantOp) else 0


def _report(op: QuantizedLayersOp, index: int, connections: int, share: float) -> LayerReport:
    layer, kernel = op.layers[index], op.kernel
    size = layer.inputs * layer.outputs
    families = {} if kernel is None else {str(width): family for width, family in kernel.choices.items()}
    starts = [family if width == "1" else f"{family} from {width}" for width, family in families.items()]
    predicted = {} if kernel is None else kernel.predicted.by_width
    return LayerReport(
        name=layer.name,
        inputs=layer.inputs,
        outputs=layer.outputs,
        connections=connections,
        density=connections / size if size else 0.0,
        format="int8",
        kernel=", ".join(starts),
        reason="" if kernel is None else kernel.reason.data,
        families=families,
        predicted_us={str(width): share * time for width, time in predicted.items()},
        measured_us={},
        predicted_bytes={str(width): 2.0 * connections + width * (layer.inputs + layer.outputs) for width in predicted},
        at_most=(),
        fewest_reads=None,
        most_reads=None,
        fewest_writes=None,
        most_writes=None,
        structure="",
    )

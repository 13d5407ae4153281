"""Report of quantized layers and convolutions: a line for each, read from the IR."""

from dataclasses import replace

from ..attributes.kernels import KernelAttr
from ..ops.images import Conv2dOp
from ..ops.layers import LinearOp
from ..ops.quantized_layers import QuantizedLayer
from .layer_numbers import connections_of
from .layer_report import LayerReport


def quantized_report(op: LinearOp | Conv2dOp, window: str) -> LayerReport:
    """Return the line of a layer; `window` says what a convolution reads, whose times are those of a tile of pixels."""
    line, kernel = _line(op.on_codes, op.kernel, f"; {window}" if window else ""), op.kernel
    if isinstance(op, LinearOp) or kernel is None:
        return line
    # the family is used for tiles of pixels alone
    return replace(line, families={str(width): line.kernel for width in kernel.predicted})


def _line(layer: QuantizedLayer, kernel: KernelAttr | None, more: str) -> LayerReport:
    """Return a line for a layer."""
    connections, size = connections_of(layer.weight) or 0, layer.inputs * layer.outputs
    families = {} if kernel is None else {str(width): family for width, family in kernel.choices.items()}
    starts = [family if width == "1" else f"{family} from {width}" for width, family in families.items()]
    predicted = dict[int, float]() if kernel is None else kernel.predicted
    return LayerReport(
        name=layer.name,
        inputs=layer.inputs,
        outputs=layer.outputs,
        connections=connections,
        density=connections / size if size else 0.0,
        format="int8",
        kernel=", ".join(starts),
        reason="" if kernel is None else f"{kernel.reason}{more}",
        families=families,
        predicted_us={str(width): time for width, time in predicted.items()},
        measured_us={},
        predicted_bytes={str(width): 2.0 * connections + width * (layer.inputs + layer.outputs) for width in predicted},
        at_most=(),
        fewest_reads=None,
        most_reads=None,
        fewest_writes=None,
        most_writes=None,
        structure="",
    )

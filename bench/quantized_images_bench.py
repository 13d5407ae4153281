"""Convolutional networks that are pruned and quantized, beside onnxruntime's integers and floats, in the same rounds.

`python -m redpebble.bench.quantized_images_bench [NAME ...] [--sparsities .8,.9,.95] [--forms qdq,operator,dynamic]
[--seconds 3]`: exports of torch's exporter with random weights, of which a share is zero in each layer but the stem and
depthwise ones, as onnxruntime's `quantize_static` writes them: unsigned activations, signed weights, a scale an output.
The form `dynamic` is that of `quantize_dynamic`: codes that each call finds, unsigned weights, one scale. With the form
`samples` ours is the model of floats that `optimize --precision int8` quantizes, beside the integers of QDQ.
Sessions on one thread take turns in one process; a session of the same pruned file of floats runs beside them. Results
are compared with those of onnxruntime's integers.
"""

import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np
import onnx
import onnxruntime
import typer
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import redpebble

from ..models.exports.stored import random_feeds, stored_export
from ..verification.measuring import Budget, interleave
from .results.page_tables import PageTable, Write

NETWORKS: Final = PageTable(
    "networks of images in eight bits", ("network", "form", "zeros", "ms", "int8", "fp32", "equal results")
)

FORMS = {"qdq": QuantFormat.QDQ, "operator": QuantFormat.QOperator}

DYNAMIC, SAMPLES = "dynamic", "samples"

Feed = dict[str, NDArray[np.generic]]

CLOSE = 0.02
"""Difference over the largest output up to which a result is right: means of pixels are rounded to codes once more."""


SMALL = 1e-4
"""Outputs that random weights leave nothing of: below, differences are no errors."""


class _Inputs(CalibrationDataReader):
    """Inputs by which ranges are found."""

    def __init__(self, feeds: list[Feed]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


class Types(NamedTuple):
    """Types of what is quantized, and whether a weight has a scale for each output."""

    activations: QuantType = QuantType.QUInt8
    weights: QuantType = QuantType.QInt8
    by_output: bool = True


def quantized(
    model: onnx.ModelProto,
    form: str,
    feed: Feed,
    operators: list[str] | None = None,
    but: Sequence[str] = (),
    types: Types | None = None,
) -> onnx.ModelProto:
    """Return a model as onnxruntime's quantizer writes it: operators, None for all, without nodes of these names.

    Without `types` they are `Types()`; of a dynamic form weights are unsigned then, and have one scale.
    """
    dynamic, static = types or Types(weights=QuantType.QUInt8, by_output=False), types or Types()
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "float.onnx"), Path(folder, "quantized.onnx")
        before.write_bytes(model.SerializeToString())
        if form == DYNAMIC:
            quantize_dynamic(
                before,
                after,
                weight_type=dynamic.weights,
                per_channel=dynamic.by_output,
                op_types_to_quantize=["Conv", "Gemm", "MatMul"],
            )
            return onnx.load_from_string(after.read_bytes())
        quantize_static(
            before,
            after,
            _Inputs([feed]),
            quant_format=FORMS[form],
            activation_type=static.activations,
            weight_type=static.weights,
            per_channel=static.by_output,
            op_types_to_quantize=operators,
            nodes_to_exclude=list(but),
        )
        return onnx.load_from_string(after.read_bytes())


def cells(export: str, sparsity: float, form: str, budget: Budget) -> tuple[str, ...]:
    """Return a row of the table: medians, and how often ours fits into theirs.

    Raises:
        ValueError: a result differs from that of onnxruntime's integers.
    """
    floats = stored_export(f"{export}.dynamo", sparsity)
    free = {dim.dim_param for value in floats.graph.input for dim in value.type.tensor_type.shape.dim}
    feed = dict(random_feeds(floats, dict.fromkeys(free, 1)))
    integers, options = quantized(floats, "qdq" if form == SAMPLES else form, feed), onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    own = redpebble.optimize(floats, samples=feed).model if form == SAMPLES else integers
    sessions = {
        "ours": redpebble.session(own, options),
        "int8": onnxruntime.InferenceSession(integers.SerializeToString(), options, providers=["CPUExecutionProvider"]),
        "fp32": onnxruntime.InferenceSession(floats.SerializeToString(), options, providers=["CPUExecutionProvider"]),
    }
    ours, theirs = (np.asarray(sessions[name].run(None, feed)[0]) for name in ("ours", "int8"))
    if form != SAMPLES and np.abs(ours - theirs).max() > CLOSE * max(np.abs(theirs).max(), SMALL):
        raise ValueError(f"{export}: results differ by {np.abs(ours - theirs).max()}")
    calls = {name: partial(session.run, None, feed) for name, session in sessions.items()}
    times = {name: timing.median_us for name, timing in interleave(calls, budget).items()}
    ratios = [f"{times[name] / times['ours']:.2f}x" for name in ("int8", "fp32")]
    equal = np.count_nonzero(ours == theirs) / max(1, ours.size)
    return export, form, f"{sparsity:g}", f"{times['ours'] / 1e3:.2f}", *ratios, f"{equal:.3f}"


def main(
    exports: Annotated[list[str] | None, typer.Argument(help="Exports, such as resnet_18.")] = None,
    sparsities: Annotated[str, typer.Option(help="Shares of zeros.")] = "0.8,0.9,0.95",
    forms: Annotated[str, typer.Option(help="qdq, operator, dynamic, samples.")] = "qdq",
    seconds: Annotated[float, typer.Option(help="Time for each row.")] = 3.0,
    *,
    write: Write = False,
) -> None:
    """Print a table of ratios."""
    with NETWORKS.rows(write=write) as add:
        for case in product(exports or ["resnet_18", "resnet_50"], forms.split(","), sparsities.split(",")):
            export, form, sparsity = case
            add(*cells(export, float(sparsity), form, Budget(seconds)))


if __name__ == "__main__":
    typer.run(main)

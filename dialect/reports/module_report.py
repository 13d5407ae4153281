"""Report of a module: choices for each linear layer, and for all together, read from the IR."""

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

from ..ops.constants import SparseConstantOp
from ..ops.images import Conv2dOp, image_shape
from ..ops.layers import LinearOp
from ..provenance import ORDER, SEARCH, node_name
from ..tensors import shape_of
from .layer_numbers import LayerNumbers, connection_count, layer_numbers
from .layer_report import LayerReport, Report
from .quantized_report import quantized_report


def module_report(module: ModuleOp) -> Report:
    """Return what was chosen for the layers of `module`, and what was tried for it."""
    return Report(layer_reports(module), _text(module, ORDER), _text(module, SEARCH))


def layer_reports(module: ModuleOp) -> tuple[LayerReport, ...]:
    """Return a line for each linear layer of `module`, in the order of execution."""
    known, reports = layer_numbers(module), list[LayerReport]()
    for op in module.walk():
        if isinstance(op, LinearOp | Conv2dOp) and op.codes is not None:
            reports.append(quantized_report(op, window_text(op) if isinstance(op, Conv2dOp) else ""))
        elif isinstance(op, LinearOp | Conv2dOp):
            reports.append(_report(op, node_name(op) or f"linear_{len(reports)}", known[op]))
    return tuple(reports)


def _text(op: Operation, key: str) -> str:
    attribute = op.attributes.get(key)
    return attribute.data if isinstance(attribute, StringAttr) else ""


def _report(op: LinearOp | Conv2dOp, name: str, numbers: LayerNumbers) -> LayerReport:
    inputs, outputs = shape_of(op.weight)
    connections, bounds = connection_count(op), op.io_bounds
    return LayerReport(
        name=name,
        inputs=inputs,
        outputs=outputs,
        connections=connections,
        density=connections / (inputs * outputs) if inputs * outputs else 0.0,
        format=_format(op),
        kernel=_kernel(numbers.families),
        reason="; ".join([*_reasons(op), *filter(None, [numbers.reason])]),
        families={str(width): family for width, family in numbers.families.items()},
        predicted_us=_by_text(numbers.predicted),
        measured_us=_by_text(numbers.measured),
        predicted_bytes=_by_text(numbers.moved),
        at_most=tuple(map(str, numbers.at_most)),
        fewest_reads=bounds.reads.lower if bounds is not None else None,
        most_reads=bounds.reads.upper if bounds is not None else None,
        fewest_writes=bounds.writes.lower if bounds is not None else None,
        most_writes=bounds.writes.upper if bounds is not None else None,
        structure="\n".join(_structure(op)),
    )


def _format(op: LinearOp | Conv2dOp) -> str:
    if op.times is None and op.is_rounded:
        return "bf16"
    return "csc" if isinstance(op.weight.owner, SparseConstantOp) else "dense"


def _by_text(numbers: Mapping[int, float]) -> dict[str, float]:
    return {str(width): number for width, number in numbers.items()}


def _kernel(families: Mapping[int, str]) -> str:
    """Return the families, each but an only one with the width of tiles from which it is used."""
    names = list(families.values())
    starts = [width for width, name, before in zip(families, names, ["", *names], strict=False) if name != before]
    if len(starts) == 1:
        return names[0]
    return ", ".join(f"{families[width]} from {width}" for width in starts)


def _reasons(op: LinearOp | Conv2dOp) -> list[str]:
    """Return why the kernels were chosen, and what the order of the neurons does for the layer."""
    reasons, order = [] if op.kernel is None else [op.kernel.reason], _text(op, ORDER)
    if isinstance(op, Conv2dOp):
        reasons.append(window_text(op))
    return [*reasons, f"order {order}"] if order else reasons


def window_text(op: Conv2dOp) -> str:
    """Return what a convolution does with an image: beside it the numbers are those of a tile of pixels."""
    (rows, columns), (_, _, height, width) = op.window.kernel_size, image_shape(op.result)
    stride = "" if op.window.stride == (1, 1) else f", stride {op.window.stride[0]}x{op.window.stride[1]}"
    dense = "" if op.dense_us is None else f", {op.dense_us.value.data:.3g} us by a dense product"
    return f"windows of {rows}x{columns}{stride}, results of {height}x{width} pixels{dense}"


def _structure(op: LinearOp | Conv2dOp) -> list[str]:
    """Return a sentence for the panels of a weight, and one for each fact about it."""
    weight = op.weight.owner
    if not isinstance(weight, SparseConstantOp):
        return []
    panels = [weight.panels.sentence] if weight.panels is not None else []
    return panels + [fact.sentence for fact in weight.facts or ()]

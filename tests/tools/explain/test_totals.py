"""One total of a model's layers: each runs on the rows that a batch gives it."""

import re

import onnx

from redpebble.options import Options
from redpebble.tools.explain.story import total_line
from redpebble.tools.explain_commands import native_report, simplified
from tests.support.image_models import ImageModel
from tests.support.quantized_models import pruned_network


def line_of(model: onnx.ModelProto) -> tuple[str, list[dict[str, float]]]:
    options = Options()
    imported = simplified(model, options)
    layers = native_report(imported.module, options)
    return total_line(imported, layers), [dict(layer.predicted_us) for layer in layers]


def test_layers_on_one_row_are_summed_tile_by_tile() -> None:
    line, predicted = line_of(pruned_network((256, 256, 256), 0.1))
    total = sum(times["1"] for times in predicted)
    assert line.startswith(f"all 2 layers, one after the other on one thread: {total:,.0f} us predicted, ")
    assert re.search(r"[0-9,]+ us predicted, [0-9,]+ measured at batch 64$", line)


def test_a_convolution_runs_on_its_pixels() -> None:
    net = ImageModel((3, 12, 12), density=0.2)
    x = net.node("Relu", net.conv("x", (32, 3, 3, 3), pads=[1, 1, 1, 1]))
    line, predicted = line_of(net.model(net.conv(x, (32, 32, 3, 3), pads=[1, 1, 1, 1])))
    shown = float(line.split(": ")[1].split(" us")[0].replace(",", ""))
    assert shown > 2 * sum(max(times.values()) for times in predicted)


def test_one_layer_needs_no_total() -> None:
    assert line_of(pruned_network((64, 64), 0.1))[0] == ""

import io

import numpy as np
import onnx
import onnx.parser
from rich.console import Console

from redpebble.driver.native_build import native_build
from redpebble.models.graph_network import GraphNetwork
from redpebble.options import Options
from redpebble.pipeline import build
from redpebble.tools.explain_commands import edge_lines, edge_table


def shown(kind: str, widths: tuple[int, ...]) -> str:
    model = GraphNetwork(kind, "grid", 400, 4.0, widths).build(np.random.default_rng(0))
    console = Console(file=io.StringIO(), width=200)
    console.print(edge_table(edge_lines(build(model, Options(), until="simplify"))))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_line_says_the_order_of_products_and_both_prices() -> None:
    wider, narrower = shown("gcn", (4, 64, 4)).splitlines()[1:]
    assert "(A X) W, " in wider
    assert "A (X W), " in narrower
    assert wider.count(" us") == narrower.count(" us") == 2


def test_attention_says_what_is_computed_again() -> None:
    assert "scores and weights of edges computed where they are used" in shown("gat", (8, 8))


def test_a_graph_of_the_call_says_for_which_graph_the_order_is() -> None:
    text = """g = Gather <axis = 0> (x, s) u = Unsqueeze (t, one) of = Shape (g) i = Expand (u, of) xs = Shape (x)
        z = ConstantOfShape (xs) h = ScatterElements <axis = 0, reduction = "add"> (z, i, g) y = MatMul (h, w)"""
    proto = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[n,64] x, int64[e] s, int64[e] t) => (float[n,4] y) '
        f"<int64[1] one = {{1}}> {{ {text} }}"
    )
    weight = np.random.default_rng(0).random((64, 4), dtype=np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    (line,) = edge_lines(native_build(proto, Options(), until="simplify").module)
    assert (line.nodes, line.edges, line.features) == (None, None, 4)
    assert "A (X W), " in line.order
    assert "nodes of" in line.order

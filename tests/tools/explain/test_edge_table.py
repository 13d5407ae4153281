import io

import numpy as np
from rich.console import Console

from redpebble.models.graph_network import GraphNetwork
from redpebble.options import Options
from redpebble.pipeline import build
from redpebble.tools.explain.edge_table import edge_lines, edge_table


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

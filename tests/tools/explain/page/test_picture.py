"""The model as a picture: chains are one box, what is taken has its colour, and every line goes downwards."""

import re

import onnx
import pytest

import redpebble
from redpebble.driver.placement import NodesLeft
from redpebble.frontend.reading.model_source import read_model
from redpebble.models import zoo
from redpebble.tools.explain.page.picture import MOST_BOXES, Box, boxes_of, picture_section, places_of

BRANCHES = """<ir_version: 8, opset_import: ["" : 17]> agraph (float[N, 4] x) => (float[N, 4] y) {
    a = Relu (x) b = Abs (a) c = Neg (b) d = Exp (b) e = Sin (d) f = Cos (e) y = Add (c, f) }"""


def left(text: str, **reasons: str) -> NodesLeft:
    model = read_model(onnx.parser.parse_model(text))
    return NodesLeft(model, {int(place.removeprefix("at")): reason for place, reason in reasons.items()})


def test_chains_are_one_box_and_branches_begin_new_ones() -> None:
    boxes = boxes_of(left(BRANCHES))
    assert [box.operators for box in boxes] == [("Relu", "Abs"), ("Neg",), ("Exp", "Sin", "Cos"), ("Add",)]
    assert [box.reads for box in boxes] == [(), (0,), (0,), (1, 2)]
    assert places_of(boxes) == [(0, 0), (1, 0), (1, 1), (2, 0)]


def test_what_onnxruntime_keeps_is_a_box_of_its_own_with_the_reason() -> None:
    boxes = boxes_of(left(BRANCHES, at4="a <reason>"))
    assert [(box.operators, box.reason) for box in boxes[2:5]] == [
        (("Exp",), ""),
        (("Sin",), "a <reason>"),
        (("Cos",), ""),
    ]
    page = picture_section(left(BRANCHES, at4="a <reason>"))
    assert "onnxruntime keeps it: a &lt;reason&gt;" in page
    assert page.count('<g class="left">') == 1


def test_a_value_that_the_model_yields_ends_a_chain() -> None:
    text = BRANCHES.replace("=> (float[N, 4] y)", "=> (float[N, 4] y, float[N, 4] d)")
    assert [box.operators for box in boxes_of(left(text))][2:4] == [("Exp",), ("Sin", "Cos")]


def test_every_line_goes_down() -> None:
    page = picture_section(left(BRANCHES))
    for start, end in re.findall(r'd="M\d+ (\d+)C[\d ]+ (\d+)"', page):
        assert int(start) < int(end)
    assert page.count('class="edge"') == 4


def test_a_large_model_is_drawn_in_part() -> None:
    lines = " ".join(f"a{at} = Relu (x) y{at} = Add (a{at}, x)" for at in range(600))
    text = f'<ir_version: 8, opset_import: ["" : 17]> agraph (float[4] x) => (float[4] y0) {{ {lines} }}'
    page = picture_section(left(text))
    assert page.count("<rect") == MOST_BOXES
    assert f"The first {MOST_BOXES} of 600 boxes" in page


@pytest.mark.parametrize(("operators", "label"), [(("A", "B"), "A, B"), (("Q" * 30,), f"{'Q' * 19}...")])
def test_a_label_fits_its_box(operators: tuple[str, ...], label: str) -> None:
    assert Box(operators, "", "", ()).label == label
    assert len(Box(("MatMul",) * 9, "", "", ()).label) <= 22


def test_a_model_of_sparse_layers_is_taken() -> None:
    found = redpebble.optimize(zoo.build("ffnn(depth=2, width=64, density=0.1)")).left
    assert found is not None
    page = picture_section(found)
    assert page.count('<g class="taken">') >= 1
    assert '<g class="left">' not in page

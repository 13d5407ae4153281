"""`redpebble explain` and `redpebble schedule`: what they write holds up when somebody else counts it."""

import json
import re
from html.parser import HTMLParser
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest

from redpebble.bench.suites.hidden_networks import HiddenNetwork, band, onnx_model
from redpebble.models import zoo
from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.machine import POLICIES, Memory, Policy
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.tools import explain_cli, explain_commands
from redpebble.tools.explain import saved_orders
from redpebble.tuning import calibration
from tests.support.command_line import exit_code

COMPACT = "compact(widths=(24, 32, 12), density=0.2, memory=24)"
FFNN = "ffnn(depth=3, width=40, density=0.1)"
RESMLP = "resmlp(depth=1, width=24)"


def saved(spec: str, folder: Path) -> Path:
    path = folder / "model.onnx"
    zoo.save(zoo.build(spec), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("spec", [FFNN, pytest.param(RESMLP, marks=pytest.mark.slow)])
def test_a_saved_order_counts_as_it_says(
    spec: str, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the file alone, by the reference machine in plain Python."""
    model, order = saved(spec, tmp_path), tmp_path / "order.npz"
    options = ("--memory", 16, "--policy", policy, "--seconds", 0.3, "--save", order)
    assert exit_code(monkeypatch, "schedule", model, *options) == 0
    with np.load(order) as file:
        sources, targets, inputs, outputs = (file[name] for name in ("sources", "targets", "inputs", "outputs"))
        memory = Memory(int(file["memory"]), cast("Policy", str(file["policy"])))
        reads, writes = int(file["reads"]), int(file["writes"])
    neurons = int(max(array.max() for array in (sources, targets, inputs, outputs))) + 1
    network = NeuronGraph(neurons, sources, targets, inputs, outputs)
    count = count_transfers(network, np.arange(len(sources)), memory)
    assert (memory.capacity, memory.policy) == (16, policy)
    assert (count.reads, count.writes) == (reads, writes)
    printed = capsys.readouterr().out
    graphs = 1 if spec == FFNN else 2
    assert f"{graphs} graph" in printed
    assert ("layer_norm" in printed) == (spec == RESMLP)
    assert f"{reads:,}" in printed


@pytest.mark.slow
def test_a_search_ends_when_the_seconds_since_the_beginning_of_the_command_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is ten seconds further each time it is asked: with five, only what needs no search is made."""
    model, order, asked, moved = saved(FFNN, tmp_path), tmp_path / "order.npz", count(0.0, 10.0), list[int]()
    for module in (explain_cli, explain_commands, saved_orders):
        monkeypatch.setattr(module, "monotonic", lambda: next(asked))
    for seconds in (5, 30_000):
        began, options = next(asked), ("--memory", 10, "--seconds", seconds, "--save", order)
        assert exit_code(monkeypatch, "schedule", model, *options) == 0
        assert next(asked) < began + seconds + 500
        with np.load(order) as file:
            moved.append(int(file["reads"]) + int(file["writes"]))
    assert moved[0] > moved[1]


@pytest.mark.slow
def test_no_search_takes_the_best_start_and_the_same_seed_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(FFNN, tmp_path)
    orders: list[Any] = []
    for name in ("a.npz", "b.npz"):
        assert exit_code(monkeypatch, "schedule", model, "--memory", 10, "--seconds", 0, "--save", tmp_path / name) == 0
        with np.load(tmp_path / name) as file:
            orders.append((file["sources"], file["targets"]))
    np.testing.assert_array_equal(*orders)


@pytest.mark.slow
def test_the_json_holds_bounds_around_the_counts_of_every_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "x.json"
    options = ("--memory", 12, "--batch-tile", 8, "--seconds", 0.2, "--report", report)
    assert exit_code(monkeypatch, "explain", saved(FFNN, tmp_path), *options) == 0
    content: dict[str, Any] = json.loads(report.read_text())
    assert (content["memory"], content["batch_tile"]) == (12, 8)
    network = content["network"]
    assert {"neurons", "inputs", "outputs", "connections", "lower", "upper", "instance_lower"} <= {*network}
    weights, moved = network["connections"], network["neurons"]
    assert network["lower"] <= weights + moved + 8 * (network["inputs"] + network["outputs"])
    assert network["lower"] <= network["instance_lower"] <= network["upper"]
    assert {"pull", "push", "target blocks", "sliding window", "depth first", "searched"} <= {*network["orders"]}
    for policies in network["orders"].values():
        assert {*policies} == {*POLICIES}
        for counts in policies.values():
            assert network["instance_lower"] <= counts["reads"] + counts["writes"]
    pull = network["orders"]["pull"]
    assert all(counts["reads"] + counts["writes"] <= network["upper"] for counts in pull.values())
    best = min(sum(policies["min"].values()) for policies in network["orders"].values())
    assert sum(network["orders"]["searched"]["min"].values()) == best
    first, last = (content["levels"][place]["kinds"]["64"] for place in (0, -1))
    moved = [sum(one["weight_bytes"] + one["activation_bytes"] for one in level) for level in (first, last)]
    assert moved[0] > moved[1] > 0
    layers = content["layers"]
    assert sum(layer["connections"] for layer in layers) == network["connections"]
    assert all({"name", "outputs", "connections", "density", "format", "kernel"} <= {*layer} for layer in layers)
    for layer in layers:
        assert (
            {*layer["families"]} == {*layer["predicted_us"]} == {*layer["predicted_bytes"]} >= {*layer["measured_us"]}
        )
        assert layer["measured_us"]
        assert min(*layer["predicted_us"].values(), *layer["measured_us"].values()) > 0
    printed = capsys.readouterr().out
    assert all(words in printed for words in ("searched", "predicted KB", "predicted us", "measured us"))


@pytest.mark.slow
def test_row_compaction_is_explained_by_tiles_whose_rows_all_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report, model = tmp_path / "x.json", saved("radixnet(layers=2)", tmp_path)
    assert exit_code(monkeypatch, "explain", model, "--seconds", 0, "--report", report, "--drop-dead-rows") == 0
    first, last = json.loads(report.read_text())["layers"]
    assert (first["at_most"], last["at_most"]) == ([], ["48"])
    assert "48" in first["predicted_us"].keys() & last["predicted_us"].keys() & last["measured_us"].keys()
    printed = capsys.readouterr().out
    assert "on live rows at 48" in printed
    assert "<=: of a tile of live rows" in printed


@pytest.mark.slow
def test_an_annealed_schedule_is_explained_with_the_trace_of_its_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # whether a tile goes depth first depends on the prices of a CPU
    monkeypatch.setattr(calibration, "PRICES_OF_CPUS", ())
    model = tmp_path / "band.onnx"
    network = onnx_model(HiddenNetwork("band", band(32, 4), width=16384, depth=6).layers())
    model.write_bytes(network.SerializeToString())
    for suffix in ("json", "html"):
        report = tmp_path / f"x.{suffix}"
        options = ("--seconds", 0, "--report", report, "--schedule-seconds", 0.2)
        assert exit_code(monkeypatch, "explain", model, *options) == 0
        assert re.search(r"annealed: \S+ -> \S+ us a row in \d+ proposals", capsys.readouterr().out)
        assert "us a row in" in report.read_text()
    for layer in json.loads((tmp_path / "x.json").read_text())["layers"]:
        together = [width for width, family in layer["families"].items() if family == "depth_first"]
        assert together
        for key in ("predicted_us", "measured_us", "predicted_bytes"):
            assert all(layer[key][width] > 0 for width in together)


class _Page(HTMLParser):
    """Collects tags, their attributes, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("spec", [COMPACT, pytest.param(RESMLP, marks=pytest.mark.slow)])
def test_the_page_needs_nothing_but_itself(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "x.html"
    options = ("--memory", 12, "--seconds", 0.3, "--report", report)
    assert exit_code(monkeypatch, "explain", saved(spec, tmp_path), *options) == 0
    text = report.read_text()
    page = _Page()
    page.feed(text)
    names = [name for name, _ in page.tags]
    assert {"svg", "img", "table", "polyline"} <= {*names}
    assert not {"link", "iframe"} & {*names}
    assert not [attributes for name, attributes in page.tags if name == "script" and attributes]
    assert all(str(attributes["src"]).startswith("data:image/png") for name, attributes in page.tags if name == "img")
    assert not re.search(r"https?:|url\(", text)
    assert not any("nan" in str(attributes.get("points", "")) for _, attributes in page.tags)
    for word in ("Batch 64", "form tiles", "Roofline", "pull", "searched", "sliding window", "M = 12"):
        assert word in page.text


def test_no_order_is_searched_where_every_one_moves_what_none_goes_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, "explain", saved(COMPACT, tmp_path), "--memory", 900, "--seconds", 100) == 0
    said = r"M = 900 rows of 1: the order does not matter, each moves [\d,]+ and none could move fewer \("
    assert re.search(said, " ".join(capsys.readouterr().out.split()))


def test_a_model_without_layers_is_explained_and_not_scheduled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "softmax.onnx"
    text = '<ir_version: 8, opset_import: ["" : 17]> agraph (float[N, 4] x) => (float[N, 4] y) { y = Softmax (x) }'
    model.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    report = tmp_path / "x.html"
    assert exit_code(monkeypatch, "explain", model, "--report", report) == 0
    assert "no linear layer with constant weights" in report.read_text()
    said = "0 graphs of neurons; not counted, as they are no connections of neurons: softmax (1)"
    assert said in " ".join(capsys.readouterr().out.split())
    assert exit_code(monkeypatch, "schedule", model, "--memory", 9, "--save", tmp_path / "y.npz") == 2
    error = capsys.readouterr().err
    assert error == "error: nothing to schedule: the model has no linear layer of floats with constant weights\n"
    assert {path.name for path in tmp_path.iterdir()} == {"softmax.onnx", "x.html"}


def test_the_page_of_a_quantized_model_tells_its_gain_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "page.html"
    assert exit_code(monkeypatch, "explain", saved("digits_int8", tmp_path), "--report", report) == 0
    assert "connections, density" in capsys.readouterr().out
    text = report.read_text()
    assert "of multiply-adds taken" in text
    assert "To run it:" in text
    assert "Nothing is gained" not in text


REFUSED = (
    (("explain", "--report", "x.txt"), "expected a report that ends in .json or .html, got x.txt"),
    (("explain", "--memory", "2"), "expected a fast memory of 3 values or more, got 2"),
    (("explain", "--batch-tile", "0"), "expected a batch tile of 1 column or more, got 0"),
    (("explain", "--seconds", "-1"), "expected 0 seconds or more to search, got -1.0"),
    (("schedule", "--memory", "2", "--save", "x.npz"), "expected a fast memory of 3 values or more, got 2"),
)


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_makes_no_sense_is_refused_in_one_line(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, *options = words
    monkeypatch.chdir(tmp_path)
    assert exit_code(monkeypatch, command, saved(COMPACT, tmp_path), *options) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


PARTLY_COVERED = """
<ir_version: 8, opset_import: ["" : 17]>
partly (float[n, 12] x) => (float[n, 8] y, int64[2, k] places)
{
    h = MatMul (x, w)
    places = NonZero (h)
    sums = CumSum (h, axis)
    y = MatMul (sums, v)
}
"""


@pytest.mark.slow
def test_models_that_are_covered_in_part_are_explained_and_scheduled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proto, rng = onnx.parser.parse_model(PARTLY_COVERED), np.random.default_rng(0)
    for name, shape in (("w", (12, 20)), ("v", (20, 8))):
        weight = rng.standard_normal(shape) * (rng.random(shape) < 0.3)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight.astype(np.float32), name))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "axis"))
    model = tmp_path / "partly.onnx"
    model.write_bytes(proto.SerializeToString())
    report = tmp_path / "x.html"
    assert exit_code(monkeypatch, "explain", model, "--memory", 16, "--seconds", 0, "--report", report) == 0
    out, page = capsys.readouterr().out, _Page()
    assert "2 graphs of neurons; not counted, as they are no connections of neurons: " in out
    page.feed(report.read_text())
    (sentence,) = re.findall(r"^.* of multiply-adds taken\b.*|^nothing gains.*", out, re.MULTILINE)
    assert sentence[1:].rstrip() in page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert exit_code(monkeypatch, "schedule", model, "--memory", 16, "--seconds", 0, "--save", tmp_path / "o.npz") == 0
    assert "2 graphs of neurons" in capsys.readouterr().out
